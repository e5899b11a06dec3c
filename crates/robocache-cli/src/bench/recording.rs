//! How fast a recording of low-dimensional messages opens and is read.

use std::path::Path;
use std::time::Instant;

use robocache::Result;
use robocache_data::recorder::Recorder;
use robocache_data::{Dataset, Limits};

use super::report::{Row, Target, Unit};
use super::steps::Steps;
use crate::demo::random::Random;

const SECONDS: i64 = 120;
const HERTZ: i64 = 500;
/// Wrenches for each joint state.
const WRENCHES: i64 = 2;
const JOINTS: [&str; 7] =
    ["panda_joint1", "panda_joint2", "panda_joint3", "panda_joint4", "panda_joint5", "panda_joint6", "panda_joint7"];
const START: i64 = 1_760_000_000_000_000_000;
/// Of messages before compression, per core.
const TARGET: f64 = 300e6;
/// The best of so many counts.
const PASSES: usize = 5;

/// Records an arm, opens it on all cores and reads it on one.
pub(super) fn measure(rows: &mut Vec<Row>, steps: &mut Steps<'_>, folder: &Path) -> Result<()> {
    let path = folder.join("arm.mcap");
    let bytes = record(&path, steps)? as f64;
    steps.step(1);
    let (mut opening, mut reading) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..PASSES {
        steps.go_on()?;
        let started = Instant::now();
        let dataset = Dataset::open(&path, &Limits::default())?;
        opening = opening.min(started.elapsed().as_secs_f64());
        let streams: Vec<usize> = (0..dataset.streams().len()).collect();
        let started = Instant::now();
        drop(dataset.read(0, &streams)?);
        reading = reading.min(started.elapsed().as_secs_f64());
    }
    let target = Some(Target::AtLeast(TARGET));
    let row = |name, what: &str, seconds, target| Row::new(name, what, bytes / seconds, Unit::BytesPerSecond, target);
    rows.push(row("mcap_read_1_thread", "MCAP messages, 1 thread", reading, target));
    rows.push(row("mcap_open", "  to open, all threads", opening, None));
    steps.step(1);
    Ok(())
}

/// Bytes of the messages.
fn record(path: &Path, steps: &Steps<'_>) -> Result<u64> {
    let mut random = Random::new(7);
    let mut recorder = Recorder::create(path)?;
    let (joints, wrenches) = (recorder.joint_states("/joint_states"), recorder.wrenches("/wrench"));
    for at in 0..SECONDS * HERTZ {
        if at % 1024 == 0 {
            steps.go_on()?;
        }
        let stamp = START + at * (1_000_000_000 / HERTZ);
        let mut numbers = || std::array::from_fn::<f64, 7, _>(|_| random.between(-1.0, 1.0));
        let parts = [numbers(), numbers(), numbers()];
        recorder.joint_state(
            joints,
            [stamp, stamp + 500_000],
            &JOINTS,
            parts.each_ref().map(|part| part.as_slice()),
        )?;
        for wrench in 0..WRENCHES {
            let stamp = stamp + wrench * 1_000_000;
            let wrenched = std::array::from_fn(|_| random.between(-20.0, 20.0));
            recorder.wrench(wrenches, [stamp, stamp + 600_000], wrenched)?;
        }
    }
    recorder.finish()
}
