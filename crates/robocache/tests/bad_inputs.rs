//! Bad tensors and bad data: a typed error that names the argument, and the next good call works.
//! Numbers are those of docs/faults.md; Python tests hold the rest.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use robocache::ops::Resample;
use robocache::ops::resample::{Extrapolate, Method};
use robocache::{Context, DType, Device, Error, ErrorKind, Layout, Tensor, TensorMut, TensorRef, prepare, run};

fn tensor<T: robocache::Element>(data: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(data, shape).unwrap()
}

struct Good {
    values: Tensor,
    times: Tensor,
    targets: Tensor,
}

impl Good {
    fn new() -> Self {
        Self {
            values: tensor(&[1.0f32, 2.0, 4.0], &[3, 1]),
            times: tensor(&[0.0f64, 1.0, 2.0], &[3]),
            targets: tensor(&[0.5f64, 1.5], &[2]),
        }
    }

    fn op(&self) -> Resample<'_> {
        Resample::new(self.values.view(), self.times.view(), self.targets.view())
    }
}

/// The error must name `argument`, and a good call must work after it.
fn refused(result: Result<Vec<Tensor>, Error>, kind: ErrorKind, argument: &str, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.op_name(), error.argument_name()),
        (kind, Some("resample"), Some(argument)),
        "{error}"
    );
    assert!(error.to_string().contains(text), "{error}");
    let good = Good::new();
    assert_eq!(run(&good.op()).unwrap()[0].as_slice::<f32>().unwrap(), [1.5, 3.0]);
}

use ErrorKind::{InvalidArgument, Unsupported};

#[test]
fn shapes_1_2_6_7() {
    let good = Good::new();
    let scalar = tensor(&[1.0f32], &[]);
    refused(run(&Resample { values: scalar.view(), ..good.op() }), InvalidArgument, "values", "[B,S,D]");
    let deep = tensor(&[1.0f32; 3], &[1, 1, 3, 1]);
    refused(run(&Resample { values: deep.view(), ..good.op() }), InvalidArgument, "values", "4 axes");
    let (none, no_stamps) = (tensor::<f32>(&[], &[0, 1]), tensor::<f64>(&[], &[0]));
    refused(
        run(&Resample { values: none.view(), times: no_stamps.view(), ..good.op() }),
        InvalidArgument,
        "values",
        "no samples",
    );
    let (two, three) = (tensor(&[0.0f64; 6], &[2, 3]), tensor(&[0.5f64; 3], &[3, 1]));
    refused(
        run(&Resample { times: two.view(), targets: three.view(), ..good.op() }),
        InvalidArgument,
        "targets",
        "batch of 3",
    );
    let short = tensor(&[0.0f64, 1.0], &[2]);
    refused(run(&Resample { times: short.view(), ..good.op() }), InvalidArgument, "times", "each of 3 samples");
}

#[test]
fn empty_sizes_3_4_5() {
    let good = Good::new();
    let nothing = tensor::<f64>(&[], &[0]);
    let out = run(&Resample { targets: nothing.view(), return_valid: true, ..good.op() }).unwrap();
    assert_eq!((out[0].shape(), out[1].shape()), (&[0, 1][..], &[0][..]));
    // Bad stamps spoil nothing where there is no result, on all backends alike.
    let unsorted = tensor(&[0.0f64, 2.0, 1.0], &[3]);
    assert_eq!(
        run(&Resample { targets: nothing.view(), times: unsorted.view(), ..good.op() }).unwrap()[0].shape(),
        [0, 1]
    );
    let no_batch = tensor::<f32>(&[], &[0, 3, 1]);
    assert_eq!(run(&Resample { values: no_batch.view(), ..good.op() }).unwrap()[0].shape(), [0, 2, 1]);
    let no_width = tensor::<f32>(&[], &[3, 0]);
    assert_eq!(run(&Resample { values: no_width.view(), ..good.op() }).unwrap()[0].shape(), [2, 0]);
    let (one, stamp, around) = (tensor(&[7.0f32], &[1, 1]), tensor(&[1.0f64], &[1]), tensor(&[0.0f64, 1.0, 2.0], &[3]));
    for extrapolate in [Extrapolate::Clamp, Extrapolate::Linear] {
        let op = Resample { extrapolate, return_valid: true, ..Resample::new(one.view(), stamp.view(), around.view()) };
        let out = run(&op).unwrap();
        assert_eq!(out[0].as_slice::<f32>().unwrap(), [7.0; 3]);
        assert_eq!(out[1].as_slice::<bool>().unwrap(), [false, true, false]);
    }
}

#[test]
fn huge_sizes_8_9_10() {
    let good = Good::new();
    let (value, stamp) = (1.0f32, 1.0f64);
    let expanded = |data: *const u8, dtype, shape: &[i64]| {
        let layout = Layout::strided(shape, Some(&vec![0; shape.len()]), dtype).unwrap();
        // SAFETY: all strides are 0, so only one element is ever read.
        unsafe { TensorRef::from_raw(data, dtype, Device::Cpu, layout).unwrap() }
    };
    let values = expanded((&raw const value).cast(), DType::F32, &[1 << 30, 3, 1 << 20]);
    let targets = expanded((&raw const stamp).cast(), DType::F64, &[1 << 30]);
    refused(run(&Resample { values, targets, ..good.op() }), InvalidArgument, "out", "address space");
    let targets = expanded((&raw const stamp).cast(), DType::F64, &[1 << 20]);
    let values = expanded((&raw const value).cast(), DType::F32, &[1, 3, 1 << 28]);
    let error = run(&Resample { values, targets, ..good.op() }).unwrap_err();
    assert_eq!((error.kind(), error.op_name()), (ErrorKind::OutOfMemory, Some("resample")));
    run(&good.op()).unwrap();
}

#[test]
fn types_13_15() {
    let good = Good::new();
    let integers = tensor(&[1i64, 2, 3], &[3, 1]);
    refused(run(&Resample { values: integers.view(), ..good.op() }), InvalidArgument, "values", "int64");
    let op = Resample {
        values: integers.view(),
        method: Method::Nearest.into(),
        extrapolate: Extrapolate::Nan,
        ..good.op()
    };
    refused(run(&op), InvalidArgument, "extrapolate", "no NaN");
    let op = Resample { method: Method::Nearest.into(), extrapolate: Extrapolate::Linear, ..good.op() };
    refused(run(&op), Unsupported, "extrapolate", "nearest");
    let (short, other) = (tensor(&[0i32, 1, 2], &[3]), tensor(&[0.5f32, 1.5], &[2]));
    refused(run(&Resample { times: short.view(), ..good.op() }), InvalidArgument, "times", "int32");
    refused(run(&Resample { targets: other.view(), ..good.op() }), InvalidArgument, "targets", "float32");
    for gap in [-1.0, f64::NAN] {
        refused(run(&Resample { max_gap: Some(gap), ..good.op() }), InvalidArgument, "max_gap", "seconds");
    }
    // 15: f32 values with f64 times is the good call itself.
}

#[test]
fn outputs_18_19() {
    let mut good = Good::new();
    let shared = good.values.view();
    // 19: the input's own memory as output, which safe Rust cannot write.
    let layout = Layout::contiguous(&[2, 1], DType::F32).unwrap();
    let pointer = shared.data().cast_mut();
    // SAFETY: the op must refuse before it writes.
    let overlapping = unsafe { TensorMut::from_raw(pointer, DType::F32, Device::Cpu, layout) }.unwrap();
    let op = good.op();
    let error = prepare(&op, &Context::default()).unwrap().run(&mut [overlapping], &Context::default()).unwrap_err();
    assert_eq!((error.kind(), error.argument_name()), (InvalidArgument, Some("out")), "{error}");
    // 18: all elements in one place.
    let expanded = Layout::strided(&[2, 1], Some(&[0, 0]), DType::F32).unwrap();
    // SAFETY: refused before use.
    let error = unsafe { TensorMut::from_raw(pointer, DType::F32, Device::Cpu, expanded) }.unwrap_err();
    assert!(error.to_string().contains("share memory"), "{error}");
    for (mut wrong, text) in [
        (Tensor::zeros(&[3, 1], DType::F32).unwrap(), "shape"),
        (Tensor::zeros(&[2, 1], DType::F64).unwrap(), "float32"),
    ] {
        let error =
            prepare(&op, &Context::default()).unwrap().run(&mut [wrong.view_mut()], &Context::default()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(prepare(&op, &Context::default()).unwrap().run(&mut [], &Context::default()).is_err());
    good.targets = tensor(&[1.0f64, 2.0], &[2]);
    assert_eq!(run(&good.op()).unwrap()[0].as_slice::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn pointers_22_23() {
    let layout = Layout::contiguous(&[1], DType::F32).unwrap();
    let data = [0u8; 16];
    // SAFETY: refused before anything is read.
    unsafe {
        assert!(TensorRef::from_raw(std::ptr::null(), DType::F32, Device::Cpu, layout).is_err());
        let odd = data.as_ptr().wrapping_add(1 + data.as_ptr().align_offset(4));
        assert!(TensorRef::from_raw(odd, DType::F32, Device::Cpu, layout).is_err());
        let empty = Layout::contiguous(&[0], DType::F32).unwrap();
        assert!(TensorRef::from_raw(std::ptr::null(), DType::F32, Device::Cpu, empty).is_ok());
    }
}

#[test]
fn stamps_32_33_35() {
    let good = Good::new();
    for (bad, text) in [
        ([0.0, 2.0, 1.0], "row 0 decreases at index 2 (1 after 2)"),
        ([0.0, f64::NAN, 1.0], "row 0 holds NaN at index 1"),
        ([0.0, 1.0, f64::INFINITY], "row 0 holds inf at index 2"),
        ([f64::NEG_INFINITY, 0.0, 1.0], "row 0 holds -inf at index 0"),
    ] {
        let times = tensor(&bad, &[3]);
        refused(run(&Resample { times: times.view(), ..good.op() }), InvalidArgument, "times", text);
    }
    let (times, targets) = (tensor(&[1.76e18f32, 1.76e18, 1.77e18], &[3]), tensor(&[1.765e18f32], &[1]));
    let op = Resample { times: times.view(), targets: targets.view(), ..good.op() };
    refused(run(&op), InvalidArgument, "times", "int64 nanoseconds");
}

#[test]
fn the_first_bad_row_is_named_however_many_threads_look() {
    let (batch, samples) = (3000, 101);
    let mut stamps: Vec<i64> = (0..batch * samples).map(|i| (i % samples) as i64).collect();
    stamps[2741 * samples + 7] = 0;
    stamps[1507 * samples + 50] = -1;
    let (values, targets) = (tensor(&vec![0u8; samples], &[samples, 1]), tensor(&[5i64], &[1]));
    let times = tensor(&stamps, &[batch, samples]);
    let op = Resample { method: Method::Next.into(), ..Resample::new(values.view(), times.view(), targets.view()) };
    refused(run(&op), InvalidArgument, "times", "row 1507 decreases at index 50");
}

#[test]
fn lengths_99_and_targets_outside() {
    let good = Good::new();
    for bad in [-1i64, 4, i64::MIN, i64::MAX] {
        let lengths = tensor(&[bad], &[1]);
        refused(run(&Resample { lengths: Some(lengths.view()), ..good.op() }), InvalidArgument, "lengths", "row 0");
    }
    let target_lengths = tensor(&[3i32], &[1]);
    refused(
        run(&Resample { target_lengths: Some(target_lengths.view()), ..good.op() }),
        InvalidArgument,
        "target_lengths",
        "0 to 2",
    );
    let floats = tensor(&[1.0f32], &[1]);
    refused(run(&Resample { lengths: Some(floats.view()), ..good.op() }), InvalidArgument, "lengths", "float32");
    let outside = tensor(&[0.5f64, 2.5], &[2]);
    let op = Resample { targets: outside.view(), extrapolate: Extrapolate::Error, ..good.op() };
    refused(run(&op), InvalidArgument, "targets", "row 0 index 1 is 2.5, outside the stamps 0 to 2");
    let lengths = tensor(&[1i64], &[1]);
    let one = Resample { target_lengths: Some(lengths.view()), ..op };
    assert_eq!(run(&one).unwrap()[0].shape(), [1, 2, 1]);
}

#[test]
fn names_are_read_and_refused() {
    for name in ["linear", "nearest", "previous", "next", "cubic", "slerp", "angle", "rot6d"] {
        assert_eq!(name.parse::<Method>().unwrap().to_string(), name);
    }
    for name in ["clamp", "linear", "nan", "error"] {
        assert_eq!(name.parse::<Extrapolate>().unwrap().to_string(), name);
    }

    assert!("spline".parse::<Method>().unwrap_err().to_string().contains("linear, nearest, previous, next"));
    assert!("none".parse::<Extrapolate>().is_err());
    assert_eq!("cuda:3".parse::<Device>().unwrap(), Device::Cuda(3));
    for bad in ["gpu", "cuda:", "cuda:-1", "cpu:0:1", ""] {
        assert_eq!(bad.parse::<Device>().unwrap_err().argument_name(), Some("device"), "{bad}");
    }
}

#[test]
fn a_tensor_on_cuda_is_refused_26_24() {
    let good = Good::new();
    let on_gpu = |tensor: &Tensor| {
        let layout = Layout::contiguous(tensor.shape(), tensor.dtype()).unwrap();
        // SAFETY: never read; the device decides first.
        unsafe { TensorRef::from_raw(tensor.view().data(), tensor.dtype(), Device::Cuda(0), layout).unwrap() }
    };
    let mixed = run(&Resample { times: on_gpu(&good.times), ..good.op() }).unwrap_err();
    assert_eq!(mixed.argument_name(), Some("times"));
    assert!(mixed.to_string().contains("cuda:0"), "{mixed}");
    if robocache::cuda::probe().is_ok() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let all = Resample::new(on_gpu(&good.values), on_gpu(&good.times), on_gpu(&good.targets));
    assert_eq!(prepare(&all, &Context::default()).unwrap_err().kind(), ErrorKind::NoDevice);
}
