//! How a recording is read, as Python says it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use robocache::{Error, Result};
use robocache_data::{RecordedClock, RecordedEpisodes, Recording};

/// From a dict of what was asked for.
pub(crate) fn from_python(recording: Option<&Bound<'_, PyDict>>) -> Result<Recording> {
    let mut asked = Recording::default();
    let get = |name: &str| recording.and_then(|dict| dict.get_item(name).ok().flatten());
    fn bad(argument: &'static str, expected: &str) -> impl Fn(PyErr) -> Error {
        move |_| Error::invalid(argument, format!("expected {expected}"))
    }
    if let Some(clock) = get("clock") {
        let name: String = clock.extract().map_err(bad("clock", "header or log"))?;
        asked.clock = RecordedClock::from_name("clock", &name)?;
    }
    if let Some(gap) = get("episode_gap") {
        asked.episodes = RecordedEpisodes::Gap(gap.extract().map_err(bad("episode_gap", "seconds"))?);
    }
    if let Some(topic) = get("episode_topic") {
        asked.episodes = RecordedEpisodes::Topic(topic.extract().map_err(bad("episode_topic", "the name of a topic"))?);
    }
    if let Some(ranges) = get("episode_ranges") {
        let ranges = ranges.extract().map_err(bad("episode_ranges", "a list of (start, end) in seconds"))?;
        asked.episodes = RecordedEpisodes::Ranges(ranges);
    }
    Ok(asked)
}

/// The dict that says the same; `None` for the default.
pub(crate) fn to_python<'py>(py: Python<'py>, recording: &Recording) -> PyResult<Option<Bound<'py, PyDict>>> {
    if recording.is_default() {
        return Ok(None);
    }
    let dict = PyDict::new(py);
    dict.set_item(
        "clock",
        match recording.clock {
            RecordedClock::Header => "header",
            RecordedClock::Log => "log",
        },
    )?;
    match &recording.episodes {
        RecordedEpisodes::Whole => {}
        RecordedEpisodes::Gap(seconds) => dict.set_item("episode_gap", seconds)?,
        RecordedEpisodes::Topic(topic) => dict.set_item("episode_topic", topic)?,
        RecordedEpisodes::Ranges(ranges) => dict.set_item("episode_ranges", ranges.clone())?,
    }
    Ok(Some(dict))
}
