//! Properties that hold for any input, and an independent, slow reference.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use robocache::ops::Resample;
use robocache::ops::resample::{Extrapolate, Method};
use robocache::{DType, Device, Layout, TensorRef, run};

const METHODS: [Method; 4] = [Method::Linear, Method::Nearest, Method::Previous, Method::Next];

/// Stamps with duplicates, values and targets on, between and outside the stamps.
fn recording() -> impl Strategy<Value = (Vec<i64>, Vec<f64>, Vec<i64>)> {
    let origin = prop_oneof![Just(0i64), Just(1_760_000_000_000_000_000), Just(i64::MIN), Just(-5)];
    (origin, prop::collection::vec(0i64..4, 1..40)).prop_flat_map(|(origin, steps)| {
        let stamps: Vec<i64> = steps
            .iter()
            .scan(origin, |at, step| {
                *at += step;
                Some(*at)
            })
            .collect();
        let (low, high) = (origin.saturating_sub(3), stamps[stamps.len() - 1].saturating_add(3));
        let values = prop::collection::vec(-1e3f64..1e3, stamps.len());
        (Just(stamps), values, prop::collection::vec(low..=high, 0..30))
    })
}

fn resample(values: &[f64], stamps: &[i64], targets: &[i64], method: Method) -> Vec<f64> {
    let op = Resample {
        method: method.into(),
        ..Resample::new(
            TensorRef::from_slice(values, &[values.len(), 1]).unwrap(),
            TensorRef::from_slice(stamps, &[stamps.len()]).unwrap(),
            TensorRef::from_slice(targets, &[targets.len()]).unwrap(),
        )
    };
    run(&op).unwrap()[0].as_slice::<f64>().unwrap().to_vec()
}

/// The rules again, by looking at every sample, in 128-bit integers.
fn reference(values: &[f64], stamps: &[i64], target: i64, method: Method) -> f64 {
    let kept: Vec<(i128, f64)> = (0..stamps.len())
        .filter(|&i| i + 1 == stamps.len() || stamps[i + 1] != stamps[i])
        .map(|i| (i128::from(stamps[i]), values[i]))
        .collect();
    let target = i128::from(target);
    let before = kept.iter().rev().find(|(stamp, _)| *stamp <= target);
    let after = kept.iter().find(|(stamp, _)| *stamp >= target);
    match (before, after) {
        (Some(&(t0, v0)), Some(&(t1, v1))) if t0 != t1 => match method {
            Method::Linear => v0 + (v1 - v0) * ((target - t0) as f64 / (t1 - t0) as f64),
            Method::Previous => v0,
            Method::Next => v1,
            Method::Nearest => {
                if target - t0 <= t1 - target {
                    v0
                } else {
                    v1
                }
            }
            _ => unreachable!("not among METHODS"),
        },
        (Some(&(_, value)), _) | (None, Some(&(_, value))) => value,
        (None, None) => unreachable!("a recording has a sample"),
    }
}

/// As many cases as proptest tries itself, scaled by `ROBOCACHE_TEST_SCALE`.
fn scaled() -> ProptestConfig {
    let scale = std::env::var("ROBOCACHE_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let config = ProptestConfig::default();
    let cases = (f64::from(config.cases) * scale).max(1.0) as u32;
    ProptestConfig { cases, max_global_rejects: cases.saturating_mul(4), ..config }
}

proptest! {
    #![proptest_config(scaled())]

    #[test]
    fn equals_the_reference((stamps, values, targets) in recording()) {
        for method in METHODS {
            for (&target, got) in targets.iter().zip(resample(&values, &stamps, &targets, method)) {
                let expected = reference(&values, &stamps, target, method);
                prop_assert!((got - expected).abs() <= 1e-12 * 1e3, "{method} at {target}: {got} != {expected}");
            }
        }
    }

    #[test]
    fn the_order_of_targets_does_not_matter((stamps, values, targets) in recording()) {
        let reversed: Vec<i64> = targets.iter().rev().copied().collect();
        for method in METHODS {
            let mut backwards = resample(&values, &stamps, &reversed, method);
            backwards.reverse();
            prop_assert_eq!(resample(&values, &stamps, &targets, method), backwards);
        }
    }

    #[test]
    fn constant_in_constant_out((stamps, _, targets) in recording(), constant in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
        let values = vec![constant; stamps.len()];
        for method in METHODS {
            prop_assert!(resample(&values, &stamps, &targets, method).iter().all(|&value| value == constant));
        }
    }

    #[test]
    fn a_strided_view_equals_its_copy((stamps, values, targets) in recording(), step in 1usize..4) {
        // Every step-th element, backwards: strides of -step for stamps and values alike.
        let spread = |column: &[f64]| column.iter().rev().flat_map(|&x| std::iter::repeat_n(x, step)).collect::<Vec<_>>();
        let (samples, wide) = (stamps.len(), spread(&values));
        let wide_stamps: Vec<i64> = stamps.iter().rev().flat_map(|&x| std::iter::repeat_n(x, step)).collect();
        let (length, stride) = (samples as i64, -(step as i64));
        let last = (samples - 1) * step;
        // SAFETY: the last element, then `samples - 1` steps back, inside the vectors.
        let (value_view, stamp_view) = unsafe {
            (
                TensorRef::from_raw(wide[last..].as_ptr().cast(), DType::F64, Device::Cpu,
                    Layout::strided(&[length, 1], Some(&[stride, 7]), DType::F64).unwrap()).unwrap(),
                TensorRef::from_raw(wide_stamps[last..].as_ptr().cast(), DType::I64, Device::Cpu,
                    Layout::strided(&[length], Some(&[stride]), DType::I64).unwrap()).unwrap(),
            )
        };
        for method in METHODS {
            let target_view = TensorRef::from_slice(&targets, &[targets.len()]).unwrap();
            let op = Resample { method: method.into(), ..Resample::new(value_view, stamp_view, target_view) };
            let viewed = run(&op).unwrap()[0].as_slice::<f64>().unwrap().to_vec();
            prop_assert_eq!(viewed, resample(&values, &stamps, &targets, method));
        }
    }

    #[test]
    fn unchecked_garbage_is_survived(
        stamps in prop::collection::vec(prop::sample::select(&[f64::NAN, 0.0, 1.0, 2.0, 3.0][..]), 1..40),
        targets in prop::collection::vec(-1.0f64..4.0, 0..20),
        length in any::<i64>(),
        method in prop::sample::select(&METHODS[..]),
        extrapolate in prop::sample::select(&[Extrapolate::Clamp, Extrapolate::Nan, Extrapolate::Error, Extrapolate::Linear][..]),
    ) {
        prop_assume!(extrapolate != Extrapolate::Linear || method == Method::Linear);
        let values = vec![1.0f32; stamps.len()];
        let lengths = [length];
        let op = Resample {
            method: method.into(), extrapolate, check: false, return_valid: true, max_gap: Some(0.1),
            lengths: Some(TensorRef::from_slice(&lengths, &[1]).unwrap()),
            ..Resample::new(
                TensorRef::from_slice(&values, &[stamps.len(), 1]).unwrap(),
                TensorRef::from_slice(&stamps, &[stamps.len()]).unwrap(),
                TensorRef::from_slice(&targets, &[targets.len()]).unwrap(),
            )
        };
        let out = run(&op).unwrap();
        prop_assert!(out[0].as_slice::<f32>().unwrap().iter().all(|x| *x == 1.0 || x.is_nan()));
    }
}

/// Large enough for several tasks on several threads, against the same rows one by one.
#[test]
fn many_rows_in_parallel_equal_one_by_one() {
    let (batch, samples, targets, width) = (37, 211, 503, 19);
    let values: Vec<f32> = (0..batch * samples * width).map(|i| ((i * 2_654_435_761) % 10_007) as f32 * 0.1).collect();
    let stamps: Vec<i64> = (0..batch * samples).map(|i| ((i % samples) * 1000 + i % 7) as i64).collect();
    let wanted: Vec<i64> = (0..batch * targets).map(|i| ((i * 7919) % (samples * 1000)) as i64).collect();
    let view = |b: usize, n: usize| {
        Resample::new(
            TensorRef::from_slice(&values[b * samples * width..][..n * samples * width], &[n, samples, width]).unwrap(),
            TensorRef::from_slice(&stamps[b * samples..][..n * samples], &[n, samples]).unwrap(),
            TensorRef::from_slice(&wanted[b * targets..][..n * targets], &[n, targets]).unwrap(),
        )
    };
    let all = run(&view(0, batch)).unwrap();
    let all = all[0].as_slice::<f32>().unwrap();
    for row in 0..batch {
        let one = run(&view(row, 1)).unwrap();
        assert_eq!(one[0].as_slice::<f32>().unwrap(), &all[row * targets * width..][..targets * width], "row {row}");
    }
}
