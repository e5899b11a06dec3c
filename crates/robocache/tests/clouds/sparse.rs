//! Occupied cells only.

use std::collections::BTreeMap;

use robocache::ops::voxelize::{GatherVoxels, Grid, GroupPoints, Reduce, VoxelizeBackward};
use robocache::{DType, ErrorKind, Tensor, TensorRef, run};

use crate::harness::{OnGpu, Random, SHAPES, Shape, assert_same, floats, numbers, points, run_on, some_gpu};

struct Case {
    points: Tensor,
    features: Tensor,
    lengths: Tensor,
    grid: Grid,
    text: String,
}

impl Case {
    fn new(
        seed: u64,
        shape: Shape,
        batch: usize,
        count: usize,
        width: usize,
        kinds: (DType, DType),
        grid: Grid,
    ) -> Self {
        let mut random = Random::new(seed);
        let values: Vec<_> = (0..batch * count * width).map(|_| random.part() * 8.0 - 6.0).collect();
        let lengths: Vec<_> = (0..batch).map(|_| random.below(count as u64 + 1) as i32).collect();
        Self {
            points: floats(&points(&mut random, shape, batch * count), &[batch, count, 3], kinds.0),
            features: floats(&values, &[batch, count, width], kinds.1),
            lengths: Tensor::from_slice(&lengths, &[batch]).unwrap(),
            grid,
            text: format!("{shape:?} {batch}x{count}x{width} {kinds:?} {:?}", grid.shape),
        }
    }

    fn group(&self, max_voxels: Option<usize>) -> GroupPoints<'_> {
        let (points, lengths) = (self.points.view(), Some(self.lengths.view()));
        GroupPoints { points: points.into(), grid: self.grid, lengths, max_voxels, check: true }
    }
}

fn gather<'a>(
    points: TensorRef<'a>,
    features: TensorRef<'a>,
    grid: Grid,
    groups: [TensorRef<'a>; 4],
    rows: usize,
    reduce: Reduce,
) -> GatherVoxels<'a> {
    let [cells, starts, order, count] = groups;
    GatherVoxels {
        points: points.into(),
        features: Some(features),
        grid,
        reduce,
        dtype: None,
        max_points: Some(5),
        rows,
        cells,
        starts,
        order,
        count,
    }
}

fn small() -> Grid {
    Grid { origin: [0.0, -0.125, 0.5], voxel_size: [0.25, 0.3, 0.5], shape: [16, 13, 7] }
}

/// Cells that 64-bit keys are needed for: 2^20 along each axis.
fn huge() -> Grid {
    Grid { origin: [-1.0; 3], voxel_size: [1.0 / 65_536.0; 3], shape: [1 << 20; 3] }
}

#[test]
fn groups_and_rows_are_those_of_a_plain_map() {
    for (seed, shape) in (0u64..).zip(SHAPES) {
        // The last are more than one task.
        for (count, grid) in [
            (0, small()),
            (1, small()),
            (17, huge()),
            (700, small()),
            (4097, huge()),
            (40_000, small()),
            (40_000, huge()),
        ] {
            let case = Case::new(seed, shape, 3, count, 2, (DType::F32, DType::F32), grid);
            let groups = run(&case.group(None)).unwrap();
            let rows = numbers(&groups[5])[0] as usize;
            let (all, features, lengths) = (numbers(&case.points), numbers(&case.features), numbers(&case.lengths));
            let mut members: BTreeMap<[i64; 4], Vec<usize>> = BTreeMap::new();
            let mut inverse = vec![-1.0; 3 * count];
            let mut dropped = [0.0; 3];
            for point in 0..3 * count {
                let row = point / count;
                if (point % count) as f64 >= lengths[row] {
                    continue;
                }
                let cell: Vec<f64> = (0..3)
                    .map(|a| {
                        let difference = all[3 * point + a] as f32 - grid.origin[a] as f32;
                        f64::from((difference / grid.voxel_size[a] as f32).floor())
                    })
                    .collect();
                if (0..3).all(|a| cell[a] >= 0.0 && cell[a] < grid.shape[a] as f64) {
                    members
                        .entry([row as i64, cell[0] as i64, cell[1] as i64, cell[2] as i64])
                        .or_default()
                        .push(point);
                } else {
                    dropped[row] += 1.0;
                }
            }
            for (row, points) in members.values().enumerate() {
                points.iter().for_each(|&point| inverse[point] = row as f64);
            }
            assert_eq!(rows, members.len(), "{}", case.text);
            assert_eq!(numbers(&groups[3]), inverse, "{}", case.text);
            assert_eq!(numbers(&groups[4]), dropped, "{}", case.text);
            let [cells, starts, order, counted] = [0, 1, 2, 5].map(|index| groups[index].view());
            let op = gather(
                case.points.view(),
                case.features.view(),
                grid,
                [cells, starts, order, counted],
                rows,
                Reduce::Max,
            );
            let out = run(&op).unwrap();
            let (coords, counts, largest, voxels) =
                (numbers(&out[0]), numbers(&out[1]), numbers(&out[2]), numbers(&out[3]));
            for (row, (cell, points)) in members.iter().enumerate() {
                assert_eq!(coords[4 * row..][..4], cell.map(|x| x as f64), "{}", case.text);
                assert_eq!(counts[row] as usize, points.len());
                for column in 0..2 {
                    let most = points.iter().map(|p| features[2 * p + column]).fold(f64::NEG_INFINITY, f64::max);
                    assert_eq!(largest[2 * row + column], most);
                }
                for slot in 0..5 {
                    let got = &voxels[(row * 5 + slot) * 5..][..5];
                    let want = points.get(slot).map_or([0.0; 5], |p| {
                        [all[3 * p], all[3 * p + 1], all[3 * p + 2], features[2 * p], features[2 * p + 1]]
                    });
                    assert_eq!(got, want);
                }
            }
        }
    }
}

#[test]
fn a_number_of_rows_cuts_off_or_pads() {
    for (count, grid) in [(60_000, huge()), (300, small())] {
        let case = Case::new(1, Shape::Uniform, 2, count, 2, (DType::F32, DType::F32), grid);
        let whole = run(&case.group(None)).unwrap();
        let rows = numbers(&whole[5])[0] as usize;
        for most in [0, 1, rows / 2, rows - 1, rows, rows + 9] {
            let groups = run(&case.group(Some(most))).unwrap();
            assert_eq!(numbers(&groups[5])[0] as usize, rows);
            let cut = |&row: &f64| if row >= most as f64 { -1.0 } else { row };
            let want: Vec<_> = numbers(&whole[3]).iter().map(cut).collect();
            assert!(numbers(&groups[3]) == want, "{} most {most}", case.text);
            let views = [0, 1, 2, 5].map(|index| groups[index].view());
            let op = gather(case.points.view(), case.features.view(), grid, views, most, Reduce::Sum);
            let out = run(&op).unwrap();
            let (coords, counts) = (numbers(&out[0]), numbers(&out[1]));
            for row in rows..most {
                assert_eq!(coords[4 * row..][..4], [-1.0; 4]);
                assert_eq!(counts[row], 0.0);
            }
        }
    }
    let case = Case::new(1, Shape::Uniform, 2, 300, 2, (DType::F32, DType::F32), small());
    let whole = run(&case.group(None)).unwrap();
    let op = GroupPoints { grid: Grid { shape: [1 << 21; 3], ..small() }, ..case.group(None) };
    assert_eq!(run(&op).unwrap_err().argument_name(), Some("shape"));
    let views = [0, 1, 2, 5].map(|index| whole[index].view());
    let op = gather(case.points.view(), case.features.view(), small(), views, 1, Reduce::Sum);
    let error = run(&GatherVoxels { features: None, ..op }).unwrap_err();
    assert_eq!((error.kind(), error.argument_name()), (ErrorKind::InvalidArgument, Some("features")));
}

#[test]
fn groups_that_somebody_else_wrote_do_no_harm() {
    let case = Case::new(3, Shape::Uniform, 2, 300, 2, (DType::F32, DType::F32), small());
    let good = run(&case.group(None)).unwrap();
    let bad = |numbers: [i32; 4], count: usize| -> Tensor {
        let all: Vec<_> = numbers.into_iter().cycle().take(count).collect();
        Tensor::from_slice(&all, &[count]).unwrap()
    };
    let counts = [-1, 0, 5, 600, i64::MAX].map(|count| Tensor::from_slice(&[count], &[]).unwrap());
    for pattern in [[-1; 4], [i32::MAX; 4], [i32::MIN, 7, i32::MAX, 0], [600, 400, 200, 0]] {
        let (starts, order) = (bad(pattern, 601), bad(pattern, 600));
        for (starts, order) in [(&starts, &good[2]), (&good[1], &order), (&starts, &order)] {
            for count in &counts {
                let views = [good[0].view(), starts.view(), order.view(), count.view()];
                let op = gather(case.points.view(), case.features.view(), small(), views, 600, Reduce::Mean);
                let out = run(&op).unwrap();
                assert!(numbers(&out[1]).iter().all(|points| (0.0..=600.0).contains(points)));
            }
        }
    }
}

#[test]
fn a_gpu_makes_the_same_rows() {
    let Some(gpu) = some_gpu() else { return };
    let floats = [DType::F32, DType::F16, DType::F64, DType::BF16];
    for (seed, shape) in (0u64..).zip(SHAPES) {
        for (index, count) in [0usize, 1, 17, 128, 2000].into_iter().enumerate() {
            let kinds = (floats[index % 4], floats[(index + seed as usize) % 4]);
            let grid = if index % 2 == 0 { small() } else { huge() };
            let case = Case::new(seed, shape, 2, count, 3, kinds, grid);
            let there = OnGpu::new(gpu, &[&case.points, &case.features, &case.lengths]);
            for most in [None, Some(40)] {
                let want = run(&case.group(most)).unwrap();
                let op = case.group(most);
                let got =
                    run_on(gpu, &GroupPoints { points: there.view(0).into(), lengths: Some(there.view(2)), ..op })
                        .unwrap();
                let context = format!("{} most {most:?}", case.text);
                assert_same(&got[3..], &want[3..], &context);
                let rows = most.unwrap_or(numbers(&want[5])[0] as usize);
                let groups = OnGpu::new(gpu, &[&got[0], &got[1], &got[2], &got[5]]);
                for reduce in [Reduce::Occupancy, Reduce::Mean, Reduce::Min] {
                    let views = [0, 1, 2, 5].map(|index| want[index].view());
                    let want =
                        run(&gather(case.points.view(), case.features.view(), grid, views, rows, reduce)).unwrap();
                    let views = [0, 1, 2, 3].map(|index| groups.view(index));
                    let op = gather(there.view(0), there.view(1), grid, views, rows, reduce);
                    assert_same(&run_on(gpu, &op).unwrap(), &want, &format!("{reduce} {context}"));
                }
            }
        }
    }
}

fn backward<'a>(
    case: &'a Case,
    groups: &'a [Tensor],
    grad: &'a Tensor,
    reduce: Reduce,
    sparse: bool,
) -> VoxelizeBackward<'a> {
    let [cells, starts, order, count] = [0, 1, 2, 5].map(|index| groups[index].view());
    VoxelizeBackward {
        features: case.features.view(),
        points: case.points.view().into(),
        reduce,
        grad: grad.view(),
        sparse,
        cells,
        starts,
        order,
        count,
    }
}

fn gradient(case: &Case, groups: &[Tensor], sparse: bool) -> Tensor {
    let width = case.features.shape()[2];
    let rows = if sparse {
        numbers(&groups[5])[0] as usize
    } else {
        case.points.shape()[0] * case.grid.shape.iter().product::<usize>()
    };
    let mut random = Random::new(rows as u64);
    floats(&(0..rows * width).map(|_| random.part()).collect::<Vec<_>>(), &[rows, width], case.features.dtype())
}

#[test]
fn gradients_reach_the_points_that_made_the_cell() {
    for (seed, shape) in (0u64..).zip(SHAPES) {
        let case = Case::new(seed, shape, 2, 400, 3, (DType::F32, DType::F64), small());
        let groups = run(&case.group(None)).unwrap();
        let (inverse, features) = (numbers(&groups[3]), numbers(&case.features));
        let cells = numbers(&groups[0]);
        for sparse in [false, true] {
            let grad = gradient(&case, &groups, sparse);
            for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
                let got = numbers(&run(&backward(&case, &groups, &grad, reduce, sparse)).unwrap()[0]);
                for point in 0..800 {
                    let mates: Vec<_> = (0..800).filter(|&p| inverse[p] == inverse[point]).collect();
                    for column in 0..3 {
                        let value = |p: usize| features[3 * p + column];
                        let chosen = match reduce {
                            Reduce::Max => mates.iter().copied().reduce(|a, b| if value(b) > value(a) { b } else { a }),
                            Reduce::Min => mates.iter().copied().reduce(|a, b| if value(b) < value(a) { b } else { a }),
                            _ => Some(point),
                        };
                        let want = if inverse[point] < 0.0 || chosen != Some(point) {
                            0.0
                        } else {
                            let row = inverse[point] as usize;
                            let place = if sparse { row } else { cells[row] as usize };
                            let whole = numbers(&grad)[3 * place + column];
                            if reduce == Reduce::Mean { whole / mates.len() as f64 } else { whole }
                        };
                        assert_eq!(got[3 * point + column], want, "{reduce} {sparse} {point} {}", case.text);
                    }
                }
            }
        }
    }
}

#[test]
fn a_gpu_makes_the_same_gradients() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, shape) in (0u64..).zip(SHAPES) {
        for (count, width, dtype) in
            [(300, 3, DType::F32), (700, 1, DType::F16), (129, 40, DType::BF16), (1, 5, DType::F64)]
        {
            let case = Case::new(seed, shape, 3, count, width, (DType::F32, dtype), small());
            let groups = run(&case.group(None)).unwrap();
            for sparse in [false, true] {
                let grad = gradient(&case, &groups, sparse);
                let there = OnGpu::new(
                    gpu,
                    &[&case.features, &case.points, &grad, &groups[0], &groups[1], &groups[2], &groups[5]],
                );
                for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
                    let op = backward(&case, &groups, &grad, reduce, sparse);
                    let want = run(&op).unwrap();
                    let remote = VoxelizeBackward {
                        features: there.view(0),
                        points: there.view(1).into(),
                        grad: there.view(2),
                        cells: there.view(3),
                        starts: there.view(4),
                        order: there.view(5),
                        count: there.view(6),
                        ..op
                    };
                    assert_same(&run_on(gpu, &remote).unwrap(), &want, &format!("{reduce} {sparse} {}", case.text));
                }
            }
        }
    }
}
