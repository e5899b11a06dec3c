//! Grids of depth images: the bits of `unproject` followed by the same op on its points.

use robocache::ops::voxelize::{GatherVoxels, Grid, GroupPoints, Reduce, VoxelizeBackward};
use robocache::ops::{DepthImage, PointSource, Small, Unproject, Voxelize};
use robocache::{Context, DType, Device, Layout, Tensor, TensorRef, prepare, run};

use crate::harness::{OnGpu, Random, assert_same, floats, numbers, run_on, some_gpu};

const DEPTHS: [DType; 5] = [DType::U16, DType::F16, DType::BF16, DType::F32, DType::F64];
/// Height and width: one pixel, lines shorter than a block of points, of one and of several, ends on either side.
const SIZES: [(usize, usize); 12] =
    [(1, 1), (3, 5), (4, 4), (1, 17), (127, 1), (2, 64), (3, 43), (65, 63), (64, 64), (17, 241), (9, 200), (130, 130)];
const REDUCES: [Reduce; 6] = [Reduce::Occupancy, Reduce::Count, Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min];

struct Case {
    depth: Tensor,
    cameras: Tensor,
    poses: Tensor,
    features: Tensor,
    text: String,
}

impl Case {
    fn new(seed: u64, batch: usize, (height, width): (usize, usize), dtype: DType) -> Self {
        let mut random = Random::new(seed);
        let (count, shape) = (batch * height * width, [batch, height, width]);
        let depth = if dtype == DType::U16 {
            let depths: Vec<_> =
                (0..count).map(|_| random.below(4).min(1) as u16 * random.below(5000) as u16).collect();
            Tensor::from_slice(&depths, &shape).unwrap()
        } else {
            let strange = [f64::NAN, f64::INFINITY, 0.0, -1000.0];
            let mut one = |index: usize| match random.below(30) {
                0 => strange[index % 4],
                _ => random.part() * 5000.0,
            };
            floats(&(0..count).map(&mut one).collect::<Vec<_>>(), &shape, dtype)
        };
        let mut random = Random::new(seed + 99);
        let size = (height + width) as f64;
        let cameras: Vec<_> = (0..batch).flat_map(|_| [size, size * 0.9, width as f64 / 2.0, 0.4 * size]).collect();
        let poses: Vec<_> = (0..7 * batch).map(|_| random.part() * 2.0 - 1.0).collect();
        let values: Vec<_> = (0..3 * count).map(|_| random.part() * 2.0 - 1.0).collect();
        Self {
            depth,
            cameras: floats(&cameras, &[batch, 4], DType::F32),
            poses: floats(&poses, &[batch, 7], DType::F64),
            features: floats(&values, &[batch, height * width, 3], DType::F32),
            text: format!("{dtype} {batch}x{height}x{width}"),
        }
    }

    fn tensors(&self) -> [&Tensor; 4] {
        [&self.depth, &self.cameras, &self.poses, &self.features]
    }

    fn image(&self) -> DepthImage<'_> {
        image_of([self.depth.view(), self.cameras.view(), self.poses.view()])
    }
}

fn image_of([depth, cameras, poses]: [TensorRef<'_>; 3]) -> DepthImage<'_> {
    let (intrinsics, extrinsics) = (Small::Tensor(cameras), Some(Small::Tensor(poses)));
    DepthImage { depth, intrinsics, extrinsics, depth_scale: 1e-3 }
}

fn grid() -> Grid {
    Grid { origin: [-3.0, -3.0, -3.0], voxel_size: [0.3, 0.25, 0.5], shape: [20, 24, 12] }
}

fn dense<'a>(points: PointSource<'a>, features: TensorRef<'a>, reduce: Reduce) -> Voxelize<'a> {
    Voxelize {
        features: reduce.uses_features().then_some(features),
        reduce,
        return_counts: true,
        return_dropped: true,
        ..Voxelize::new(points, grid())
    }
}

fn grouped(points: PointSource<'_>) -> GroupPoints<'_> {
    GroupPoints { points, grid: grid(), lengths: None, max_voxels: None, check: true }
}

fn rows<'a>(
    points: PointSource<'a>,
    features: Option<TensorRef<'a>>,
    [cells, starts, order, count]: [TensorRef<'a>; 4],
    reduce: Reduce,
) -> GatherVoxels<'a> {
    let (dtype, max_points) = (None, Some(3));
    GatherVoxels { points, features, grid: grid(), reduce, dtype, max_points, rows: 700, cells, starts, order, count }
}

#[test]
fn pixels_are_the_points_that_unproject_writes() {
    for (seed, dtype) in (0u64..).zip(DEPTHS) {
        for size in SIZES {
            let case = Case::new(seed, 2, size, dtype);
            let points = run(&Unproject { image: case.image(), return_valid: false }).unwrap();
            let (cloud, pixels): (PointSource<'_>, PointSource<'_>) = (points[0].view().into(), case.image().into());
            for reduce in REDUCES {
                let want = run(&dense(cloud, case.features.view(), reduce)).unwrap();
                let got = run(&dense(pixels, case.features.view(), reduce)).unwrap();
                assert_same(&got, &want, &format!("{reduce} {}", case.text));
            }
            let want = run(&grouped(cloud)).unwrap();
            let got = run(&grouped(pixels)).unwrap();
            // Past the occupied cells, groups hold anything.
            assert_same(&got[2..], &want[2..], &case.text);
            let views = [0, 1, 2, 5].map(|index| got[index].view());
            for features in [None, Some(case.features.view())] {
                let reduce = if features.is_some() { Reduce::Max } else { Reduce::Count };
                let want = run(&rows(cloud, features, views, reduce)).unwrap();
                assert_same(&run(&rows(pixels, features, views, reduce)).unwrap(), &want, &case.text);
            }
        }
    }
}

#[test]
fn no_cloud_is_asked_for() {
    let case = Case::new(1, 1, (480, 640), DType::U16);
    let bytes = |op: &Voxelize<'_>| -> usize {
        let prepared = prepare(op, &Context::default()).unwrap();
        prepared.outputs().iter().filter(|spec| spec.temporary).map(|spec| spec.layout.count()).sum()
    };
    let points = run(&Unproject { image: case.image(), return_valid: false }).unwrap();
    for reduce in REDUCES {
        let cloud = dense(points[0].view().into(), case.features.view(), reduce);
        let pixels = dense(case.image().into(), case.features.view(), reduce);
        assert_eq!(bytes(&pixels), bytes(&cloud), "{reduce}");
    }
    let occupied = [Voxelize::new(points[0].view(), grid()), Voxelize::new(case.image(), grid())];
    assert_eq!(bytes(&occupied[1]), bytes(&occupied[0]));
    // A bit for each cell, and that for each thread, which is far less than a point for each pixel.
    assert!(bytes(&occupied[1]) < 480 * 640);
}

#[test]
fn views_and_what_a_batch_shares() {
    let case = Case::new(5, 3, (24, 40), DType::F32);
    // Every other column of every second line, upside down.
    let layout = Layout::strided(&[3, 12, 20], Some(&[960, -80, 2]), DType::F32).unwrap();
    // SAFETY: the first pixel is that of line 22; all others lie before it in their image.
    let view = unsafe {
        let start = case.depth.view().data().cast::<f32>().add(22 * 40);
        TensorRef::from_raw(start.cast(), DType::F32, Device::Cpu, layout).unwrap()
    };
    let whole = numbers(&case.depth);
    let copy: Vec<_> =
        (0..3 * 12 * 20).map(|i| whole[i / 240 * 960 + (22 - i / 20 % 12 * 2) * 40 + i % 20 * 2]).collect();
    let copy = floats(&copy, &[3, 12, 20], DType::F32);
    let one = |depth| Voxelize { return_dropped: true, ..dense(depth, case.features.view(), Reduce::Count) };
    let image = |depth| DepthImage { depth, ..case.image() };
    let want = run(&one(image(copy.view()).into())).unwrap();
    assert_same(&run(&one(image(view).into())).unwrap(), &want, "a view");
    // One image, many cameras; one image and camera, features with a batch.
    let (single, features) = (Case::new(6, 1, (24, 40), DType::U16), Case::new(7, 3, (24, 40), DType::U16).features);
    let shared = DepthImage { depth: single.depth.view(), ..case.image() };
    let alone = single.image();
    for image in [shared, alone] {
        let points = run(&Unproject { image, return_valid: false }).unwrap();
        let want = run(&dense(points[0].view().into(), features.view(), Reduce::Mean)).unwrap();
        assert_same(&run(&dense(image.into(), features.view(), Reduce::Mean)).unwrap(), &want, "shared");
    }
    let error = run(&dense(alone.into(), single.features.view(), Reduce::Mean)).map(drop);
    assert!(error.is_ok());
    let other = Case::new(8, 2, (24, 40), DType::U16);
    let error = run(&dense(other.image().into(), features.view(), Reduce::Mean)).unwrap_err();
    assert_eq!(error.argument_name(), Some("depth"));
    assert!(error.to_string().starts_with("voxelize_depth: depth: "), "{error}");
}

#[test]
fn empty_images_and_batches() {
    let case = Case::new(3, 1, (1, 1), DType::U16);
    let nothing = Tensor::zeros(&[1, 0, 7], DType::U16).unwrap();
    let none = Tensor::zeros(&[0, 3, 7], DType::U16).unwrap();
    for depth in [nothing.view(), none.view()] {
        let image = DepthImage { depth, ..case.image() };
        let points = run(&Unproject { image, return_valid: false }).unwrap();
        let op = |points| dense(points, case.features.view(), Reduce::Count);
        assert_same(&run(&op(image.into())).unwrap(), &run(&op(points[0].view().into())).unwrap(), "empty");
        let groups = run(&grouped(image.into())).unwrap();
        let views = [0, 1, 2, 5].map(|index| groups[index].view());
        let found = run(&rows(image.into(), None, views, Reduce::Count)).unwrap();
        assert!(numbers(&found[0]).iter().all(|&x| x == -1.0));
    }
}

#[test]
fn a_gpu_gives_the_bits_of_the_host() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, dtype) in (0u64..).zip(DEPTHS) {
        for (index, size) in SIZES.into_iter().enumerate() {
            let batch = 1 + index % 3;
            let case = Case::new(seed, batch, size, dtype);
            let there = OnGpu::new(gpu, &case.tensors());
            let image = image_of([0, 1, 2].map(|index| there.view(index)));
            let far = DepthImage { extrinsics: image.extrinsics.filter(|_| index % 4 != 3), ..image };
            let near = DepthImage { extrinsics: case.image().extrinsics.filter(|_| index % 4 != 3), ..case.image() };
            for reduce in REDUCES {
                for counted in [false, true] {
                    let op = dense(near.into(), case.features.view(), reduce);
                    let want = run(&Voxelize { return_counts: counted, ..op }).unwrap();
                    let op = dense(far.into(), there.view(3), reduce);
                    let got = run_on(gpu, &Voxelize { return_counts: counted, ..op }).unwrap();
                    assert_same(&got, &want, &format!("{reduce} {counted} {}", case.text));
                }
            }
            let want = run(&grouped(near.into())).unwrap();
            let got = run_on(gpu, &grouped(far.into())).unwrap();
            assert_same(&got[3..], &want[3..], &case.text);
            let groups = OnGpu::new(gpu, &[&got[0], &got[1], &got[2], &got[5]]);
            for reduce in [Reduce::Count, Reduce::Mean] {
                let features = reduce.uses_features();
                let views = [0, 1, 2, 5].map(|index| want[index].view());
                let want = run(&rows(near.into(), features.then(|| case.features.view()), views, reduce)).unwrap();
                let views = [0, 1, 2, 3].map(|index| groups.view(index));
                let op = rows(far.into(), features.then(|| there.view(3)), views, reduce);
                assert_same(&run_on(gpu, &op).unwrap(), &want, &format!("rows {reduce} {}", case.text));
            }
        }
    }
}

#[test]
fn a_gpu_sets_bits_of_many_pixels_in_shared_memory() {
    let Some(gpu) = some_gpu() else { return };
    for dtype in [DType::U16, DType::F32] {
        let case = Case::new(11, 1, (1031, 1201), dtype);
        let there = OnGpu::new(gpu, &case.tensors());
        let want = run(&Voxelize { return_dropped: true, ..Voxelize::new(case.image(), grid()) }).unwrap();
        let image = image_of([0, 1, 2].map(|index| there.view(index)));
        let got = run_on(gpu, &Voxelize { return_dropped: true, ..Voxelize::new(image, grid()) }).unwrap();
        assert_same(&got, &want, &case.text);
    }
}

#[test]
fn gradients_take_the_groups_of_pixels() {
    let case = Case::new(2, 2, (9, 14), DType::F32);
    let groups = run(&grouped(case.image().into())).unwrap();
    let views = [0, 1, 2, 5].map(|index| groups[index].view());
    let cells = 2 * grid().shape.iter().product::<usize>();
    let grad: Vec<_> = (0..cells * 3).map(|i| (i % 91) as f64).collect();
    let grad = floats(&grad, &[2, 20, 24, 12, 3], DType::F32);
    let points = run(&Unproject { image: case.image(), return_valid: false }).unwrap();
    let gradient = |points: PointSource<'_>| {
        let [cells, starts, order, count] = views;
        let (features, grad, sparse) = (case.features.view(), grad.view(), false);
        let reduce = Reduce::Max;
        run(&VoxelizeBackward { features, points, reduce, grad, sparse, cells, starts, order, count }).unwrap()
    };
    assert_same(&gradient(case.image().into()), &gradient(points[0].view().into()), "gradients");
}
