//! The rows of sparse grids on the host.

use std::marker::PhantomData;
use std::ops::Range;

use super::dims::Reduce;
use super::divide::Divisor;
use super::groups::{GatherDims, GatherTargets, GatherVoxels};
use super::reduce::{Features, Members, RowOut, reduce};
use crate::cpu::{Shared, for_each, vectorized};
use crate::ops::cloud::ReadPoints;
use crate::ops::depth::with_source;
use crate::ops::scalar::{Scalar, with_float};
use crate::tensor::TensorRef;
use crate::{Context, Outputs, Result};

/// The groups of points on the host. What is read is clamped, since others may have written it.
///
/// By value where many rows are written, which could else be taken for what is read here.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    pub(super) rows: usize,
    total: usize,
    cells: *const u64,
    starts: *const i32,
    order: *const i32,
    alive: PhantomData<&'a i32>,
}

// SAFETY: views that are only read.
unsafe impl Sync for Groups<'_> {}

/// The points of a group, in their order.
pub(super) struct Group<'a> {
    order: &'a [i32],
    last: u64,
}

impl Members for Group<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.order.len()
    }
    #[inline(always)]
    fn index(&self, place: usize) -> u64 {
        u64::try_from(self.order[place]).unwrap_or(0).min(self.last)
    }
}

impl<'a> Groups<'a> {
    /// Cells, starts, order and count of so many points, of which at most `most` rows are meant.
    pub(super) fn new([cells, starts, order, count]: [TensorRef<'a>; 4], most: usize, total: usize) -> Self {
        // SAFETY: a single int64.
        let count = unsafe { count.data().cast::<i64>().read() };
        let rows = usize::try_from(count).unwrap_or(0).min(most).min(total);
        let [starts, order] = [starts, order].map(|numbers| numbers.data().cast());
        Self { rows, total, cells: cells.data().cast(), starts, order, alive: PhantomData }
    }

    #[inline(always)]
    pub(super) fn cell(&self, row: usize) -> u64 {
        // SAFETY: the row is one of `cells`.
        unsafe { self.cells.add(row).read() }
    }

    /// The first point of a row.
    #[inline(always)]
    fn first(&self, row: usize) -> u64 {
        // SAFETY: as below.
        unsafe {
            let start = self.starts.add(row).read();
            let place = usize::try_from(start).unwrap_or(0).min(self.total.saturating_sub(1));
            let index = self.order.add(place).read();
            u64::try_from(index).unwrap_or(0).min(self.total.saturating_sub(1) as u64)
        }
    }

    #[inline(always)]
    pub(super) fn points(&self, row: usize) -> Group<'a> {
        // SAFETY: `starts` has one more than there are rows, `order` as many as points.
        let at = |row: usize| unsafe { self.starts.add(row).read() };
        let end = usize::try_from(at(row + 1)).unwrap_or(0).min(self.total);
        let start = usize::try_from(at(row)).unwrap_or(0).min(end);
        // SAFETY: as above.
        let order = unsafe { std::slice::from_raw_parts(self.order.add(start), end - start) };
        Group { order, last: self.total.saturating_sub(1) as u64 }
    }
}

/// Rows of a task.
const TASK_ROWS: usize = 1024;
/// Bytes that are written twice while they are in the first cache.
const NEAR_BYTES: usize = 16 << 10;

pub(super) fn gather(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
) -> Result<()> {
    let targets = GatherTargets::new(op, out)?;
    let groups = Groups::new([op.cells, op.starts, op.order, op.count], op.rows, dims.cloud.total());
    // One result after the other: to write all results of a few rows at once was tried and is slower.
    let places = Places::new(op, &targets);
    // SAFETY: the rows exist, and no other task writes them.
    for_each_part(op.rows, context, &|rows| unsafe { write_places(&places, groups, rows) })?;
    if !targets.voxels.is_null() {
        with_float!(dims.voxel_dtype, hard_voxels, op, dims, &targets, groups, context)?;
    }
    match &op.features {
        Some(features) if op.reduce.uses_features() => {
            with_float!(features.dtype(), reduce_rows, features, op, dims, &targets, groups, context)
        }
        _ => Ok(()),
    }
}

/// Runs `body` on all rows, in tasks.
fn for_each_part(rows: usize, context: &Context<'_>, body: &(dyn Fn(Range<usize>) + Sync)) -> Result<()> {
    let part = |task: usize| task * TASK_ROWS..((task + 1) * TASK_ROWS).min(rows);
    for_each(rows.div_ceil(TASK_ROWS), context, &|task| body(part(task)))
}

/// Where cells lie and how many points they have, as they are written.
struct Places {
    coords: Shared<[i64; 4]>,
    counts: Shared<i32>,
    shape: [Divisor; 3],
}

impl Places {
    fn new(op: &GatherVoxels<'_>, targets: &GatherTargets) -> Self {
        let shape = op.grid.shape.map(|cells| Divisor::new(cells as u64));
        Self { coords: Shared(targets.coords.cast()), counts: Shared(targets.counts), shape }
    }
}

vectorized! {
    /// # Safety
    /// The rows must exist, and nobody else may use them.
    unsafe fn write_places[](to: &Places, groups: Groups<'_>, rows: Range<usize>) {
        let [x, y, z] = to.shape;
        let (coords, counts) = (to.coords.get(), to.counts.get());
        for row in rows {
            let (mut place, mut count) = ([-1; 4], 0);
            if row < groups.rows {
                let (rest, z) = z.divide(groups.cell(row));
                let (rest, y) = y.divide(rest);
                let (batch, x) = x.divide(rest);
                place = [batch as i64, x as i64, y as i64, z as i64];
                count = groups.points(row).count() as i32;
            }
            // SAFETY: the caller's promise.
            unsafe {
                *coords.add(row) = place;
                *counts.add(row) = count;
            }
        }
    }
}

/// The first points of each row as they came, zeros behind them.
fn hard_voxels<V: Scalar>(
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    with_source!(&op.points, &dims.cloud, hard_voxels_of::<_, V>, op, dims, targets, groups, context)
}

fn hard_voxels_of<P: ReadPoints, V: Scalar>(
    points: P,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let Some(most) = op.max_points else { return Ok(()) };
    let voxels = Shared(targets.voxels.cast::<V>());
    let row_length = most * (3 + dims.width);
    // Zeros are written to as many rows at once as then are still in the first cache.
    let together = (NEAR_BYTES / (row_length * size_of::<V>()).max(1)).clamp(1, TASK_ROWS);
    for_each_part(op.rows, context, &|part| {
        for first in part.clone().step_by(together) {
            let rows = first..(first + together).min(part.end);
            // SAFETY: the rows exist, no other task writes them, and their points exist.
            unsafe {
                voxels.get().add(first * row_length).write_bytes(0, rows.len() * row_length);
                let filled = rows.start..rows.end.min(groups.rows);
                write_points(points, op, dims, groups, filled.clone(), voxels.get());
                if let Some(features) = &op.features {
                    with_float!(
                        features.dtype(),
                        write_features::<V>,
                        features,
                        op,
                        dims,
                        groups,
                        filled,
                        voxels.get()
                    );
                }
            }
        }
    })
}

vectorized! {
    /// Writes the coordinates of the first points of rows that have some.
    ///
    /// # Safety
    /// The rows must exist in groups and in `voxels`, which nobody else may use.
    unsafe fn write_points[P: ReadPoints, V: Scalar](
        points: P,
        op: &GatherVoxels<'_>,
        dims: &GatherDims,
        groups: Groups<'_>,
        rows: Range<usize>,
        voxels: *mut V,
    ) {
        /// Rows whose points are asked for ahead.
        const AHEAD: usize = 16;
        if rows.is_empty() {
            return;
        }
        let (most, wide) = (op.max_points.unwrap_or(0), 3 + dims.width);
        // The cloud and the place of a point that is numbered through all of them.
        let (alone, count) = (dims.cloud.batch <= 1, Divisor::new(dims.cloud.count as u64));
        let place_of = |index: u64| if alone { (0, index) } else { count.divide(index) };
        // Cells are sorted by the cloud of their points, so it seldom changes.
        let (mut cloud, _) = place_of(groups.first(rows.start));
        let mut of = points.row(cloud as usize);
        for row in rows {
            if row + AHEAD < groups.rows {
                // Most rows have one point.
                let (soon, place) = place_of(groups.first(row + AHEAD));
                if soon == cloud {
                    points.prefetch(&of, place as usize);
                }
            }
            let members = groups.points(row);
            for slot in 0..members.count().min(most) {
                let index = members.index(slot);
                let (found, place) = place_of(index);
                if found != cloud {
                    (cloud, of) = (found, points.row(found as usize));
                }
                // SAFETY: the caller's promise; a point has three numbers, then room for its features.
                unsafe {
                    let to = voxels.add((row * most + slot) * wide);
                    for (axis, number) in points.at(&of, place as usize).into_iter().enumerate() {
                        *to.add(axis) = V::narrow(number.into());
                    }
                }
            }
        }
    }
}

/// Writes the features of the same points.
///
/// # Safety
/// As for [`write_points`].
unsafe fn write_features<F: Scalar, V: Scalar>(
    features: &TensorRef<'_>,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    groups: Groups<'_>,
    rows: Range<usize>,
    voxels: *mut V,
) {
    let features = Features::<F>::new(features, dims.feature_strides, &dims.cloud, dims.width);
    // SAFETY: the caller's promise.
    unsafe { copy_features(features, op.max_points.unwrap_or(0), groups, rows, voxels) };
}

vectorized! {
    /// # Safety
    /// As for [`write_points`].
    unsafe fn copy_features[F: Scalar, V: Scalar](
        features: Features<F>,
        most: usize,
        groups: Groups<'_>,
        rows: Range<usize>,
        voxels: *mut V,
    ) {
        for row in rows {
            let members = groups.points(row);
            for slot in 0..members.count().min(most) {
                let index = members.index(slot);
                for column in 0..features.width {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let to = voxels.add((row * most + slot) * (3 + features.width) + 3 + column);
                        *to = V::narrow((*features.at(index, column)).widen().into());
                    }
                }
            }
        }
    }
}

fn reduce_rows<F: Scalar>(
    features: &TensorRef<'_>,
    op: &GatherVoxels<'_>,
    dims: &GatherDims,
    targets: &GatherTargets,
    groups: Groups<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let features = Features::<F>::new(features, dims.feature_strides, &dims.cloud, dims.width);
    let out = Shared(targets.features);
    for_each_part(op.rows, context, &|rows| {
        // SAFETY: the rows and their points exist; no other task writes them.
        unsafe {
            let out = RowOut { data: out.get(), dtype: dims.dtype };
            reduce_part(features, groups, rows, op.reduce, out);
        }
    })
}

vectorized! {
    /// # Safety
    /// The rows and their points must exist, and nobody else may use the rows.
    unsafe fn reduce_part[F: Scalar](
        features: Features<F>,
        groups: Groups<'_>,
        rows: Range<usize>,
        how: Reduce,
        out: RowOut,
    ) {
        /// Rows whose points are asked for ahead.
        const AHEAD: usize = 32;
        for row in rows {
            if row + AHEAD < groups.rows {
                let points = groups.points(row + AHEAD);
                for place in 0..points.count().min(4) {
                    features.prefetch(points.index(place));
                }
            }
            // SAFETY: the caller's promise.
            unsafe {
                let to = out.add(row * features.width);
                if row < groups.rows && groups.points(row).count() > 0 {
                    reduce(&features, &groups.points(row), how, to);
                } else {
                    to.data.write_bytes(0, features.width * to.dtype.size());
                }
            }
        }
    }
}
