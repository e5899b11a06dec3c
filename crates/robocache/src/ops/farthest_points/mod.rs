//! Points that lie far apart: each is the one farthest from all that were taken before.
//!
//! Distances are `(dx dx + dy dy) + dz dz` in what the points compute in, without contraction; a tie
//! takes the lower index. So every backend takes the same points. No point is taken twice; what is
//! NaN or infinite is taken last.

mod cuda;

pub(crate) use cuda::KERNELS;

use super::cloud::{Cloud, Points};
use super::rows::{Batch, given_length, strides};
use super::scalar::{Real, Scalar, with_float};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{Shared, for_each, vectorized};
use crate::cuda::{GpuInfo, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

const ALIGN: usize = 64;

/// Output 0 is `out [B,k]` int64.
#[derive(Debug, Clone)]
pub struct FarthestPoints<'a> {
    /// `[B,N,3]` or `[N,3]` floats.
    pub points: TensorRef<'a>,
    /// How many to take.
    pub k: usize,
    /// The first that is taken.
    pub start: usize,
    /// `[B]` int32 or int64: how many points of each row exist, at least `k` and more than `start`.
    pub lengths: Option<TensorRef<'a>>,
    /// Whether to look for bad lengths. Without it they are clamped, and what cannot be taken is -1.
    pub check: bool,
}

impl FarthestPoints<'_> {
    /// The least length of a row.
    fn least(&self) -> usize {
        if self.k == 0 { 0 } else { self.k.max(self.start + 1) }
    }
}

impl Op for FarthestPoints<'_> {
    const NAME: &'static str = "farthest_points";
    type Dims = Cloud;
    type On<'t>
        = FarthestPoints<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("points", &self.points)].into_iter().chain(self.lengths.as_ref().map(|x| ("lengths", x)))
    }

    fn check(&self) -> Result<Cloud> {
        let cloud = Cloud::new(&self.points, self.lengths, Batch::default())?;
        ensure!(self.k <= cloud.count, "k", "{} of {} points cannot be taken", self.k, cloud.count);
        ensure!(
            self.k == 0 || self.start < cloud.count,
            "start",
            "expected 0 to {}, got {}",
            cloud.count.saturating_sub(1),
            self.start
        );
        Ok(cloud)
    }

    fn cuts(&self, cloud: &Cloud) -> Option<Cuts> {
        let inputs = [(&self.points, 2)].into_iter().chain(self.lengths.as_ref().map(|lengths| (lengths, 0)));
        Some(Cuts::new(cloud.has_batch, cloud.batch).inputs(inputs))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> FarthestPoints<'t> {
        FarthestPoints { points: tensors.next(), lengths: tensors.next_if(self.lengths.is_some()), ..self.clone() }
    }

    fn outputs(&self, cloud: &Cloud) -> Result<Vec<OutputSpec>> {
        let shape = [cloud.batch, self.k];
        Ok(vec![OutputSpec::new("out", DType::I64, cloud.shape(&shape))?])
    }

    fn workspace(&self, cloud: &Cloud, gpu: Option<&GpuInfo>) -> Result<usize> {
        let too_many = || Error::invalid("points", "too many");
        match gpu {
            None => {
                let bytes = if self.points.dtype() == DType::F64 { 32 } else { 16 };
                cloud.total().checked_mul(bytes).and_then(|bytes| bytes.checked_add(ALIGN)).ok_or_else(too_many)
            }
            Some(_) => cuda::workspace(self, cloud),
        }
    }

    fn cpu(&self, cloud: &Cloud, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        if let Some(lengths) = self.lengths.filter(|_| self.check) {
            for row in 0..cloud.batch {
                let given = given_length(&lengths, cloud.length_stride, row);
                if !usize::try_from(given).is_ok_and(|given| (self.least()..=cloud.count).contains(&given)) {
                    return Err(bad_length(row as u64, given, self.least() as u64, cloud.count as u64));
                }
            }
        }
        with_float!(self.points.dtype(), on_host, self, cloud, out, context)
    }

    fn cuda(&self, cloud: &Cloud, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::farthest_points(self, cloud, out, launcher)
    }
}

fn bad_length(row: u64, given: i64, least: u64, most: u64) -> Error {
    Error::invalid("lengths", format!("row {row} is {given}, expected {least} to {most}"))
}

fn on_host<T: Scalar>(
    op: &FarthestPoints<'_>,
    cloud: &Cloud,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let scratch = out.workspace().map_addr(|address| address.next_multiple_of(ALIGN));
    let Some(output) = out.get(0) else { return Ok(()) };
    let [row_step, step] = strides::<2>(output.view());
    let index = Shared(output.data_mut().cast::<i64>());
    let memory = Shared(scratch.cast::<T::Compute>());
    let points = Points::<T>::new(&op.points, cloud);
    for_each(cloud.batch, context, &|row| {
        let length = cloud.length(op.lengths, row);
        // SAFETY: the workspace has four numbers for each point, and rows have parts of their own;
        // all are written before they are read.
        let (coordinates, nearest) = unsafe {
            let start = memory.get().add(4 * row * cloud.count);
            start.write_bytes(0, 4 * cloud.count);
            let axis = |axis: usize| std::slice::from_raw_parts_mut(start.add(axis * cloud.count), length);
            ([axis(0), axis(1), axis(2)], axis(3))
        };
        let number = T::Compute::from_f64;
        for at in 0..length {
            // SAFETY: the row and the point exist.
            let point = unsafe { points.at(row, at) };
            for axis in 0..3 {
                coordinates[axis][at] = point[axis];
            }
            let finite = point.iter().all(|x| x.is_finite());
            nearest[at] = number(if finite { f64::INFINITY } else { -1.0 });
        }
        let mut last = if op.start < length { op.start } else { 0 };
        for taken in 0..op.k {
            let found = if taken < length { last as i64 } else { -1 };
            // SAFETY: the row and the place exist; no other task writes this row.
            unsafe { *index.get().offset(row as isize * row_step + taken as isize * step) = found };
            if taken + 1 < length {
                // SAFETY: all four are as long.
                unsafe { next(&coordinates, nearest, &mut last) };
            }
        }
    })
}

vectorized! {
    /// Takes `last` out, brings the distances up to date and puts the farthest point into `last`; a tie takes
    /// the lower.
    ///
    /// # Safety
    /// All slices must be as long, and `last` below it.
    unsafe fn next[C: Real](points: &[&mut [C]; 3], nearest: &mut [C], last: &mut usize) {
        /// Points of a step, each with a largest distance of its own.
        const LANES: usize = 16;
        /// Points that are searched at once.
        const PART: usize = 128;
        let [x, y, z] = points;
        let (a, b, c) = (x[*last], y[*last], z[*last]);
        nearest[*last] = C::from_f64(-2.0);
        let zero = C::from_f64(0.0);
        let mut most = [C::from_f64(-3.0); LANES];
        let whole = nearest.len() / LANES * LANES;
        for at in (0..whole).step_by(LANES) {
            // SAFETY: as many follow, by the caller's promise.
            let (near, x, y, z) = unsafe {
                (
                    &mut *nearest.as_mut_ptr().add(at).cast::<[C; LANES]>(),
                    &*x.as_ptr().add(at).cast::<[C; LANES]>(),
                    &*y.as_ptr().add(at).cast::<[C; LANES]>(),
                    &*z.as_ptr().add(at).cast::<[C; LANES]>(),
                )
            };
            let mut updated = [zero; LANES];
            for lane in 0..LANES {
                let (dx, dy, dz) = (x[lane].minus(a), y[lane].minus(b), z[lane].minus(c));
                let distance = dx.times(dx).plus(dy.times(dy)).plus(dz.times(dz));
                let closer = (near[lane] >= zero) & (distance < near[lane]);
                updated[lane] = if closer { distance } else { near[lane] };
            }
            *near = updated;
            for lane in 0..LANES {
                most[lane] = if updated[lane] > most[lane] { updated[lane] } else { most[lane] };
            }
        }
        let mut greatest = C::from_f64(-3.0);
        for most in most {
            greatest = if most > greatest { most } else { greatest };
        }
        for at in whole..nearest.len() {
            let (dx, dy, dz) = (x[at].minus(a), y[at].minus(b), z[at].minus(c));
            let distance = dx.times(dx).plus(dy.times(dy)).plus(dz.times(dz));
            if (nearest[at] >= zero) & (distance < nearest[at]) {
                nearest[at] = distance;
            }
            greatest = if nearest[at] > greatest { nearest[at] } else { greatest };
        }
        // Looking for the first that is so far is cheaper than keeping its place all along.
        let holds = |part: &[C]| part.iter().fold(false, |any, near| any | (*near == greatest));
        let part = nearest.chunks(PART).position(holds).unwrap_or(0) * PART;
        *last = part + nearest[part..].iter().position(|near| *near == greatest).unwrap_or(0);
    }
}
