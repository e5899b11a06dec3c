//! What a call of an op takes, from its sizes alone.
//!
//! The op is made over tensors that are not there, and asked as a call asks it: footprints have no formula of their own
//! that could go astray.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::bandwidth;
use super::{Budget, Footprint, Way, shown};
use crate::chunks::{Chunks, footprint};
use crate::cuda::{Gpu, Link};
use crate::ops::kinematics::{Convention, DhRow, Forward, InverseKinematics, JointVelocity, Robot, Tolerance};
use crate::ops::resample::{Extrapolate, Method};
use crate::ops::rotation::{Convert, Representation};
use crate::ops::voxelize::{Grid, Reduce};
use crate::ops::{
    CropBox, DepthImage, FarthestPoints, Fuse, PointSource, Resample, Small, TransformPoints, Unproject, Voxelize, fuse,
};
use crate::tensor::{DType, Device, Layout, TensorRef};
use crate::{Error, ErrorKind, Op, Result, cpu, cuda, did_you_mean, ensure};

/// Ops that can be planned, with the sizes that each takes; those with a value have it where none is given.
pub const OPS: &[(&str, &str)] = &[
    ("crop_box", "batch=1 points dtype=float32 compact=false"),
    ("farthest_points", "batch=1 points k dtype=float32"),
    ("fk", "batch=1 joints links=1 dtype=float32"),
    ("fuse", "batch=1 source targets dim dtype=float32 stamps=int64 return_valid=false return_age=false"),
    ("ik", "batch=1 joints dtype=float32"),
    ("jacobian", "batch=1 joints links=1 dtype=float32"),
    ("joint_velocity", "batch=1 joints dtype=float32"),
    ("resample", "batch=1 source targets dim dtype=float32 stamps=int64 method=linear return_valid=false"),
    ("rotation.convert", "batch=1 source target dtype=float32"),
    ("transform_points", "batch=1 points dtype=float32"),
    ("unproject", "batch=1 height width dtype=uint16 return_valid=false"),
    ("voxelize", "batch=1 points shape features=0 reduce=occupancy dtype=float32 return_counts=false"),
    ("voxelize_depth", "batch=1 height width shape features=0 reduce=occupancy dtype=uint16 return_counts=false"),
];

/// What a call will take.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The op.
    pub op: String,
    /// Where it runs.
    pub device: Device,
    /// Whether the data comes from the host and goes back there.
    pub streamed: bool,
    /// Bytes of all of the call, if it ran as a whole.
    pub bytes: Footprint,
    /// Parts that it runs in.
    pub chunks: usize,
    /// Bytes of all parts that are in flight at a time.
    pub in_flight: u64,
    /// What they may take, or what is free where no budget was given.
    pub limit: Option<u64>,
    /// How long it takes at the speed at which this machine moves bytes; none where that cannot be measured.
    pub seconds: Option<f64>,
    /// Whether what it takes is there.
    pub fits: bool,
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.streamed { ", streamed from the host" } else { "" };
        writeln!(f, "{} on {}{way}", self.op, self.device)?;
        writeln!(f, "  in         {}", shown(self.bytes.input))?;
        writeln!(f, "  out        {}", shown(self.bytes.output))?;
        writeln!(f, "  temporary  {}", shown(self.bytes.temporary))?;
        writeln!(f, "  chunks     {}, {} in flight", self.chunks, shown(self.in_flight))?;
        match self.seconds {
            Some(seconds) if seconds < 1.0 => writeln!(f, "  time       {:.3} ms", seconds * 1e3)?,
            Some(seconds) => writeln!(f, "  time       {seconds:.2} s")?,
            None => writeln!(f, "  time       not known")?,
        }
        let limit =
            self.limit.map_or_else(|| "what is free is not known".to_owned(), |limit| format!("of {}", shown(limit)));
        write!(f, "  fits       {}, {limit}", if self.fits { "yes" } else { "no" })
    }
}

/// Sizes as they are given, by name.
struct Sizes<'a> {
    given: &'a [(String, String)],
    asked: RefCell<BTreeSet<&'static str>>,
}

impl Sizes<'_> {
    fn text(&self, name: &'static str) -> Option<&str> {
        self.asked.borrow_mut().insert(name);
        self.given.iter().find(|(key, _)| key == name).map(|(_, text)| text.trim())
    }

    /// Whole numbers, separated by commas.
    fn several(&self, name: &'static str) -> Result<Vec<usize>> {
        let text = self.text(name).ok_or_else(|| Error::invalid(name, "expected a size, got none"))?;
        let number = |text: &str| text.trim().parse().ok();
        let items = text.trim_matches(['[', ']', '(', ')']).trim_end_matches(',').split(',');
        items.map(number).collect::<Option<_>>().ok_or_else(|| wrong(name, "whole numbers from 0 on", text))
    }

    fn size(&self, name: &'static str) -> Result<usize> {
        let sizes = self.several(name)?;
        let [size] = sizes[..] else {
            return Err(Error::invalid(name, format!("expected one whole number, got {sizes:?}")));
        };
        Ok(size)
    }

    fn size_or(&self, name: &'static str, default: usize) -> Result<usize> {
        if self.text(name).is_none() { Ok(default) } else { self.size(name) }
    }

    fn flag(&self, name: &'static str) -> Result<bool> {
        match self.text(name) {
            None | Some("false" | "False" | "0") => Ok(false),
            Some("true" | "True" | "1") => Ok(true),
            Some(text) => Err(wrong(name, "true or false", text)),
        }
    }

    fn dtype(&self, name: &'static str, default: DType) -> Result<DType> {
        const SHORT: [(&str, DType); 7] = [
            ("f16", DType::F16),
            ("bf16", DType::BF16),
            ("f32", DType::F32),
            ("f64", DType::F64),
            ("u8", DType::U8),
            ("i32", DType::I32),
            ("i64", DType::I64),
        ];
        let Some(text) = self.text(name) else { return Ok(default) };
        let known = DType::ALL.iter().map(|dtype| (dtype.name(), *dtype)).chain(SHORT);
        let found = known.into_iter().find(|(known, _)| *known == text.trim_start_matches("torch."));
        found.map(|(_, dtype)| dtype).ok_or_else(|| {
            let meant = did_you_mean(text, DType::ALL.iter().map(|dtype| dtype.name()));
            Error::invalid(name, format!("expected a dtype such as float32, got {text:?}{meant}"))
        })
    }

    fn named<T: std::str::FromStr<Err = Error>>(&self, name: &'static str, default: T) -> Result<T> {
        self.text(name).map_or(Ok(default), str::parse)
    }

    fn grid(&self) -> Result<Grid> {
        let shape = self.several("shape")?;
        let shape =
            <[usize; 3]>::try_from(shape).map_err(|shape| wrong("shape", "three sizes", &format!("{shape:?}")))?;
        Ok(Grid { origin: [0.0; 3], voxel_size: [1.0; 3], shape })
    }

    /// Refuses names that no size has.
    fn all_are_known(&self, op: &str) -> Result<()> {
        let asked = self.asked.borrow();
        match self.given.iter().find(|(name, _)| !asked.contains(name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::no_such(name.clone(), &format!("sizes of {op}"), name, asked.iter().copied()))
            }
        }
    }
}

fn wrong(name: &'static str, expected: &str, text: &str) -> Error {
    Error::invalid(name, format!("expected {expected}, got {text:?}"))
}

/// A tensor that is not there.
fn imagined(device: Device, dtype: DType, shape: &[usize]) -> Result<TensorRef<'static>> {
    let nowhere = std::ptr::without_provenance::<u8>(256);
    // SAFETY: a plan asks for sizes, and reads nothing.
    unsafe { TensorRef::from_raw(nowhere, dtype, device, Layout::contiguous(shape, dtype)?) }
}

/// What a call of an op takes on a device, where its data lives unless the way names GPUs to stream it through.
pub fn plan(op: &str, sizes: &[(String, String)], device: Device, way: &Way) -> Result<Plan> {
    let Some(&(name, _)) = OPS.iter().find(|(known, _)| *known == op) else {
        return Err(Error::no_such("op", "ops", op, OPS.iter().map(|(name, _)| *name)).op("plan"));
    };
    let sizes = Sizes { given: sizes, asked: RefCell::default() };
    plan_known(name, &sizes, device, way).map_err(|error| error.op("plan"))
}

fn plan_known(op: &'static str, sizes: &Sizes<'_>, device: Device, way: &Way) -> Result<Plan> {
    let batch = sizes.size_or("batch", 1)?;
    let tensor = |dtype, shape: &[usize]| imagined(device, dtype, shape);
    let asks = Question { op, sizes, device, way };
    match op {
        "resample" => {
            let (source, targets, dim) = (sizes.size("source")?, sizes.size("targets")?, sizes.size("dim")?);
            let (dtype, stamps) = (sizes.dtype("dtype", DType::F32)?, sizes.dtype("stamps", DType::I64)?);
            let values = tensor(dtype, &[batch, source, dim])?;
            let base = Resample::new(values, tensor(stamps, &[batch, source])?, tensor(stamps, &[batch, targets])?);
            let method = sizes.named("method", Method::Linear)?.into();
            asks.answer(&Resample { method, return_valid: sizes.flag("return_valid")?, ..base })
        }
        "fuse" => {
            let (source, dims) = (sizes.several("source")?, sizes.several("dim")?);
            ensure!(source.len() == dims.len(), "dim", "{} widths for {} streams", dims.len(), source.len());
            let (dtype, stamps) = (sizes.dtype("dtype", DType::F32)?, sizes.dtype("stamps", DType::I64)?);
            let targets = tensor(stamps, &[batch, sizes.size("targets")?])?;
            let streams = source.iter().zip(&dims);
            let samples = streams.map(|(&s, &d)| Ok((tensor(dtype, &[batch, s, d])?, tensor(stamps, &[batch, s])?)));
            let samples = samples.collect::<Result<Vec<_>>>()?;
            let streams = samples.iter().map(|(values, times)| fuse::Stream::new(values, times)).collect();
            let (return_valid, return_age) = (sizes.flag("return_valid")?, sizes.flag("return_age")?);
            let extrapolate = Extrapolate::Clamp;
            asks.answer(&Fuse { return_valid, return_age, extrapolate, ..Fuse::new(streams, targets) })
        }
        "voxelize" | "voxelize_depth" | "unproject" => asks.of_grids(batch),
        "transform_points" => {
            let points = asks.points(batch)?;
            asks.answer(&TransformPoints { points, pose: Small::Tensor(tensor(DType::F32, &[4, 4])?) })
        }
        "crop_box" => {
            let (points, compact) = (asks.points(batch)?, sizes.flag("compact")?);
            asks.answer(&CropBox { points, low: [0.0; 3], high: [1.0; 3], lengths: None, compact, check: true })
        }
        "farthest_points" => {
            let (points, k) = (asks.points(batch)?, sizes.size("k")?);
            asks.answer(&FarthestPoints { points, k, start: 0, lengths: None, check: true })
        }
        "rotation.convert" => {
            let of = |name| Representation::named(name, sizes.text(name).unwrap_or_default());
            let (source, target) = (of("source")?, of("target")?);
            let shape: Vec<_> = [batch].into_iter().chain(source.shape().iter().copied()).collect();
            asks.answer(&Convert { x: tensor(sizes.dtype("dtype", DType::F32)?, &shape)?, source, target })
        }
        _ => asks.of_robots(batch),
    }
}

/// What is asked of an op once it is made.
struct Question<'a> {
    op: &'static str,
    sizes: &'a Sizes<'a>,
    device: Device,
    way: &'a Way,
}

impl Question<'_> {
    fn points(&self, batch: usize) -> Result<TensorRef<'static>> {
        let points = self.sizes.size("points")?;
        imagined(self.device, self.sizes.dtype("dtype", DType::F32)?, &[batch, points, 3])
    }

    fn of_grids(&self, batch: usize) -> Result<Plan> {
        let sizes = self.sizes;
        let (points, count): (PointSource<'_>, usize) = if self.op == "voxelize" {
            (self.points(batch)?.into(), sizes.size("points")?)
        } else {
            let (height, width) = (sizes.size("height")?, sizes.size("width")?);
            let depth = imagined(self.device, sizes.dtype("dtype", DType::U16)?, &[batch, height, width])?;
            let intrinsics = Small::Tensor(imagined(self.device, DType::F32, &[3, 3])?);
            let image = DepthImage { depth, intrinsics, extrinsics: None, depth_scale: 1e-3 };
            if self.op == "unproject" {
                return self.answer(&Unproject { image, return_valid: sizes.flag("return_valid")? });
            }
            (image.into(), height.saturating_mul(width))
        };
        let features = match sizes.size_or("features", 0)? {
            0 => None,
            width => Some(imagined(self.device, DType::F32, &[batch, count, width])?),
        };
        let reduce = sizes.named("reduce", Reduce::Occupancy)?;
        let return_counts = sizes.flag("return_counts")?;
        self.answer(&Voxelize { features, reduce, return_counts, ..Voxelize::new(points, sizes.grid()?) })
    }

    fn of_robots(&self, batch: usize) -> Result<Plan> {
        let (sizes, joints) = (self.sizes, self.sizes.size("joints")?);
        ensure!((1..=1024).contains(&joints), "joints", "expected 1 to 1024, got {joints}");
        let row = DhRow { a: 0.1, alpha: 0.5, d: 0.1, theta: 0.0, slides: false, limits: [-1.0, 1.0] };
        let robot = Robot::from_dh(&vec![row; joints], Convention::Modified)?;
        let dtype = sizes.dtype("dtype", DType::F32)?;
        let q = imagined(self.device, dtype, &[batch, joints])?;
        let rows = |width| imagined(self.device, dtype, &[batch, width]);
        let links = match self.op {
            "fk" | "jacobian" => sizes.size_or("links", 1)?,
            _ => 1,
        };
        let names: Vec<_> = robot.link_names().collect();
        ensure!((1..=joints).contains(&links), "links", "expected 1 to {joints}, got {links}");
        let chain = robot.chain(Some(&names[names.len() - links..]))?;
        match self.op {
            "joint_velocity" => self.answer(&JointVelocity { q, twist: rows(6)?, chain: &chain, damping: 0.01 }),
            "ik" => self.answer(&InverseKinematics {
                pose: rows(7)?,
                q0: None,
                chain: &chain,
                tolerance: Tolerance { position: 1e-4, rotation: 1e-3 },
                max_iterations: 100,
                seeds: 16,
                limits: true,
            }),
            name => {
                let jacobian = name == "jacobian";
                self.answer(&Forward { q, chain: &chain, pose: !jacobian, jacobian, single: links == 1 })
            }
        }
    }

    /// Asks the op as a call would.
    fn answer<O: Op>(&self, op: &O) -> Result<Plan> {
        self.sizes.all_are_known(self.op)?;
        let gpus = self.way.devices.iter().map(|&ordinal| cuda::gpu(ordinal, 0)).collect::<Result<Vec<_>>>()?;
        let gpu = match (self.device, gpus.first()) {
            (Device::Cuda(ordinal), _) => Some(cuda::gpu(ordinal, 0)?),
            (Device::Cpu, first) => first.copied(),
        };
        let (streamed, info) = (!gpus.is_empty(), gpu.map(Gpu::info));
        let bytes = footprint(op, info)?;
        let free = if streamed {
            gpus.iter().filter_map(|gpu| gpu.free_bytes()).reduce(|one, other| one.min(other))
        } else {
            gpu.map_or_else(cpu::available_bytes, Gpu::free_bytes)
        };
        let limit = match self.way.budget {
            Some(Budget::Bytes(bytes)) => Some(bytes),
            _ => free,
        };
        let mut plan = Plan {
            op: self.op.to_owned(),
            device: gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.info().ordinal)),
            streamed,
            bytes,
            chunks: 1,
            in_flight: bytes.total(),
            limit,
            seconds: self.seconds(&bytes, gpu, streamed, gpus.len()),
            fits: limit.is_none_or(|limit| bytes.total() <= limit),
        };
        let is_divided = streamed || self.way.budget.is_some() || self.way.chunk.is_some();
        if is_divided {
            match Chunks::planned(op, &op.check()?, info, self.way, limit, streamed) {
                Ok((chunks, in_flight)) => {
                    (plan.chunks, plan.in_flight) = (chunks.division.count(), in_flight);
                    plan.fits = limit.is_none_or(|limit| in_flight <= limit);
                }
                // Not even the smallest part does.
                Err(error) if error.kind() == ErrorKind::InvalidArgument => plan.fits = false,
                Err(error) => return Err(error),
            }
        }
        Ok(plan)
    }

    fn seconds(&self, bytes: &Footprint, gpu: Option<&'static Gpu>, streamed: bool, gpus: usize) -> Option<f64> {
        let speed = match gpu {
            None => bandwidth::host(),
            Some(gpu) => bandwidth::gpu(gpu, if streamed { Link::Up } else { Link::Within }),
        }?;
        let moved =
            if streamed { bytes.input.max(bytes.output) / gpus.max(1) as u64 } else { bytes.input + bytes.output };
        Some(moved as f64 / speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_cpu(op: &str, sizes: &str, way: &Way) -> Result<Plan> {
        let pairs = sizes.split_whitespace().filter_map(|pair| pair.split_once('='));
        let pairs: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        plan(op, &pairs, Device::Cpu, way)
    }

    /// The sizes that `OPS` tells are enough for every op, and each is one.
    #[test]
    fn every_op_has_a_footprint() {
        for (op, sizes) in OPS {
            let given = sizes.split_whitespace().map(|size| match size {
                "shape" => "shape=8,8,8".to_owned(),
                "source" if *op == "rotation.convert" => "source=quat_xyzw".to_owned(),
                "target" => "target=matrix".to_owned(),
                size if size.contains('=') => size.to_owned(),
                size => format!("{size}=4"),
            });
            let given = given.collect::<Vec<_>>().join(" ");
            let plan = on_cpu(op, &given, &Way::default()).unwrap();
            assert!(plan.bytes.input > 0 && plan.bytes.output > 0 && plan.fits && plan.chunks == 1, "{plan}");
        }
    }

    #[test]
    fn a_footprint_is_that_of_the_call() {
        let sizes = "batch=256 source=500 targets=250 dim=128 dtype=bf16 return_valid=true";
        let plan = on_cpu("resample", sizes, &Way::default()).unwrap();
        assert_eq!(plan.bytes.input, 256 * (500 * 128 * 2 + 500 * 8 + 250 * 8));
        assert_eq!(plan.bytes.output, 256 * 250 * (128 * 2 + 1));
        let way = Way { budget: Some(Budget::Bytes(plan.bytes.total() / 4)), ..Way::default() };
        let plan = on_cpu("resample", sizes, &way).unwrap();
        assert!(plan.chunks == 4 && plan.fits, "{plan}");
        let way = Way { budget: Some(Budget::Bytes(10)), ..Way::default() };
        assert!(!on_cpu("resample", sizes, &way).unwrap().fits);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for (op, sizes, argument) in [
            ("resampel", "", "op"),
            ("resample", "source=1 targets=1", "dim"),
            ("resample", "source=1 targets=1 dim=x", "dim"),
            ("resample", "source=1 targets=1 dim=1 dims=1", "dims"),
            ("resample", "source=1 targets=1 dim=1 dtype=f31", "dtype"),
            ("voxelize", "points=1 shape=1,2", "shape"),
            ("fuse", "source=1,2 dim=1 targets=1", "dim"),
            ("fk", "joints=0", "joints"),
            ("resample", "batch=18446744073709551615 source=99 targets=1 dim=1", "values"),
        ] {
            let error = on_cpu(op, sizes, &Way::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert_eq!(error.op_name(), Some("plan"));
            assert!(argument == "values" || error.argument_name() == Some(argument), "{error}");
        }
    }
}
