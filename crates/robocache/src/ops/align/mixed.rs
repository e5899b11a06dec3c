//! Streams of floats whose columns have different methods, or another dtype than the output.

use half::{bf16, f16};

use super::blend::{self, Beside, Real};
use super::cpu::{Destination, StreamJob, age_of};
use super::integers;
use super::{Arguments, ColumnRange, Method, Pick, Rows, Rules, Scale, Stamp, Stamps, strides};
use crate::cpu::{Simd, simd};
use crate::tensor::{DType, F8E4M3, F8E5M2};

/// The work for a stream whose columns have different methods, or another dtype than the output.
pub(super) fn mixed_job<'a, S: Stamp>(
    op: &Arguments<'a>,
    rows: Rows<'a, S>,
    to: Destination,
) -> Box<dyn StreamJob + 'a> {
    match op.values.dtype() {
        DType::F64 => MixedJob::<S, f64>::boxed(op, rows, to, load::<f64, f64>),
        DType::F32 => MixedJob::<S, f32>::boxed(op, rows, to, load::<f32, f32>),
        DType::F16 => MixedJob::<S, f32>::boxed(op, rows, to, load::<f16, f32>),
        DType::BF16 => MixedJob::<S, f32>::boxed(op, rows, to, load::<bf16, f32>),
        DType::I8 if op.scale.is_some() => MixedJob::<S, f32>::boxed(op, rows, to, load::<i8, f32>),
        DType::F8E4M3 => MixedJob::<S, f32>::boxed(op, rows, to, load::<F8E4M3, f32>),
        DType::F8E5M2 => MixedJob::<S, f32>::boxed(op, rows, to, load::<F8E5M2, f32>),
        _ => integers::job(op, rows, to),
    }
}

/// Reads a row of numbers, `stride` bytes apart.
type Load<T> = unsafe fn(*const u8, isize, &mut [T]);
/// Writes a row of numbers, `stride` bytes apart.
type Store<T> = unsafe fn(&[T], *mut u8, isize);

/// # Safety
/// As many numbers as `row` holds must be readable.
unsafe fn load<C: Copy, T: Real + Take<C>>(data: *const u8, stride: isize, row: &mut [T]) {
    for (index, number) in row.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *number = T::take(unsafe { data.offset(index as isize * stride).cast::<C>().read() });
    }
}

/// # Safety
/// As many numbers as `row` holds must be writable.
unsafe fn store<T: Copy, C: Give<T>>(row: &[T], data: *mut u8, stride: isize) {
    for (index, &number) in row.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { data.offset(index as isize * stride).cast::<C>().write(C::give(number)) };
    }
}

/// Stored numbers as what they compute in.
trait Take<C> {
    fn take(stored: C) -> Self;
}

/// Computed numbers as they are stored; halves by way of f32, as torch does it.
trait Give<T> {
    fn give(computed: T) -> Self;
}

macro_rules! conversions {
    ($trait:ident, $method:ident: $($from:ty => $to:ty: $convert:expr),+) => {$(
        impl $trait<$from> for $to {
            #[inline(always)]
            fn $method(number: $from) -> Self {
                ($convert)(number)
            }
        }
    )+};
}
conversions!(Take, take:
    f64 => f64: |x| x, f32 => f32: |x| x, f16 => f32: f16::to_f32, bf16 => f32: bf16::to_f32, i8 => f32: f32::from,
    F8E4M3 => f32: F8E4M3::to_f32, F8E5M2 => f32: F8E5M2::to_f32);
conversions!(Give, give:
    f32 => f16: f16::from_f32, f32 => bf16: bf16::from_f32, f32 => f32: |x| x, f32 => f64: f64::from,
    f64 => f16: |x: f64| f16::from_f32(x as f32), f64 => bf16: |x: f64| bf16::from_f32(x as f32), f64 => f32: |x: f64| x as f32, f64 => f64: |x| x);

fn store_as<T>(dtype: DType) -> Store<T>
where
    T: Copy,
    f16: Give<T>,
    bf16: Give<T>,
    f32: Give<T>,
    f64: Give<T>,
{
    match dtype {
        DType::F16 => store::<T, f16>,
        DType::BF16 => store::<T, bf16>,
        DType::F64 => store::<T, f64>,
        // Blended streams only go to floats.
        _ => store::<T, f32>,
    }
}

/// A stream of floats, computed in `T`.
struct MixedJob<'a, S, T> {
    rows: Rows<'a, S>,
    rules: Rules,
    values: *const u8,
    size: usize,
    load: Load<T>,
    store: Store<T>,
    /// One factor, or one for each column; empty where values are what they are.
    scale: Vec<f32>,
    /// Whether some columns need more than the two samples around a target.
    cubic: bool,
    to: Destination,
}

// SAFETY: inputs are only read; every task writes its own rows and targets of the outputs.
unsafe impl<S: Sync, T: Sync> Sync for MixedJob<'_, S, T> {}

/// The samples around a target, as rows of numbers.
struct Around<T> {
    earlier: Vec<T>,
    first: Vec<T>,
    second: Vec<T>,
    later: Vec<T>,
    result: Vec<T>,
}

/// Where a target lies between its two samples.
#[derive(Clone, Copy)]
struct Between<T> {
    weight: T,
    takes_later: bool,
    beside: Beside<T>,
}

impl<'a, S: Stamp, T: Real> MixedJob<'a, S, T>
where
    f16: Give<T>,
    bf16: Give<T>,
    f32: Give<T>,
    f64: Give<T>,
{
    fn boxed(op: &Arguments<'a>, rows: Rows<'a, S>, to: Destination, load: Load<T>) -> Box<dyn StreamJob + 'a> {
        let scale = match op.scale {
            None => Vec::new(),
            Some(Scale::One(scale)) => vec![*scale],
            Some(Scale::Columns(scale)) => {
                let (count, [stride]) = (scale.layout().count() as isize, strides::<1>(scale));
                // SAFETY: the view holds `count` float32 numbers, as `check` proved.
                (0..count).map(|i| unsafe { scale.data().cast::<f32>().offset(i * stride).read() }).collect()
            }
        };
        Box::new(Self {
            rules: op.rules(Method::Linear, to.valid.is_null()),
            values: op.values.data(),
            size: op.values.dtype().size(),
            load,
            store: store_as::<T>(to.dtype),
            scale,
            cubic: op.method.each().any(|method| method == Method::Cubic),
            to,
            rows,
        })
    }
}

impl<S: Stamp, T: Real> StreamJob for MixedJob<'_, S, T> {
    fn target_bytes(&self) -> usize {
        self.rows.dims.width * (2 * self.size + self.to.dtype.size()) + 2 * size_of::<S>()
    }

    fn run(&self, row: usize, start: usize, end: usize) {
        match simd() {
            // SAFETY: the instructions were found on this machine.
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => unsafe { self.run_avx2(row, start, end) },
            Simd::Baseline => self.run_with(row, start, end),
        }
    }
}

impl<S: Stamp, T: Real> MixedJob<'_, S, T> {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run_avx2(&self, row: usize, start: usize, end: usize) {
        self.run_with(row, start, end);
    }

    #[inline(always)]
    fn run_with(&self, row: usize, start: usize, end: usize) {
        let (stamps, targets) = (self.rows.stamps(row), self.rows.targets(row));
        let width = self.rows.dims.width;
        let empty = || vec![T::NAN; width];
        let mut around = Around { earlier: empty(), first: empty(), second: empty(), later: empty(), result: empty() };
        let mut hint = 0;
        for index in start..end {
            let (pick, valid) = if index < targets.len() {
                self.rules.locate(&stamps, targets.at(index), &mut hint)
            } else {
                (Pick::Missing, false)
            };
            let between = self.gather(row, &stamps, &targets, index, pick, &mut around);
            match between {
                None => around.result.fill(T::NAN),
                Some(between) => {
                    for range in self.rows.dims.ranges.iter() {
                        apply(range, &mut around, between);
                    }
                }
            }
            let (row, target, size) = (row as isize, index as isize, self.to.dtype.size() as isize);
            let [batch, step, column] = self.to.out_strides;
            // SAFETY: row < batch, index < T and `width` columns, for which the outputs' checks
            // proved the strides; no other task writes this target.
            unsafe {
                self.to.mark(row, target, valid, || age_of(&stamps, &targets, index, hint));
                (self.store)(&around.result, self.to.out.offset((row * batch + target * step) * size), column * size);
            }
        }
    }

    /// Reads the samples that a target needs; none where it has no value.
    #[inline(always)]
    fn gather(
        &self,
        row: usize,
        stamps: &Stamps<S>,
        targets: &Stamps<S>,
        index: usize,
        pick: Pick,
        around: &mut Around<T>,
    ) -> Option<Between<T>> {
        let mut between =
            Between { weight: T::ZERO, takes_later: false, beside: Beside { before: T::ZERO, behind: T::ZERO } };
        match pick {
            Pick::Missing => return None,
            Pick::Take(sample) => {
                self.read(row, sample, &mut around.first);
                around.second.copy_from_slice(&around.first);
            }
            Pick::Blend(first, second) => {
                let (target, earlier, later) = (targets.at(index), stamps.at(first), stamps.at(second));
                self.read(row, first, &mut around.first);
                self.read(row, second, &mut around.second);
                between.weight = T::weight(target, earlier, later);
                between.takes_later = !target.is_nearer_to_earlier(earlier, later);
                if self.cubic && between.weight > T::ZERO && between.weight < T::ONE {
                    let gap = S::gap(earlier, later);
                    if let Some(before) = stamps.distinct_before(first) {
                        self.read(row, before, &mut around.earlier);
                        between.beside.before = T::of(S::gap(stamps.at(before), earlier) / gap);
                    }
                    if second + 1 < stamps.len() {
                        let behind = stamps.last_equal(second + 1);
                        self.read(row, behind, &mut around.later);
                        between.beside.behind = T::of(S::gap(later, stamps.at(behind)) / gap);
                    }
                }
            }
        }
        Some(between)
    }

    #[inline(always)]
    fn read(&self, row: usize, sample: usize, numbers: &mut [T]) {
        let [batch, step, column] = self.rows.dims.value_strides.map(|stride| stride * self.size as isize);
        // SAFETY: row < batch, sample < S and D columns, for which `check` proved the strides.
        unsafe { (self.load)(self.values.offset(row as isize * batch + sample as isize * step), column, numbers) };
        match &self.scale[..] {
            [] => {}
            [scale] => numbers.iter_mut().for_each(|number| *number = *number * T::of(f64::from(*scale))),
            scales => {
                for (number, scale) in numbers.iter_mut().zip(scales) {
                    *number = *number * T::of(f64::from(*scale));
                }
            }
        }
    }
}

#[inline(always)]
fn each<T: Real>(result: &mut [T], first: &[T], second: &[T], blend: impl Fn(T, T) -> T) {
    for (result, (&first, &second)) in result.iter_mut().zip(first.iter().zip(second)) {
        *result = blend(first, second);
    }
}

/// Computes the columns of a range.
#[inline(always)]
fn apply<T: Real>(range: &ColumnRange, around: &mut Around<T>, between: Between<T>) {
    let columns = range.start..range.end;
    let (first, second) = (&around.first[columns.clone()], &around.second[columns.clone()]);
    let result = &mut around.result[columns.clone()];
    let Between { weight, takes_later, beside } = between;
    match range.method {
        Method::Previous => result.copy_from_slice(first),
        Method::Next => result.copy_from_slice(second),
        Method::Nearest => result.copy_from_slice(if takes_later { second } else { first }),
        Method::Linear => each(result, first, second, |a, b| blend::line(a, b, weight)),
        Method::Angle => each(result, first, second, |a, b| blend::angle(a, b, weight)),
        Method::Cubic => {
            let beyond = around.earlier[columns.clone()].iter().zip(&around.later[columns]);
            for (i, (&earlier, &later)) in beyond.enumerate() {
                result[i] = blend::cubic([earlier, first[i], second[i], later], beside, weight);
            }
        }
        Method::Slerp => {
            let quaternions = first.as_chunks::<4>().0.iter().zip(second.as_chunks::<4>().0);
            for (result, (a, b)) in result.as_chunks_mut::<4>().0.iter_mut().zip(quaternions) {
                let factors = blend::slerp(*a, *b, weight);
                for i in 0..4 {
                    result[i] = blend::weighted(a[i], b[i], factors);
                }
            }
        }
        Method::Rot6d => {
            let matrices = first.as_chunks::<6>().0.iter().zip(second.as_chunks::<6>().0);
            for (result, (a, b)) in result.as_chunks_mut::<6>().0.iter_mut().zip(matrices) {
                let blended: [T; 6] = std::array::from_fn(|i| blend::line(a[i], b[i], weight));
                let [x, y, z, u, v, w] = blended;
                let factors = blend::orthonormal([x, y, z], [u, v, w]);
                for i in 0..3 {
                    result[i] = blended[i] * factors[0];
                    result[i + 3] = blend::second_column(blended[i], blended[i + 3], factors);
                }
            }
        }
    }
}
