//! From a recording to batches: an MCAP file is recorded, checked, made a cache and read by the loader, and every
//! value is compared with the function that it was recorded from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use robocache::{Error, Result};
use robocache_data::cache::{self, Cache, IngestOptions};
use robocache_data::loader::{Anchor, Batch, Column, WindowOptions, Windows, Work};
use robocache_data::recorder::Recorder;
use robocache_data::{Dataset, Limits, Progress, RecordedEpisodes, Recording};
use serde::Serialize;

use super::align::MAX_GAP;
use super::random::Random;
use super::recording::{Episodes, Stamps};
use super::signal::Signal;
use crate::bench::Folder;

/// Episodes that are recorded.
const RECORDED: usize = 4;
/// Of so many messages of the joints, one is lost.
const LOST: usize = 100;
/// Seconds without a message that end an episode.
const GAP: f64 = 0.9;
const BATCH: u64 = 64;
const JOINTS: [&str; 7] = ["joint1", "joint2", "joint3", "joint4", "joint5", "joint6", "joint7"];
const STREAMS: [&str; 2] = ["/joint_states/position", "/wrench/wrench"];

/// What became of the recording.
#[derive(Debug, Serialize)]
pub(crate) struct Journey {
    pub(super) episodes: usize,
    pub(super) messages: usize,
    /// Messages that were lost on the way to the recorder.
    pub(super) lost: usize,
    /// How often the check found what, by code.
    pub(super) findings: BTreeMap<&'static str, usize>,
    pub(super) samples: u64,
    pub(super) batches: u64,
    pub(super) streams: Vec<Compared>,
    pub(super) seconds: f64,
    pub(super) ok: bool,
}

/// A stream of the batches against the truth.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) name: &'static str,
    pub(super) values: usize,
    pub(super) padding: usize,
    pub(super) max_error: f64,
    pub(super) bound: f64,
}

/// A sensor: its stamps and what it measures.
pub(super) struct Sensor<'a> {
    pub(super) stamps: &'a Stamps,
    pub(super) signal: &'a Signal,
}

/// A message that waits to be recorded: its log time, its sensor, its stamp.
type Waiting = (i64, usize, i64);

/// Records the first episodes of the joints and the force, and follows them to batches.
pub(super) fn journey(
    episodes: &Episodes,
    sensors: [Sensor<'_>; 2],
    hertz: f64,
    random: &mut Random,
) -> Result<Journey> {
    let folder = Folder::new()?;
    let (path, out) = (folder.path().join("arm.mcap"), folder.path().join("cache"));
    let started = Instant::now();
    let mut recorder = Recorder::create(&path)?;
    let topics = [recorder.joint_states("/joint_states"), recorder.wrenches("/wrench")];
    let (mut messages, mut lost, mut largest_step) = (0, 0, [0i64; 2]);
    for episode in 0..RECORDED {
        let mut waiting: Vec<Waiting> = Vec::new();
        for (sensor, Sensor { stamps, .. }) in sensors.iter().enumerate() {
            let mut before: Option<i64> = None;
            for (at, &stamp) in stamps.row(episode).iter().enumerate() {
                if sensor == 0 && at % LOST == LOST / 2 {
                    lost += 1;
                    continue;
                }
                if let Some(step) = before.map(|before| stamp - before).filter(|&step| step as f64 <= MAX_GAP * 1e9) {
                    largest_step[sensor] = largest_step[sensor].max(step);
                }
                before = Some(stamp);
                waiting.push((stamp + (random.between(0.0, 3e6) as i64), sensor, stamp));
            }
        }
        waiting.sort_unstable();
        for (log, sensor, stamp) in waiting {
            let mut exact = [0.0; 7];
            sensors[sensor].signal.at(episodes.seconds(episode, stamp), &mut exact);
            match sensor {
                0 => recorder.joint_state(topics[0], [stamp, log], &JOINTS, [exact.as_slice(), &[], &[]])?,
                _ => recorder.wrench(topics[1], [stamp, log], std::array::from_fn(|column| exact[column]))?,
            }
            messages += 1;
        }
    }
    recorder.finish()?;

    let quiet = Progress::default();
    let recording = Recording { episodes: RecordedEpisodes::Gap(GAP), ..Recording::default() };
    let (found, _) = Dataset::open_and_check(&path, &recording, &Limits::default(), &quiet)?;
    let mut findings = BTreeMap::new();
    found.iter().for_each(|finding| *findings.entry(finding.code).or_insert(0) += 1);
    let streams = STREAMS.map(|name| cache::Choice { from: name.to_owned(), to: None, dtype: None }).to_vec();
    let options = IngestOptions { streams: Some(streams), recording, ..IngestOptions::default() };
    cache::ingest(&path, &out, &options, &Limits::default(), &quiet)?;

    let cache = Arc::new(Cache::open(&out)?);
    let named = |value: f64| STREAMS.map(|name| (name.to_owned(), value));
    let options = WindowOptions {
        delta_timestamps: STREAMS.map(|name| (name.to_owned(), vec![0.0])).to_vec(),
        others: Some(Vec::new()),
        anchor: Anchor::Rate(hertz),
        max_gap: named(MAX_GAP).to_vec(),
        // Values near a stamp are between samples too.
        tolerance_s: 0.0,
        ..WindowOptions::default()
    };
    let windows = Windows::new(Arc::clone(&cache), &options, &|| false)?;
    let mut compared = [0, 1].map(|sensor: usize| {
        let (step, signal) = (largest_step[sensor] as f64 * 1e-9, sensors[sensor].signal);
        let bound = step * step / 8.0 * signal.largest_curvature() + 8.0 * f64::EPSILON * signal.largest();
        Compared { name: STREAMS[sensor], values: 0, padding: 0, max_error: 0.0, bound }
    });
    let starts = (0..cache.len()).map(|at| start(&cache, at)).collect::<Result<Vec<_>>>()?;
    let mut batches = 0;
    for first in (0..windows.len()).step_by(BATCH as usize) {
        let samples =
            (first..windows.len().min(first + BATCH)).map(|at| windows.sample(at)).collect::<Result<Vec<_>>>()?;
        let places: Vec<usize> = samples.iter().map(|&sample| windows.episode_of(sample)).collect();
        let batch = windows.batch(&samples, &Work { stop: &|| false, threads: 1 })?;
        let frames = numbers(&batch, "frame_index")?.as_slice::<i64>()?;
        for (compared, sensor) in compared.iter_mut().zip(&sensors) {
            let values = numbers(&batch, compared.name)?.as_slice::<f64>()?;
            let pads = numbers(&batch, &format!("{}_is_pad", compared.name))?.as_slice::<bool>()?;
            let width = sensor.signal.width();
            for (at, row) in values.chunks_exact(width).enumerate() {
                if pads[at] {
                    compared.padding += 1;
                    continue;
                }
                let time = starts[places[at]] + (frames[at] as f64 * 1e9 / hertz).round() as i64;
                let mut exact = [0.0; 7];
                sensor.signal.at(episodes.seconds(places[at], time), &mut exact);
                let error = super::largest(row.iter().zip(&exact).map(|(value, exact)| value - exact));
                compared.values += width;
                compared.max_error = if error <= compared.max_error { compared.max_error } else { error };
            }
        }
        batches += 1;
    }
    let within = |compared: &Compared| compared.max_error <= compared.bound && compared.values > 0;
    Ok(Journey {
        episodes: cache.len(),
        messages,
        lost,
        findings,
        samples: windows.len(),
        batches,
        ok: cache.len() == RECORDED && compared.iter().all(within),
        streams: compared.into(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// When the streams of an episode overlap first, where its grid starts.
fn start(cache: &Cache, at: usize) -> Result<i64> {
    let first = |name: &str| {
        let times = cache.times(at, cache.stream(name)?)?;
        times.first().copied().ok_or_else(|| Error::invalid("stream", format!("{name} has no samples")))
    };
    Ok(first(STREAMS[0])?.max(first(STREAMS[1])?))
}

/// A column of a batch.
fn numbers<'b>(batch: &'b Batch, name: &str) -> Result<&'b robocache::Tensor> {
    let found = batch.columns.iter().find(|(known, _)| known == name);
    match found {
        Some((_, Column::Numbers(tensor))) => Ok(tensor),
        _ => Err(Error::invalid("batch", format!("it has no numbers {name:?}"))),
    }
}
