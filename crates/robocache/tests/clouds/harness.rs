//! Random clouds, and one op on the host and on a GPU.

use half::{bf16, f16};
use robocache::cuda::{DeviceBuffer, Gpu, gpu, probe};
use robocache::{Context, DType, Op, Result, Tensor, TensorMut, TensorRef, prepare};

/// A small generator with a fixed start, so that a failure can be seen again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }

    /// Within 0..1.
    pub(crate) fn part(&mut self) -> f64 {
        self.below(1 << 30) as f64 / f64::from(1 << 30)
    }
}

/// How points lie about the cube from 0 to 4.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Uniform,
    Clustered,
    OneVoxel,
    /// Multiples of a quarter: on the borders of cells.
    Borders,
    /// Nothing inside.
    Outside,
}

pub(crate) const SHAPES: [Shape; 5] =
    [Shape::Uniform, Shape::Clustered, Shape::OneVoxel, Shape::Borders, Shape::Outside];

pub(crate) fn points(random: &mut Random, shape: Shape, count: usize) -> Vec<f64> {
    let mut numbers = Vec::with_capacity(3 * count);
    let mut centre = [0.0; 3];
    for index in 0..count {
        if index % 37 == 0 {
            centre = [random.part() * 4.0, random.part() * 4.0, random.part() * 4.0];
        }
        let strange = random.below(40);
        for middle in centre {
            numbers.push(match shape {
                Shape::Uniform => random.part() * 5.0 - 0.5,
                Shape::Clustered => middle + random.part() * 0.01,
                Shape::OneVoxel => 1.1 + random.part() * 0.05,
                Shape::Borders => random.below(20) as f64 * 0.25 - 0.25,
                Shape::Outside => 100.0 + random.part(),
            });
        }
        let last = numbers.len() - 1;
        match strange {
            0 => numbers[last] = f64::NAN,
            1 => numbers[last - 1] = 1e30,
            2 => numbers[last - 2] = f64::NEG_INFINITY,
            3 => numbers[last] = -0.0,
            _ => {}
        }
    }
    numbers
}

/// A tensor of a float dtype.
pub(crate) fn floats(numbers: &[f64], shape: &[usize], dtype: DType) -> Tensor {
    match dtype {
        DType::F16 => Tensor::from_slice(&numbers.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>(), shape),
        DType::BF16 => Tensor::from_slice(&numbers.iter().map(|&x| bf16::from_f64(x)).collect::<Vec<_>>(), shape),
        DType::F32 => Tensor::from_slice(&numbers.iter().map(|&x| x as f32).collect::<Vec<_>>(), shape),
        _ => Tensor::from_slice(numbers, shape),
    }
    .unwrap()
}

/// What a tensor of numbers holds.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F16 => tensor.as_slice::<f16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => tensor.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        DType::F64 => tensor.as_slice::<f64>().unwrap().to_vec(),
        DType::U8 => tensor.as_slice::<u8>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        DType::Bool => tensor.as_slice::<bool>().unwrap().iter().map(|&x| f64::from(u8::from(x))).collect(),
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|&x| f64::from(x)).collect(),
        DType::I64 => tensor.as_slice::<i64>().unwrap().iter().map(|&x| x as f64).collect(),
        other => panic!("{other}"),
    }
}

/// The same bits, but for what kind of NaN it is; 0 and -0 differ.
pub(crate) fn assert_same(got: &[Tensor], want: &[Tensor], context: &str) {
    assert_eq!(got.len(), want.len(), "{context}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "output {index}: {context}");
        let (got, want) = (numbers(got), numbers(want));
        for (place, (a, b)) in got.iter().zip(&want).enumerate() {
            let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(same, "output {index} at {place}: {a}, expected {b}: {context}");
        }
    }
}

/// A GPU, where there is one; says so once where there is none.
pub(crate) fn some_gpu() -> Option<&'static Gpu> {
    let found = probe().and_then(|_| gpu(0, 0));
    match found {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            println!("skipped: no GPU: {error}");
            None
        }
    }
}

/// Copies of host tensors on a GPU.
pub(crate) struct OnGpu {
    buffers: Vec<(DeviceBuffer, Vec<usize>, DType)>,
}

impl OnGpu {
    pub(crate) fn new(gpu: &'static Gpu, tensors: &[&Tensor]) -> Self {
        let copy = |tensor: &&Tensor| {
            let buffer = DeviceBuffer::from_tensor(gpu, &tensor.view()).unwrap();
            (buffer, tensor.shape().to_vec(), tensor.dtype())
        };
        Self { buffers: tensors.iter().map(copy).collect() }
    }

    pub(crate) fn view(&self, index: usize) -> TensorRef<'_> {
        let (buffer, shape, dtype) = &self.buffers[index];
        buffer.view(shape, *dtype).unwrap()
    }
}

/// Runs an op whose inputs lie on the GPU; the results come back.
pub(crate) fn run_on<O: Op>(gpu: &'static Gpu, op: &O) -> Result<Vec<Tensor>> {
    let context = Context::default();
    let prepared = prepare(op, &context)?;
    let specs = prepared.outputs().to_vec();
    let bytes = |spec: &robocache::OutputSpec| spec.layout.count() * spec.dtype.size();
    // Of anything but zeros: what an op counts on, it has to write.
    let junk = |spec| DeviceBuffer::from_slice(gpu, &vec![0xa5u8; bytes(spec)]).unwrap();
    let mut buffers: Vec<_> = specs.iter().map(junk).collect();
    let mut views: Vec<TensorMut<'_>> = buffers
        .iter_mut()
        .zip(&specs)
        .map(|(buffer, spec)| buffer.view_mut(spec.layout.shape(), spec.dtype).unwrap())
        .collect();
    prepared.run(&mut views, &context)?;
    drop(views);
    let results = buffers.iter().zip(&specs).filter(|(_, spec)| !spec.temporary);
    results.map(|(buffer, spec)| buffer.to_tensor(spec.layout.shape(), spec.dtype)).collect()
}
