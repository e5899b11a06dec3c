//! `robocache demo`: a recording whose truth is known, aligned and compared with it.

mod align;
mod journey;
pub(crate) mod random;
mod recording;
mod report;
mod signal;

use robocache::ops::resample::Method;
use robocache::{Device, Element, Error, ErrorKind, Result, cpu_features, cpu_threads, ensure};

use self::align::{Aligned, Comparison, MAX_GAP, align, arguments, compare, rectangle};
use self::journey::{Sensor, journey};
use self::random::Random;
use self::recording::{Clock, EPISODES, Episodes, Stamps, Stream};
use self::report::{Float32Stamps, Story, StreamReport, Timing};
use self::signal::Signal;
use crate::flags;

const SEED: u64 = 2026;
/// Seconds that the force sensor is silent for, and when, as a part of the episode.
const SILENCE: f64 = 0.4;
const SILENCE_START: f64 = 0.4;

/// What to record and align.
#[derive(Debug)]
pub(crate) struct Options {
    seconds: f64,
    hertz: f64,
}

impl Options {
    /// Takes only what fits into memory and finishes soon.
    pub(crate) fn resolve(raw: &flags::Demo) -> Result<Self> {
        let check = || {
            let (seconds, hertz) = (raw.seconds, raw.rate);
            ensure!((1.0..=600.0).contains(&seconds), "--seconds", "expected 1 to 600, got {seconds}");
            ensure!((1.0..=1000.0).contains(&hertz), "--rate", "expected 1 to 1000, got {hertz}");
            Ok(Self { seconds, hertz })
        };
        check().map_err(|error: Error| error.op("demo"))
    }
}

pub(crate) fn run(options: &Options) -> Result<Story> {
    let mut random = Random::new(SEED);
    let episodes = Episodes::new(options.seconds, &mut random);
    let targets = Stamps::grid(&episodes, options.hertz);
    let mut bench = Bench { episodes, targets, random };
    let silence = SILENCE_START * options.seconds;

    let joints = Source { name: "joints", what: "7 angles, rad", hertz: 100.0, silence: None };
    let motion = Signal::new(7, [0.4, 1.3], [0.8, 0.15], &mut bench.random);
    let (joint_stream, joint_report) = bench.smooth(&joints, &motion, 2f64.powi(-24), |x| x as f32, f64::from)?;
    let float32_stamps = bench.float32_stamps(&joint_stream, &motion)?;
    let joint_stamps = joint_stream.stamps;

    let silence = Some((silence, silence + SILENCE));
    let force = Source { name: "force", what: "force and torque, N and N m; one gap", hertz: 500.0, silence };
    let contact = Signal::new(6, [0.7, 9.0], [20.0, 2.0], &mut bench.random);
    let (force_stream, force_report) = bench.smooth(&force, &contact, 2f64.powi(-24), |x| x as f32, f64::from)?;

    let hand = Source { name: "hand", what: "x, y, z of the end effector, m", hertz: 250.0, silence: None };
    let path = Signal::new(3, [0.4, 1.3], [0.3, 0.05], &mut bench.random);
    let (_, hand_report) = bench.smooth(&hand, &path, 2f64.powi(-53), |x| x, |x| x)?;

    let gripper = Source { name: "gripper", what: "opening, 0 to 255", hertz: 30.0, silence: None };
    let opening = Signal::new(1, [0.2, 0.5], [100.0, 27.0], &mut bench.random);
    let gripper_report = bench.copied(&gripper, Method::Previous, f64::from, |seconds, _| {
        let mut value = [0.0];
        opening.at(seconds, &mut value);
        (127.5 + value[0]) as u8
    })?;

    let camera = Source { name: "camera", what: "frame number", hertz: 30.0, silence: None };
    let camera_report = bench.copied(&camera, Method::Nearest, |x| x as f64, |_, index| index as i64)?;

    let sensors =
        [Sensor { stamps: &joint_stamps, signal: &motion }, Sensor { stamps: &force_stream.stamps, signal: &contact }];
    let recorded = journey(&bench.episodes, sensors, options.hertz, &mut bench.random)?;

    let streams = vec![joint_report, force_report, hand_report, gripper_report, camera_report];
    let (shortest_seconds, longest_seconds) = bench.episodes.range();
    Ok(Story {
        episodes: EPISODES,
        shortest_seconds,
        longest_seconds,
        target_rate_hz: options.hertz,
        targets: bench.targets.count(),
        max_gap_seconds: MAX_GAP,
        device: Device::Cpu.to_string(),
        threads: cpu_threads(),
        vector_instructions: cpu_features(),
        ok: recorded.ok && streams.iter().all(|stream| stream.ok),
        streams,
        recorded,
        float32_stamps,
    })
}

/// A sensor.
#[derive(Debug)]
struct Source {
    name: &'static str,
    what: &'static str,
    hertz: f64,
    silence: Option<(f64, f64)>,
}

/// What all streams share.
#[derive(Debug)]
struct Bench {
    episodes: Episodes,
    targets: Stamps,
    random: Random,
}

impl Bench {
    fn stamps(&mut self, source: &Source) -> Stamps {
        Clock { hertz: source.hertz, silence: source.silence }.stamps(&self.episodes, &mut self.random)
    }

    /// Records a signal, aligns it linearly and compares it with the signal at the targets.
    /// `rounding` is that of one operation in the stream's type.
    fn smooth<T: Element + Default>(
        &mut self,
        source: &Source,
        signal: &Signal,
        rounding: f64,
        from_f64: fn(f64) -> T,
        to_f64: fn(T) -> f64,
    ) -> Result<(Stream<T>, StreamReport)> {
        let stamps = self.stamps(source);
        let step = stamps.largest_step(MAX_GAP);
        // Rounding of the sample, the weight (twice) and the blend.
        let bound = step * step / 8.0 * signal.largest_curvature() + 4.0 * rounding * signal.largest();
        let mut exact = vec![0.0; signal.width()];
        let stream = Stream::new(stamps, signal.width(), |episode, _, stamp, row| {
            signal.at(self.episodes.seconds(episode, stamp), &mut exact);
            row.iter_mut().zip(&exact).for_each(|(value, exact)| *value = from_f64(*exact));
        });
        let aligned = align(&stream, &self.targets, Method::Linear)?;
        let results = (aligned.out.as_slice()?, aligned.valid.as_slice()?);
        let comparison = compare(&stream, &self.targets, Method::Linear, results, |episode, target, _, row| {
            self.error(signal, episode, target, row, to_f64)
        });
        let report = self.report(source, &stream, Method::Linear, &aligned, &comparison, bound);
        Ok((stream, report))
    }

    /// Records, aligns with a method that copies samples and compares with the right sample.
    fn copied<T: Element + Default>(
        &mut self,
        source: &Source,
        method: Method,
        to_f64: fn(T) -> f64,
        sample: impl Fn(f64, usize) -> T,
    ) -> Result<StreamReport> {
        let stamps = self.stamps(source);
        let stream = Stream::new(stamps, 1, |episode, index, stamp, row| {
            row.fill(sample(self.episodes.seconds(episode, stamp), index));
        });
        let aligned = align(&stream, &self.targets, method)?;
        let results = (aligned.out.as_slice()?, aligned.valid.as_slice()?);
        let comparison = compare(&stream, &self.targets, method, results, |episode, _, index, row| {
            let pairs = row.iter().zip(stream.sample(episode, index));
            largest(pairs.map(|(value, sample)| to_f64(*value) - to_f64(*sample)))
        });
        Ok(self.report(source, &stream, method, &aligned, &comparison, 0.0))
    }

    /// The largest difference of a row from the signal.
    fn error<T: Copy>(&self, signal: &Signal, episode: usize, target: i64, row: &[T], to_f64: fn(T) -> f64) -> f64 {
        let mut exact = [0.0; 8];
        signal.at(self.episodes.seconds(episode, target), &mut exact);
        largest(row.iter().zip(&exact).map(|(value, exact)| to_f64(*value) - exact))
    }

    fn report<T: Element>(
        &self,
        source: &Source,
        stream: &Stream<T>,
        method: Method,
        aligned: &Aligned,
        comparison: &Comparison,
        bound: f64,
    ) -> StreamReport {
        let targets = self.targets.count();
        let row_bytes = stream.width * size_of::<T>();
        let stamp_bytes = size_of::<i64>();
        let bytes = comparison.touched * row_bytes
            + stream.stamps.count() * stamp_bytes
            + targets * (stamp_bytes + row_bytes + size_of::<bool>());
        StreamReport {
            name: source.name,
            what: source.what,
            dtype: T::DTYPE.name(),
            width: stream.width,
            rate_hz: source.hertz,
            samples: stream.stamps.count(),
            method: method.to_string(),
            valid: comparison.valid,
            valid_fraction: comparison.valid as f64 / targets as f64,
            wrong_valid: comparison.wrong_valid,
            max_error: comparison.max_error,
            bound,
            ok: comparison.max_error <= bound && comparison.wrong_valid == 0,
            timing: Timing {
                seconds: aligned.seconds,
                values_per_second: (targets * stream.width) as f64 / aligned.seconds,
                bytes_per_second: bytes as f64 / aligned.seconds,
            },
        }
    }

    /// What happens to stamps that were cast to float32 seconds since 1970, as many scripts do.
    fn float32_stamps(&self, stream: &Stream<f32>, signal: &Signal) -> Result<Float32Stamps> {
        let cast = |stamps: &Stamps| stamps.flat.iter().map(|stamp| (*stamp as f64 * 1e-9) as f32).collect::<Vec<_>>();
        let (times, wanted) = (cast(&stream.stamps), cast(&self.targets));
        let times = rectangle(&times, &stream.stamps)?;
        let mut op = arguments(stream, &self.targets, times, rectangle(&wanted, &self.targets)?)?;
        let refusal = robocache::run(&op).err().map(|error| error.to_string());
        op.check = false;
        let results = robocache::run(&op)?;
        let [out, valid] = &results[..] else {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} results, expected 2", results.len())));
        };
        let results = (out.as_slice()?, valid.as_slice()?);
        let comparison = compare(stream, &self.targets, Method::Linear, results, |episode, target, _, row| {
            self.error(signal, episode, target, row, f64::from)
        });
        let max_error = comparison.max_error;
        Ok(Float32Stamps { stream: "joints", refusal, unchecked_max_error: max_error, unit: "rad" })
    }
}

/// The largest size of the differences; NaN when one is.
fn largest(differences: impl Iterator<Item = f64>) -> f64 {
    differences.map(f64::abs).fold(0.0, |most, next| if next <= most || most.is_nan() { most } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Outcome, Report, Style};

    #[test]
    fn a_wrong_stream_is_a_finding() {
        let mut story = run(&Options { seconds: 1.0, hertz: 20.0 }).unwrap();
        assert_eq!(story.outcome(), Outcome::Fine);
        story.streams[1].ok = false;
        story.ok = false;
        assert_eq!(story.outcome(), Outcome::Findings);
        let text = story.text(Style::PLAIN);
        assert!(text.contains("WRONG") && text.trim_end().ends_with("but these are wrong: force."), "{text}");
    }

    #[test]
    fn the_largest_difference_keeps_nan() {
        assert_eq!(largest([1.0, -3.0, 2.0].into_iter()), 3.0);
        assert!(largest([1.0, f64::NAN, 2.0].into_iter()).is_nan());
        assert_eq!(largest([].into_iter()), 0.0);
    }
}
