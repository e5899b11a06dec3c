//! The gradient of `resample`: against the forward call itself, which is linear in its values, on
//! ragged rows with duplicates, targets in and out of order, and values that a batch shares.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use half::bf16;
use robocache::ops::resample::{ColumnRange, Extrapolate, Method, Methods};
use robocache::ops::{Resample, ResampleBackward};
use robocache::{Element, Tensor, run};

/// A small generator: the tests need variety, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below
    }

    fn number(&mut self) -> f64 {
        (self.next(2001) as f64 - 1000.0) / 256.0
    }
}

struct Case {
    batch: usize,
    shared: bool,
    samples: usize,
    targets: usize,
    width: usize,
    times: Tensor,
    wanted: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    method: Method,
    extrapolate: Extrapolate,
}

impl Case {
    fn new(random: &mut Random) -> Self {
        let (batch, samples, targets) = (1 + random.next(4), 1 + random.next(90), random.next(120));
        let width = [1, 2, 3, 17, 500][random.next(5)];
        let method = [Method::Linear, Method::Nearest, Method::Previous, Method::Next][random.next(4)];
        let extrapolate = match random.next(3) {
            0 if method == Method::Linear => Extrapolate::Linear,
            1 => Extrapolate::Nan,
            _ => Extrapolate::Clamp,
        };
        let mut times = Vec::new();
        let mut wanted = Vec::new();
        for _ in 0..batch {
            let mut now = 0;
            times.extend((0..samples).map(|_| {
                now += [0, 0, 1, 2, 5, 30][random.next(6)];
                now as i64
            }));
            let mut row: Vec<i64> = (0..targets).map(|_| random.next(now + 20) as i64 - 10).collect();
            if random.next(3) > 0 {
                row.sort_unstable();
            }
            wanted.extend(row);
        }
        let most = |random: &mut Random, most: usize| {
            let lengths: Vec<i64> = (0..batch)
                .map(|_| if random.next(3) > 0 { most as i64 } else { random.next(most + 1) as i64 })
                .collect();
            Tensor::from_slice(&lengths, &[batch]).unwrap()
        };
        Self {
            batch,
            shared: random.next(3) == 0,
            samples,
            targets,
            width,
            times: Tensor::from_slice(&times, &[batch, samples]).unwrap(),
            wanted: Tensor::from_slice(&wanted, &[batch, targets]).unwrap(),
            lengths: most(random, samples),
            target_lengths: most(random, targets),
            method,
            extrapolate,
        }
    }

    fn value_shape(&self) -> [usize; 3] {
        [if self.shared { 1 } else { self.batch }, self.samples, self.width]
    }

    fn forward<'a>(&'a self, values: &'a Tensor) -> Resample<'a> {
        Resample {
            method: self.method.into(),
            extrapolate: self.extrapolate,
            lengths: Some(self.lengths.view()),
            target_lengths: Some(self.target_lengths.view()),
            ..Resample::new(values.view(), self.times.view(), self.wanted.view())
        }
    }

    fn backward(&self, values: &Tensor, grad: &Tensor) -> Tensor {
        run(&ResampleBackward { forward: self.forward(values), grad: grad.view() }).unwrap().swap_remove(0)
    }

    fn random<T: Element>(&self, random: &mut Random, shape: [usize; 3], from: impl Fn(f64) -> T) -> Tensor {
        let numbers: Vec<T> = (0..shape.iter().product()).map(|_| from(random.number())).collect();
        Tensor::from_slice(&numbers, &shape).unwrap()
    }
}

#[test]
fn it_is_the_adjoint_of_the_call() {
    let mut random = Random(7);
    for _ in 0..300 {
        let case = Case::new(&mut random);
        let values = case.random(&mut random, case.value_shape(), |x| x);
        let grad = case.random(&mut random, [case.batch, case.targets, case.width], |x| x);
        let got = case.backward(&values, &grad);
        assert_eq!(got.shape(), case.value_shape());
        // What every target makes of one sample alone: one column is enough.
        let narrow = Case { width: 1, ..case };
        let [rows, samples, _] = narrow.value_shape();
        for sample in 0..samples {
            let unit: Vec<f64> = (0..rows * samples).map(|i| f64::from(u8::from(i % samples == sample))).collect();
            let unit = Tensor::from_slice(&unit, &[rows, samples, 1]).unwrap();
            let made = run(&narrow.forward(&unit)).unwrap().swap_remove(0);
            let (made, grad) = (made.as_slice::<f64>().unwrap(), grad.as_slice::<f64>().unwrap());
            let width = got.shape()[2];
            for row in 0..rows {
                for column in [0, width - 1] {
                    let mut want = 0.0;
                    for (index, weight) in made.iter().enumerate() {
                        let same_row = narrow.shared || index / narrow.targets == row;
                        if same_row && !weight.is_nan() {
                            want += weight * grad[index * width + column];
                        }
                    }
                    let have = got.as_slice::<f64>().unwrap()[(row * samples + sample) * width + column];
                    assert!((have - want).abs() < 1e-9, "{have} {want}, sample {sample} of row {row}");
                }
            }
        }
    }
}

#[test]
fn half_floats_are_summed_in_f32_and_rounded_once() {
    let mut random = Random(8);
    for _ in 0..100 {
        let case = Case::new(&mut random);
        let values = case.random(&mut random, case.value_shape(), bf16::from_f64);
        let grad = case.random(&mut random, [case.batch, case.targets, case.width], bf16::from_f64);
        let widened = |tensor: &Tensor| {
            let numbers: Vec<f32> = tensor.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f32()).collect();
            Tensor::from_slice(&numbers, tensor.shape()).unwrap()
        };
        let got = case.backward(&values, &grad);
        let want = case.backward(&widened(&values), &widened(&grad));
        let want: Vec<bf16> = want.as_slice::<f32>().unwrap().iter().map(|&x| bf16::from_f32(x)).collect();
        assert_eq!(got.as_slice::<bf16>().unwrap(), want);
    }
}

/// Columns of every method, on rows with duplicates and targets in and out of order.
#[test]
fn methods_that_are_not_linear_agree_with_differences() {
    let ranges = [(Method::Cubic, 0, 2), (Method::Slerp, 2, 6), (Method::Rot6d, 6, 12), (Method::Angle, 12, 13)];
    let ranges: Vec<_> = ranges.iter().map(|&(method, start, end)| ColumnRange { method, start, end }).collect();
    let mut random = Random(9);
    for _ in 0..60 {
        let case = Case { width: 13, extrapolate: Extrapolate::Clamp, ..Case::new(&mut random) };
        let shape = case.value_shape();
        let values = case.random(&mut random, shape, |x| x);
        let grad = case.random(&mut random, [case.batch, case.targets, 13], |x| x);
        let forward = |values: &Tensor| {
            let op = Resample { method: Methods::Ranges(ranges.clone()), ..case.forward(values) };
            let made = run(&op).unwrap().swap_remove(0);
            let made = made.as_slice::<f64>().unwrap().iter().zip(grad.as_slice::<f64>().unwrap());
            made.filter(|(x, _)| !x.is_nan()).map(|(x, g)| x * g).sum::<f64>()
        };
        let op = Resample { method: Methods::Ranges(ranges.clone()), ..case.forward(&values) };
        let got = run(&ResampleBackward { forward: op, grad: grad.view() }).unwrap().swap_remove(0);
        let got = got.as_slice::<f64>().unwrap();
        for _ in 0..20 {
            let at = random.next(got.len());
            let moved = |step: f64| {
                let mut numbers = values.as_slice::<f64>().unwrap().to_vec();
                numbers[at] += step;
                forward(&Tensor::from_slice(&numbers, &shape).unwrap())
            };
            // Both sides agree unless a slope is bent or an angle wraps just here.
            let (left, right) = ((moved(0.0) - moved(-1e-6)) / 1e-6, (moved(1e-6) - moved(0.0)) / 1e-6);
            if (left - right).abs() < 1e-2 * (1.0 + left.abs()) {
                let want = (left + right) / 2.0;
                assert!((got[at] - want).abs() < 1e-2 * (1.0 + want.abs()), "{} {want} at {at}", got[at]);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let values = Tensor::zeros(&[2, 3, 4], robocache::DType::F32).unwrap();
    let times = Tensor::from_slice(&[0i64, 1, 2], &[3]).unwrap();
    let refuse = |grad: Tensor| {
        let forward = Resample::new(values.view(), times.view(), times.view());
        run(&ResampleBackward { forward, grad: grad.view() }).unwrap_err().to_string()
    };
    let text = refuse(Tensor::zeros(&[2, 3, 5], robocache::DType::F32).unwrap());
    assert!(text.contains("resample_backward: grad: expected shape [2, 3, 4], got [2, 3, 5]"), "{text}");
    let text = refuse(Tensor::zeros(&[2, 3, 4], robocache::DType::F64).unwrap());
    assert!(text.contains("grad: expected float32 like values, got float64"), "{text}");
    let whole = Tensor::zeros(&[2, 3, 4], robocache::DType::I32).unwrap();
    let forward = Resample { method: Method::Next.into(), ..Resample::new(whole.view(), times.view(), times.view()) };
    let text = run(&ResampleBackward { forward, grad: whole.view() }).unwrap_err().to_string();
    assert!(text.contains("only floats have a gradient"), "{text}");
}
