//! Robots, as Python holds them, and by their keys, as graphs of torch name them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use robocache::ops::kinematics::{Chain, Convention, DhRow, Robot as Model};
use robocache::{Error, Result};
use robocache_data::{Limits, parse_urdf, read_urdf_text};

use crate::{enter, errors, options};

/// All robots of this process. They are small, and a compiled graph may name one at any time.
static ROBOTS: Mutex<Option<HashMap<String, Arc<Model>>>> = Mutex::new(None);

/// The robot with a key.
pub(crate) fn by_key(key: &str) -> Result<Arc<Model>> {
    let robots = ROBOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = robots.as_ref().and_then(|robots| robots.get(key)).cloned();
    found.ok_or_else(|| Error::invalid("robot", format!("{key} was not made in this process: call rc.Robot first")))
}

/// What leads to links, given by their places, of the robot with a key.
pub(crate) fn chain_of(key: &str, places: &[usize]) -> Result<Arc<Chain>> {
    let robot = by_key(key)?;
    let names: Vec<&str> = robot.link_names().collect();
    let links = places.iter().map(|&place| {
        let text = || Error::invalid("links", format!("there is no link {place} of {}", names.len()));
        names.get(place).copied().ok_or_else(text)
    });
    robot.chain(Some(&links.collect::<Result<Vec<_>>>()?))
}

/// What `robocache.Robot` is made of.
#[pyclass(frozen, module = "robocache._core")]
pub(crate) struct Robot {
    model: Arc<Model>,
    urdf: Option<String>,
}

impl Robot {
    fn new(model: Model, urdf: Option<String>) -> Self {
        let mut robots = ROBOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = robots.get_or_insert_default();
        let model = known.entry(model.key().to_owned()).or_insert_with(|| Arc::new(model));
        Self { model: Arc::clone(model), urdf }
    }
}

fn fail(py: Python<'_>, error: Error) -> PyErr {
    errors::to_python(py, &error.op("Robot"))
}

#[pymethods]
impl Robot {
    /// From a URDF: a file, or the text itself.
    #[staticmethod]
    #[pyo3(signature = (urdf, is_text, base=None, tip=None))]
    fn from_urdf(
        py: Python<'_>,
        urdf: PathBuf,
        is_text: bool,
        base: Option<String>,
        tip: Option<String>,
    ) -> PyResult<Self> {
        enter::engine(py, |_| {
            let read = || -> Result<_> {
                let text = match is_text {
                    true => {
                        urdf.to_str().map(str::to_owned).ok_or_else(|| Error::invalid("urdf", "is no Unicode text"))?
                    }
                    false => read_urdf_text(&urdf, &Limits::default())?,
                };
                let file = (!is_text).then_some(urdf.as_path());
                let model = parse_urdf(&text, file, base.as_deref(), tip.as_deref())?;
                Ok(Self::new(model, Some(text)))
            };
            read().map_err(|error| error.op("Robot"))
        })
    }

    /// From rows of `a, alpha, d, theta`, whether it slides, and limits.
    #[staticmethod]
    fn from_dh(py: Python<'_>, rows: Vec<([f64; 4], bool, [f64; 2])>, convention: &Bound<'_, PyAny>) -> PyResult<Self> {
        let make = || -> Result<_> {
            let name = convention.extract::<String>().map_err(|_| {
                Error::invalid("convention", format!("expected text, got {}", options::type_name(convention)))
            })?;
            let rows =
                rows.iter().map(|&([a, alpha, d, theta], slides, limits)| DhRow { a, alpha, d, theta, slides, limits });
            Model::from_dh(&rows.collect::<Vec<_>>(), Convention::by_name(&name)?)
        };
        Ok(Self::new(make().map_err(|error| fail(py, error))?, None))
    }

    #[getter]
    fn name(&self) -> &str {
        self.model.name()
    }

    #[getter]
    fn key(&self) -> &str {
        self.model.key()
    }

    #[getter]
    fn joint_names(&self) -> Vec<String> {
        self.model.joint_names().to_vec()
    }

    #[getter]
    fn limits(&self) -> Vec<(f64, f64)> {
        self.model.limits().iter().map(|&[low, high]| (low, high)).collect()
    }

    #[getter]
    fn link_names(&self) -> Vec<String> {
        self.model.link_names().map(str::to_owned).collect()
    }

    #[getter]
    fn tip(&self) -> Option<&str> {
        self.model.tip()
    }

    #[getter]
    fn urdf(&self) -> Option<&str> {
        self.urdf.as_deref()
    }

    /// The places of links; of the tip where none are named.
    fn places(&self, py: Python<'_>, links: Option<Vec<String>>) -> PyResult<Vec<usize>> {
        let names: Vec<&str> = self.model.link_names().collect();
        let wanted = match links {
            Some(links) => links,
            None => match self.model.tip() {
                Some(tip) => vec![tip.to_owned()],
                // An error that names the leaves.
                None => return Err(fail_to_chain(py, &self.model)),
            },
        };
        let place = |link: &String| {
            let found = names.iter().position(|name| name == link);
            found.ok_or_else(|| fail(py, Error::no_such("links", "links", link, names.iter().copied())))
        };
        wanted.iter().map(place).collect()
    }
}

fn fail_to_chain(py: Python<'_>, model: &Model) -> PyErr {
    let error = model.chain::<&str>(None).err();
    fail(py, error.unwrap_or_else(|| Error::invalid("links", "expected at least one link")))
}
