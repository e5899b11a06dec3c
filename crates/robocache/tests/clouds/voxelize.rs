//! Dense grids.

use std::collections::BTreeMap;

use half::{bf16, f16};
use robocache::ops::voxelize::{Grid, Reduce};
use robocache::ops::{Number, Voxelize};
use robocache::{DType, Tensor, run};

use crate::harness::{OnGpu, Random, SHAPES, Shape, assert_same, floats, numbers, points, run_on, some_gpu};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const COUNTS: [usize; 11] = [0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097];
const REDUCES: [Reduce; 6] = [Reduce::Occupancy, Reduce::Count, Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min];

fn grid() -> Grid {
    Grid { origin: [0.0, -0.125, 0.5], voxel_size: [0.25, 0.3, 0.5], shape: [16, 13, 7] }
}

/// A cloud with all that `voxelize` can take.
struct Case {
    points: Tensor,
    features: Tensor,
    lengths: Tensor,
    width: usize,
    text: String,
}

impl Case {
    fn new(seed: u64, shape: Shape, batch: usize, count: usize, width: usize, kinds: (DType, DType)) -> Self {
        let mut random = Random::new(seed);
        let coordinates = points(&mut random, shape, batch * count);
        let values: Vec<_> = (0..batch * count * width)
            .map(|_| match random.below(500) {
                0 => f64::NAN,
                1 => -0.0,
                2 => 0.0,
                3 => 6e4,
                _ => random.part() * 8.0 - 6.0,
            })
            .collect();
        let lengths: Vec<_> = (0..batch).map(|_| random.below(count as u64 + 1) as i64).collect();
        Self {
            points: floats(&coordinates, &[batch, count, 3], kinds.0),
            features: floats(&values, &[batch, count, width], kinds.1),
            lengths: Tensor::from_slice(&lengths, &[batch]).unwrap(),
            width,
            text: format!("{shape:?} {batch}x{count}x{width} {kinds:?}"),
        }
    }

    fn op(&self, reduce: Reduce, ragged: bool) -> Voxelize<'_> {
        Voxelize {
            features: reduce.uses_features().then(|| self.features.view()),
            reduce,
            lengths: ragged.then(|| self.lengths.view()),
            fill: Number::Whole(-1),
            dtype: (reduce == Reduce::Occupancy).then_some(DType::F32),
            return_counts: true,
            return_dropped: true,
            ..Voxelize::new(self.points.view(), grid())
        }
    }

    /// Cell by cell, in the words of the contract: grid, counts and dropped.
    fn oracle(&self, reduce: Reduce, ragged: bool) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let grid = grid();
        let single = self.points.dtype() != DType::F64;
        let round = |x: f64| if single { f64::from(x as f32) } else { x };
        let [x, y, z] = grid.shape;
        let (batch, count) = (self.points.shape()[0], self.points.shape()[1]);
        let (coordinates, features, lengths) = (numbers(&self.points), numbers(&self.features), numbers(&self.lengths));
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut dropped = vec![0.0; batch];
        for point in 0..batch * count {
            let row = point / count;
            if ragged && point % count >= lengths[row] as usize {
                continue;
            }
            let place = |axis: usize| {
                let difference = round(coordinates[3 * point + axis] - round(grid.origin[axis]));
                round(difference / round(grid.voxel_size[axis])).floor()
            };
            let cell = [place(0), place(1), place(2)];
            if (0..3).all(|axis| cell[axis] >= 0.0 && cell[axis] < grid.shape[axis] as f64) {
                let [a, b, c] = cell.map(|x| x as usize);
                members.entry(((row * x + a) * y + b) * z + c).or_default().push(point);
            } else {
                dropped[row] += 1.0;
            }
        }
        let width = if reduce.uses_features() { self.width } else { 1 };
        let mut out = vec![-1.0; batch * x * y * z * width];
        let mut counts = vec![0.0; batch * x * y * z];
        for (cell, points) in members {
            counts[cell] = points.len() as f64;
            for column in 0..width {
                let values: Vec<f64> =
                    points.iter().map(|p| features.get(p * self.width + column).copied().unwrap_or(0.0)).collect();
                let sum: f64 = values.iter().sum();
                let nan = values.iter().any(|x| x.is_nan());
                out[cell * width + column] = match reduce {
                    Reduce::Occupancy => 1.0,
                    Reduce::Count => counts[cell],
                    Reduce::Sum => sum,
                    Reduce::Mean => sum / counts[cell],
                    _ if nan => f64::NAN,
                    Reduce::Max => values.iter().copied().max_by(f64::total_cmp).unwrap(),
                    Reduce::Min => values.iter().copied().min_by(f64::total_cmp).unwrap(),
                };
            }
        }
        (out, counts, dropped)
    }
}

fn assert_near(got: &[f64], want: &[f64], tolerance: f64, context: &str) {
    assert_eq!(got.len(), want.len(), "{context}");
    for (place, (a, b)) in got.iter().zip(want).enumerate() {
        let near = if tolerance == 0.0 {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        } else {
            (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * b.abs().max(50.0)
        };
        assert!(near, "at {place}: {a}, expected {b}: {context}");
    }
}

/// Rounds as the result's dtype does.
fn rounded(numbers: &[f64], dtype: DType) -> Vec<f64> {
    let round = |&x: &f64| match dtype {
        DType::F16 => f16::from_f32(x as f32).to_f64(),
        DType::BF16 => bf16::from_f32(x as f32).to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    };
    numbers.iter().map(round).collect()
}

#[test]
fn the_host_agrees_with_the_oracle() {
    let mut seed = 0;
    for shape in SHAPES {
        for kinds in
            [(DType::F32, DType::F32), (DType::F64, DType::F64), (DType::F16, DType::BF16), (DType::BF16, DType::F16)]
        {
            for (batch, count, width) in [(1, 0, 2), (2, 1, 1), (3, 17, 3), (2, 129, 40), (1, 4097, 2)] {
                let case = Case::new(seed, shape, batch, count, width, kinds);
                seed += 1;
                for reduce in REDUCES {
                    let ragged = seed % 2 == 0;
                    let context = format!("{reduce} {} ragged {ragged}", case.text);
                    let got = run(&case.op(reduce, ragged)).unwrap();
                    let (grid, counts, dropped) = case.oracle(reduce, ragged);
                    let exact = !matches!(reduce, Reduce::Sum | Reduce::Mean);
                    let tolerance = match (exact, got[0].dtype()) {
                        (true, _) => 0.0,
                        (false, DType::F64) => 1e-12,
                        (false, DType::F32) => 1e-6,
                        (false, DType::F16) => 1e-3,
                        _ => 8e-3,
                    };
                    assert_near(&numbers(&got[0]), &rounded(&grid, got[0].dtype()), tolerance, &context);
                    assert_near(&numbers(&got[1]), &counts, 0.0, &context);
                    assert_near(&numbers(&got[2]), &dropped, 0.0, &context);
                }
            }
        }
    }
}

#[test]
fn views_give_the_bits_of_their_copies() {
    // Features and points of a larger tensor, one element off, and with the rows apart.
    let case = Case::new(7, Shape::Uniform, 2, 300, 5, (DType::F32, DType::F32));
    let wide: Vec<f32> =
        case.features.as_slice::<f32>().unwrap().chunks(5).flat_map(|row| [&[9.0], row, &[7.0]].concat()).collect();
    for reduce in [Reduce::Sum, Reduce::Max] {
        let plain = run(&case.op(reduce, true)).unwrap();
        let layout = robocache::Layout::strided(&[2, 300, 5], Some(&[2100, 7, 1]), DType::F32).unwrap();
        // SAFETY: 2 x 300 rows of 7 numbers; the view starts at the second of them.
        let view = unsafe {
            robocache::TensorRef::from_raw(wide.as_ptr().add(1).cast(), DType::F32, robocache::Device::Cpu, layout)
        };
        let op = Voxelize { features: Some(view.unwrap()), ..case.op(reduce, true) };
        assert_same(&run(&op).unwrap(), &plain, "rows apart");
    }
}

fn on_gpu_as_on_host(case: &Case, change: impl Fn(&mut Voxelize<'_>), context: &str) {
    let Some(gpu) = some_gpu() else { return };
    let there = OnGpu::new(gpu, &[&case.points, &case.features, &case.lengths]);
    for reduce in REDUCES {
        for ragged in [false, true] {
            let mut op = case.op(reduce, ragged);
            change(&mut op);
            let want = run(&op).unwrap();
            let remote = Voxelize {
                points: there.view(0).into(),
                features: op.features.map(|_| there.view(1)),
                lengths: op.lengths.map(|_| there.view(2)),
                ..op
            };
            let context = format!("{reduce} {} ragged {ragged} {context}", case.text);
            assert_same(&run_on(gpu, &remote).unwrap(), &want, &context);
        }
    }
}

#[test]
fn a_gpu_gives_the_bits_of_the_host() {
    for (seed, shape) in (0u64..).zip(SHAPES) {
        for count in COUNTS {
            let case = Case::new(seed, shape, 2, count, 3, (DType::F32, DType::F32));
            on_gpu_as_on_host(&case, |_| {}, "");
        }
    }
}

#[test]
fn a_gpu_gives_the_bits_of_the_host_for_every_dtype() {
    for (seed, point) in (100u64..).zip(FLOATS) {
        for feature in FLOATS {
            let case = Case::new(seed, Shape::Uniform, 3, 700, 9, (point, feature));
            on_gpu_as_on_host(&case, |_| {}, "");
            for dtype in FLOATS {
                let change = |op: &mut Voxelize<'_>| op.dtype = (op.reduce != Reduce::Count).then_some(dtype);
                on_gpu_as_on_host(&case, change, &format!("as {dtype}"));
            }
        }
    }
}

#[test]
fn a_gpu_writes_what_was_asked_for() {
    let case = Case::new(5, Shape::Clustered, 2, 1500, 1, (DType::F32, DType::F32));
    for return_counts in [false, true] {
        for return_dropped in [false, true] {
            for fill in [0.0, 3.0] {
                let change = |op: &mut Voxelize<'_>| {
                    op.return_counts = return_counts;
                    op.return_dropped = return_dropped;
                    op.fill = fill.into();
                };
                on_gpu_as_on_host(
                    &case,
                    change,
                    &format!("counts {return_counts} dropped {return_dropped} fill {fill}"),
                );
            }
        }
    }
    for dtype in [DType::I32, DType::I64, DType::F32, DType::F64] {
        let change = |op: &mut Voxelize<'_>| {
            op.dtype = (!op.reduce.uses_features()).then_some(dtype);
            op.return_counts = false;
        };
        on_gpu_as_on_host(&case, change, &format!("as {dtype}"));
    }
}

#[test]
fn a_gpu_reduces_wide_features_and_crowded_cells() {
    for (count, width) in [(9000, 1), (5000, 16), (300, 257), (130, 512), (64, 8), (63, 8), (65, 300)] {
        for shape in [Shape::OneVoxel, Shape::Uniform] {
            let case = Case::new(count as u64, shape, 1, count, width, (DType::F32, DType::F32));
            on_gpu_as_on_host(&case, |_| {}, "");
        }
    }
}
