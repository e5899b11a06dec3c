//! `transform_points`, `crop_box`, `unproject` and `farthest_points`.

use robocache::ops::{CropBox, DepthImage, FarthestPoints, Small, TransformPoints, Unproject};
use robocache::{DType, ErrorKind, Tensor, TensorRef, run};

use crate::harness::{OnGpu, Random, SHAPES, Shape, assert_same, floats, numbers, points, run_on, some_gpu};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const COUNTS: [usize; 9] = [0, 1, 15, 17, 128, 1023, 1025, 4096, 4097];

fn cloud(seed: u64, shape: Shape, batch: usize, count: usize, dtype: DType) -> Tensor {
    floats(&points(&mut Random::new(seed), shape, batch * count), &[batch, count, 3], dtype)
}

fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.part() * 2.0 - 1.0).collect()
}

fn host<'a>(numbers: &'a [f64], shape: &[usize]) -> Small<'a> {
    Small::Host(TensorRef::from_slice(numbers, shape).unwrap())
}

fn lengths(seed: u64, batch: usize, least: usize, most: usize) -> Tensor {
    let mut random = Random::new(seed);
    let numbers: Vec<_> = (0..batch).map(|_| (least as u64 + random.below((most - least) as u64 + 1)) as i64).collect();
    Tensor::from_slice(&numbers, &[batch]).unwrap()
}

#[test]
fn points_are_moved_by_matrices_and_by_quaternions() {
    let at = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 0.0, 0.0, 0.0], &[2, 3]).unwrap();
    // A quarter turn about z, then a step along x; the quaternion is not of length 1.
    let matrix = [0.0, -1.0, 0.0, 5.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let half = 3.0 * std::f64::consts::FRAC_1_SQRT_2;
    let pose = [5.0, 0.0, 0.0, 0.0, 0.0, half, half];
    for (pose, shape, tolerance) in
        [(&matrix[..], &[4, 4][..], 0.0), (&matrix[..12], &[3, 4], 0.0), (&pose, &[7], 1e-12)]
    {
        let out = run(&TransformPoints { points: at.view(), pose: host(pose, shape) }).unwrap();
        for (got, want) in numbers(&out[0]).iter().zip([3.0, 1.0, 3.0, 5.0, 0.0, 0.0]) {
            assert!((got - want).abs() <= tolerance, "{got} {want}");
        }
        let there = floats(pose, shape, DType::F64);
        let same = run(&TransformPoints { points: at.view(), pose: Small::Tensor(there.view()) }).unwrap();
        assert_same(&same, &out, "a tensor");
    }
    let bad = run(&TransformPoints { points: at.view(), pose: host(&matrix[..9], &[3, 3]) }).unwrap_err();
    assert_eq!((bad.kind(), bad.argument_name()), (ErrorKind::InvalidArgument, Some("pose")));
}

#[test]
fn a_gpu_moves_points_as_the_host_does() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, dtype) in (0u64..).zip(FLOATS) {
        for (form, numbers) in [(&[2, 4, 4][..], 32), (&[2, 7], 14), (&[3, 4], 12), (&[1, 7], 7)] {
            for count in [0, 1, 1023, 1026] {
                let points = cloud(seed, Shape::Uniform, 2, count, dtype);
                let pose = floats(&random(seed + 7, numbers), form, if seed % 2 == 0 { dtype } else { DType::F32 });
                let there = OnGpu::new(gpu, &[&points, &pose]);
                let want = run(&TransformPoints { points: points.view(), pose: Small::Tensor(pose.view()) }).unwrap();
                let op = TransformPoints { points: there.view(0), pose: Small::Tensor(there.view(1)) };
                assert_same(&run_on(gpu, &op).unwrap(), &want, &format!("{dtype} {form:?} {count}"));
            }
        }
        let points = cloud(seed, Shape::Uniform, 1, 99, dtype);
        let pose = random(seed, 7);
        let there = OnGpu::new(gpu, &[&points]);
        let want = run(&TransformPoints { points: points.view(), pose: host(&pose, &[7]) }).unwrap();
        let op = TransformPoints { points: there.view(0), pose: host(&pose, &[7]) };
        assert_same(&run_on(gpu, &op).unwrap(), &want, "on the host");
    }
}

fn crop<'a>(points: &'a Tensor, lengths: Option<&'a Tensor>, compact: bool) -> CropBox<'a> {
    CropBox {
        points: points.view(),
        low: [0.25, 0.5, -1.0],
        high: [3.0, 3.5, 2.5],
        lengths: lengths.map(Tensor::view),
        compact,
        check: true,
    }
}

#[test]
fn a_box_is_half_open_and_keeps_the_order() {
    for (seed, shape) in (0u64..).zip(SHAPES) {
        let (points, lengths) = (cloud(seed, shape, 3, 200, DType::F32), lengths(seed, 3, 0, 200));
        let mask = numbers(&run(&crop(&points, Some(&lengths), false)).unwrap()[0]);
        let packed = run(&crop(&points, Some(&lengths), true)).unwrap();
        let (all, kept, index) = (numbers(&points), numbers(&packed[2]), numbers(&packed[1]));
        for row in 0..3 {
            let mut want = Vec::new();
            for at in 0..200 {
                let p = &all[(row * 200 + at) * 3..][..3];
                let inside = (0.25..3.0).contains(&p[0]) && (0.5..3.5).contains(&p[1]) && (-1.0..2.5).contains(&p[2]);
                let inside = inside && (at as f64) < numbers(&lengths)[row];
                assert_eq!(mask[row * 200 + at] == 1.0, inside);
                if inside {
                    want.push(at as f64);
                }
            }
            assert_eq!(kept[row] as usize, want.len());
            want.resize(200, -1.0);
            assert_eq!(index[row * 200..][..200], want);
            for (slot, &from) in want.iter().enumerate() {
                let got = &numbers(&packed[0])[(row * 200 + slot) * 3..][..3];
                match from < 0.0 {
                    true => assert!(got.iter().all(|x| x.is_nan())),
                    false => assert_eq!(got, &all[(row * 200 + from as usize) * 3..][..3]),
                }
            }
        }
    }
}

#[test]
fn a_gpu_crops_as_the_host_does() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, dtype) in (0u64..).zip(FLOATS) {
        for count in COUNTS {
            for batch in [1, 3] {
                let points = cloud(seed, Shape::Uniform, batch, count, dtype);
                let lengths = lengths(seed, batch, 0, count);
                let there = OnGpu::new(gpu, &[&points, &lengths]);
                for compact in [false, true] {
                    for ragged in [false, true] {
                        let op = crop(&points, ragged.then_some(&lengths), compact);
                        let want = run(&op).unwrap();
                        let remote =
                            CropBox { points: there.view(0), lengths: op.lengths.map(|_| there.view(1)), ..op };
                        assert_same(
                            &run_on(gpu, &remote).unwrap(),
                            &want,
                            &format!("{dtype} {batch}x{count} {compact}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn depth_becomes_points_and_what_is_none_becomes_nan() {
    let depth = Tensor::from_slice(&[0u16, 1000, 2000, 500, 0, 4000], &[2, 3]).unwrap();
    let camera = [2.0, 4.0, 1.0, 0.5];
    let image =
        DepthImage { depth: depth.view(), intrinsics: host(&camera, &[4]), extrinsics: None, depth_scale: 1e-3 };
    let op = Unproject { image, return_valid: true };
    let out = run(&op).unwrap();
    assert_eq!(out[0].shape(), [6, 3]);
    assert_eq!(numbers(&out[1]), [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
    let got = numbers(&out[0]);
    assert!(got[..3].iter().all(|x| x.is_nan()));
    assert_eq!(got[3..6], [0.0, -0.125, 1.0]);
    assert_eq!(got[6..9], [1.0, -0.25, 2.0]);
    assert_eq!(got[9..12], [-0.25, 0.0625, 0.5]);
    let matrix = [2.0, 0.0, 1.0, 0.0, 4.0, 0.5, 0.0, 0.0, 1.0];
    let image = DepthImage { intrinsics: host(&matrix, &[3, 3]), ..image };
    let same = run(&Unproject { image, return_valid: true }).unwrap();
    assert_same(&same, &out, "a matrix");
}

#[test]
fn a_gpu_unprojects_as_the_host_does() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, dtype) in (0u64..).zip([DType::U16, DType::F16, DType::BF16, DType::F32, DType::F64]) {
        let mut values = Random::new(seed);
        let (batch, height, width) = (2, 37, 41);
        let count = batch * height * width;
        let depth = match dtype {
            DType::U16 => {
                let depths: Vec<_> = (0..count).map(|_| values.below(3) as u16 * values.below(9000) as u16).collect();
                Tensor::from_slice(&depths, &[batch, height, width]).unwrap()
            }
            _ => {
                let mut depths: Vec<_> = (0..count).map(|_| values.part() * 4.0 - 0.5).collect();
                depths[3] = f64::NAN;
                depths[50] = f64::INFINITY;
                floats(&depths, &[batch, height, width], dtype)
            }
        };
        let cameras = floats(&[40.0, 41.0, 20.0, 18.5, 44.0, 40.0, 21.0, 17.0], &[2, 4], DType::F32);
        let poses = floats(&random(seed, 14), &[2, 7], DType::F64);
        let there = OnGpu::new(gpu, &[&depth, &cameras, &poses]);
        for posed in [false, true] {
            let image = DepthImage {
                depth: depth.view(),
                intrinsics: Small::Tensor(cameras.view()),
                extrinsics: posed.then(|| Small::Tensor(poses.view())),
                depth_scale: 1e-3,
            };
            let want = run(&Unproject { image, return_valid: true }).unwrap();
            let image = DepthImage {
                depth: there.view(0),
                intrinsics: Small::Tensor(there.view(1)),
                extrinsics: posed.then(|| Small::Tensor(there.view(2))),
                ..image
            };
            let remote = Unproject { image, return_valid: true };
            assert_same(&run_on(gpu, &remote).unwrap(), &want, &format!("{dtype} posed {posed}"));
        }
    }
}

fn far<'a>(points: &'a Tensor, k: usize, start: usize, lengths: Option<&'a Tensor>) -> FarthestPoints<'a> {
    FarthestPoints { points: points.view(), k, start, lengths: lengths.map(Tensor::view), check: true }
}

#[test]
fn the_farthest_points_are_taken_and_none_twice() {
    let points = cloud(3, Shape::Borders, 2, 150, DType::F32);
    let all = numbers(&points);
    let got = numbers(&run(&far(&points, 150, 4, None)).unwrap()[0]);
    for row in 0..2 {
        let at = |index: usize| &all[(row * 150 + index) * 3..][..3];
        let taken: Vec<_> = got[row * 150..][..150].iter().map(|&x| x as usize).collect();
        assert_eq!(taken[0], 4);
        let mut seen = [false; 150];
        for (step, &index) in taken.iter().enumerate() {
            assert!(!std::mem::replace(&mut seen[index], true), "{index} twice");
            let nearest = |index: usize| {
                let point = at(index);
                if !point.iter().all(|x| x.is_finite()) {
                    return -1.0;
                }
                let distance = |other: &usize| {
                    let d: Vec<f32> = (0..3).map(|axis| point[axis] as f32 - at(*other)[axis] as f32).collect();
                    f64::from((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2])
                };
                taken[..step].iter().map(distance).filter(|d| !d.is_nan()).fold(f64::INFINITY, f64::min)
            };
            if step > 0 {
                let best = (0..150).filter(|i| !taken[..step].contains(i)).map(nearest).fold(-3.0, f64::max);
                let first = (0..150).filter(|i| !taken[..step].contains(i)).find(|&i| nearest(i) == best);
                assert_eq!(Some(index), first, "step {step}");
            }
        }
    }
    assert_eq!(run(&far(&points, 151, 0, None)).unwrap_err().argument_name(), Some("k"));
    assert_eq!(run(&far(&points, 1, 150, None)).unwrap_err().argument_name(), Some("start"));
    let short = Tensor::from_slice(&[150i64, 9], &[2]).unwrap();
    let error = run(&far(&points, 10, 0, Some(&short))).unwrap_err();
    assert!(error.to_string().contains("lengths: row 1 is 9, expected 10 to 150"), "{error}");
}

#[test]
fn a_gpu_takes_the_same_points() {
    let Some(gpu) = some_gpu() else { return };
    for (seed, dtype) in (0u64..).zip(FLOATS) {
        for (count, k) in [(1, 1), (33, 33), (700, 40), (1031, 9), (5000, 12)] {
            for shape in [Shape::Uniform, Shape::Borders, Shape::OneVoxel] {
                let points = cloud(seed, shape, 2, count, dtype);
                let lengths = lengths(seed, 2, k, count);
                let there = OnGpu::new(gpu, &[&points, &lengths]);
                for ragged in [false, true] {
                    let op = far(&points, k, (k - 1) / 2, ragged.then_some(&lengths));
                    let want = run(&op).unwrap();
                    let remote =
                        FarthestPoints { points: there.view(0), lengths: op.lengths.map(|_| there.view(1)), ..op };
                    assert_same(&run_on(gpu, &remote).unwrap(), &want, &format!("{dtype} {shape:?} {count} {k}"));
                }
            }
        }
    }
    // More than a multiprocessor holds.
    let points = cloud(9, Shape::Clustered, 1, 20_000, DType::F32);
    let there = OnGpu::new(gpu, &[&points]);
    let want = run(&far(&points, 6, 0, None)).unwrap();
    let remote = FarthestPoints { points: there.view(0), ..far(&points, 6, 0, None) };
    assert_same(&run_on(gpu, &remote).unwrap(), &want, "a large cloud");
}
