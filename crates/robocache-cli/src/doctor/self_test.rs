//! Small cases with answers worked out by hand, for any device that can run an op.

use std::fmt::Display;
use std::time::Instant;

use half::{bf16, f16};
use robocache::ops::Resample;
use robocache::ops::resample::Method;
use robocache::{DType, Element, ErrorKind, Result, Tensor};
use serde::Serialize;

/// Stamps and targets in steps of 1/512 s, which all types of stamps hold exactly, also at
/// today's date. The targets: before all, on a stamp, a quarter, half and three quarters of a
/// step on, on a stamp, in the middle of the gap, after all.
const STAMPS: [i64; 4] = [0, 4, 8, 24];
const TARGETS: [i64; 8] = [-2, 0, 1, 2, 3, 8, 16, 30];
/// 10 ms: the first steps are shorter, the last is longer.
const MAX_GAP: f64 = 0.010;
const VALID: [bool; 8] = [false, true, true, true, true, true, false, false];

/// Two signals; every dtype holds them and all answers exactly.
const SIGNALS: [[f32; 4]; 2] = [[0.0, 8.0, 16.0, 32.0], [16.0, 0.0, 64.0, 128.0]];
const ANSWERS: [(Method, [[f32; 8]; 2]); 4] = [
    (Method::Linear, [[0.0, 0.0, 2.0, 4.0, 6.0, 16.0, 24.0, 32.0], [16.0, 16.0, 12.0, 8.0, 4.0, 64.0, 96.0, 128.0]]),
    (Method::Nearest, [[0.0, 0.0, 0.0, 0.0, 8.0, 16.0, 16.0, 32.0], [16.0, 16.0, 16.0, 16.0, 0.0, 64.0, 64.0, 128.0]]),
    (
        Method::Previous,
        [[0.0, 0.0, 0.0, 0.0, 0.0, 16.0, 16.0, 32.0], [16.0, 16.0, 16.0, 16.0, 16.0, 64.0, 64.0, 128.0]],
    ),
    (Method::Next, [[0.0, 0.0, 8.0, 8.0, 8.0, 16.0, 32.0, 32.0], [16.0, 16.0, 0.0, 0.0, 0.0, 64.0, 128.0, 128.0]]),
];

/// Columns, so that vector loops run with and without a rest.
const WIDTH: usize = 19;
/// Rows: one for the calling thread, many for all of them.
const BATCHES: [usize; 2] = [1, 512];
const STAMP_TYPES: [DType; 3] = [DType::I64, DType::F64, DType::F32];

#[derive(Debug, Serialize)]
pub(super) struct SelfTest {
    pub(super) cases: usize,
    /// What was wrong, one line per case.
    pub(super) failures: Vec<String>,
    pub(super) seconds: f64,
}

/// Runs all cases through `compute`, which runs an op on a device and brings the results back.
pub(super) fn run(compute: impl Fn(&Resample<'_>) -> Result<Vec<Tensor>>) -> SelfTest {
    let started = Instant::now();
    let mut cases = Cases { compute, ran: 0, failures: Vec::new() };
    cases.of(|value| value);
    cases.of(f64::from);
    cases.of(f16::from_f32);
    cases.of(bf16::from_f32);
    cases.of(|value| value as u8);
    cases.of(|value| value as i64);
    cases.refusal();
    SelfTest { cases: cases.ran, failures: cases.failures, seconds: started.elapsed().as_secs_f64() }
}

struct Cases<C> {
    compute: C,
    ran: usize,
    failures: Vec<String>,
}

impl<C: Fn(&Resample<'_>) -> Result<Vec<Tensor>>> Cases<C> {
    /// Every method, type of stamps and batch for one dtype.
    fn of<T: Element + PartialEq + Display>(&mut self, convert: impl Fn(f32) -> T) {
        for (method, answers) in &ANSWERS {
            if *method == Method::Linear && !T::DTYPE.is_float() {
                continue;
            }
            for stamps in STAMP_TYPES {
                for rows in BATCHES {
                    self.ran += 1;
                    if let Err(what) = self.case(*method, stamps, rows, &convert, answers) {
                        let case = format!("{method} of {} with {stamps} stamps, batch of {rows}", T::DTYPE);
                        self.failures.push(format!("{case}: {what}"));
                    }
                }
            }
        }
    }

    fn case<T: Element + PartialEq + Display>(
        &self,
        method: Method,
        stamp_type: DType,
        rows: usize,
        convert: &impl Fn(f32) -> T,
        answers: &[[f32; 8]; 2],
    ) -> Result<(), String> {
        let text = |error: robocache::Error| error.to_string();
        let values = Tensor::from_slice(&interleave(&SIGNALS, convert), &[STAMPS.len(), WIDTH]).map_err(text)?;
        let times = stamps(&STAMPS, 1, stamp_type).map_err(text)?;
        let targets = stamps(&TARGETS, rows, stamp_type).map_err(text)?;
        let mut op = Resample::new(values.view(), times.view(), targets.view());
        (op.method, op.max_gap, op.return_valid) = (method.into(), Some(MAX_GAP), true);
        let results = (self.compute)(&op).map_err(text)?;
        let [out, valid] = &results[..] else {
            return Err(format!("{} results, expected 2", results.len()));
        };
        compare("out", out.as_slice().map_err(text)?, &interleave(answers, convert), rows)?;
        compare("valid", valid.as_slice().map_err(text)?, &VALID, rows)
    }

    /// Stamps that run backwards must be refused by name.
    fn refusal(&mut self) {
        self.ran += 1;
        let refused = || {
            let (values, times, targets) = ([0.0f32; 2], [2i64, 1], [1i64]);
            let values = Tensor::from_slice(&values, &[2, 1])?;
            let times = Tensor::from_slice(&times, &[2])?;
            let targets = Tensor::from_slice(&targets, &[1])?;
            (self.compute)(&Resample::new(values.view(), times.view(), targets.view()))
        };
        let what = match refused() {
            Err(error) if error.kind() == ErrorKind::InvalidArgument && error.argument_name() == Some("times") => {
                return;
            }
            Err(error) => error.to_string(),
            Ok(_) => "accepted".to_owned(),
        };
        self.failures.push(format!("stamps that run backwards: {what}"));
    }
}

/// Two signals as rows of [`WIDTH`] columns, in turns.
fn interleave<T, const N: usize>(signals: &[[f32; N]; 2], convert: &impl Fn(f32) -> T) -> Vec<T> {
    (0..N * WIDTH).map(|index| convert(signals[index % WIDTH % 2][index / WIDTH])).collect()
}

/// Steps of 1/512 s from today on, as float32 from 0 on, repeated in every row.
fn stamps(steps: &[i64], rows: usize, dtype: DType) -> Result<Tensor> {
    const STEP_NS: i64 = 1_953_125;
    let today = 1_760_000_000i64;
    let shape = [rows, steps.len()];
    // One row stays without a batch axis, so that both forms are tried.
    let shape = if rows == 1 { &shape[1..] } else { &shape[..] };
    let all = steps.repeat(rows);
    let seconds = |step: &i64| *step as f64 / 512.0;
    match dtype {
        DType::I64 => {
            let stamps: Vec<_> = all.iter().map(|step| today * 1_000_000_000 + step * STEP_NS).collect();
            Tensor::from_slice(&stamps, shape)
        }
        DType::F64 => {
            let stamps: Vec<_> = all.iter().map(|step| today as f64 + seconds(step)).collect();
            Tensor::from_slice(&stamps, shape)
        }
        _ => {
            let stamps: Vec<_> = all.iter().map(|step| seconds(step) as f32).collect();
            Tensor::from_slice(&stamps, shape)
        }
    }
}

/// Compares each of `rows` rows with what every row must be.
fn compare<T: PartialEq + Display>(name: &str, found: &[T], expected: &[T], rows: usize) -> Result<(), String> {
    if found.len() != rows * expected.len() {
        return Err(format!("{name} has {} values, expected {}", found.len(), rows * expected.len()));
    }
    let expected = expected.iter().cycle();
    match found.iter().zip(expected).enumerate().find(|(_, (found, expected))| found != expected) {
        Some((index, (found, expected))) => Err(format!("{name} is {found} at index {index}, expected {expected}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_computes_right() {
        let test = run(|op| robocache::run(op));
        assert_eq!(test.failures, [""; 0]);
        // 4 float dtypes x 4 methods and 2 integers x 3, for 3 stamps and 2 batches; one refusal.
        assert_eq!(test.cases, (4 * 4 + 2 * 3) * 3 * 2 + 1);
    }

    #[test]
    fn a_device_that_computes_wrong_is_found() {
        let zeros = |op: &Resample<'_>| {
            let specs = robocache::prepare(op, &robocache::Context::default())?;
            specs.outputs().iter().map(|spec| Tensor::zeros(spec.layout.shape(), spec.dtype)).collect()
        };
        let test = run(zeros);
        assert_eq!(test.failures.len(), test.cases);
        let expected = "linear of float32 with int64 stamps, batch of 1: out is 0 at index 1, expected 16";
        assert_eq!(test.failures[0], expected);
        assert_eq!(test.failures[test.cases - 1], "stamps that run backwards: accepted");
    }

    #[test]
    fn a_device_that_fails_is_found() {
        let broken = |_: &Resample<'_>| Err(robocache::Error::new(ErrorKind::DeviceLost, "gone"));
        let test = run(broken);
        assert_eq!(test.failures.len(), test.cases);
        assert!(test.failures[0].ends_with(": gone"));
    }
}
