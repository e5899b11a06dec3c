//! Calls in parts: how an op can be cut, and into what parts. Pure arithmetic on sizes.
//!
//! An op says once which axes of its tensors are the batch and, where a row can be cut too, the items of a row
//! ([`Cuts`]). A part of the call is then the same op on views of these axes, so parts give the bits of the whole.

use std::ops::Range;

use crate::cuda::GpuInfo;
use crate::plan::{Budget, Footprint, Way};
use crate::tensor::{TensorMut, TensorRef};
use crate::{Error, Op, Result};

/// Parts that are on a GPU at a time where data streams through it: one comes, one is computed, one goes.
pub(crate) const IN_FLIGHT: u64 = 3;
/// Bytes of a part that streams: larger ones do not get faster, and pinned memory takes long to get.
const RING_BYTES: u64 = 64 << 20;

/// Tensors in the order in which an op lists its inputs.
#[derive(Debug)]
pub struct Tensors<'t>(&'t [TensorRef<'t>]);

static NOTHING: TensorRef<'static> = TensorRef::nothing();

impl<'t> Tensors<'t> {
    /// All of an op's.
    pub(crate) fn new(all: &'t [TensorRef<'t>]) -> Self {
        Self(all)
    }

    /// The next one, which stays where it is. Past the end it is nothing, which ops refuse.
    pub(crate) fn next_ref(&mut self) -> &'t TensorRef<'t> {
        let Some((first, rest)) = self.0.split_first() else { return &NOTHING };
        self.0 = rest;
        first
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> TensorRef<'t> {
        *self.next_ref()
    }

    /// The next one if the op has it.
    pub(crate) fn next_if(&mut self, is_there: bool) -> Option<TensorRef<'t>> {
        is_there.then(|| self.next())
    }

    /// The last one.
    pub(crate) fn take_last(&mut self) -> TensorRef<'t> {
        let Some((last, rest)) = self.0.split_last() else { return NOTHING };
        self.0 = rest;
        *last
    }
}

/// Which axes of a tensor are cut.
#[derive(Debug, Clone, Copy, Default)]
struct Axes {
    batch: bool,
    items: Option<usize>,
}

/// How an op can be cut. In results the batch is the first axis, and items follow it.
#[derive(Debug, Clone, Default)]
pub struct Cuts {
    batch: Option<usize>,
    items: Option<(&'static str, usize)>,
    /// In the order of the op's inputs.
    inputs: Vec<Axes>,
}

impl Cuts {
    /// Over the batch, where there is one.
    pub(crate) fn new(has_batch: bool, batch: usize) -> Self {
        Self { batch: has_batch.then_some(batch), ..Self::default() }
    }

    /// Within a row too, over so many items that do not depend on each other.
    #[must_use]
    pub(crate) fn items(self, name: &'static str, count: usize) -> Self {
        Self { items: Some((name, count)), ..self }
    }

    /// The next inputs, with the number of axes that each has beside the batch.
    #[must_use]
    pub(crate) fn inputs<'a>(mut self, tensors: impl IntoIterator<Item = (&'a TensorRef<'a>, usize)>) -> Self {
        self.inputs.extend(tensors.into_iter().map(|(tensor, inner)| Axes::of(tensor, inner)));
        self
    }

    /// The next input, whose axis `axis` of those beside the batch is that of items.
    #[must_use]
    pub(crate) fn input_of_items(mut self, tensor: &TensorRef<'_>, inner: usize, axis: usize) -> Self {
        let items = Some(tensor.shape().len().saturating_sub(inner) + axis);
        self.inputs.push(Axes { items, ..Axes::of(tensor, inner) });
        self
    }

    /// So many inputs that all parts share.
    #[must_use]
    pub(crate) fn shared(mut self, count: usize) -> Self {
        self.inputs.extend(std::iter::repeat_n(Axes::default(), count));
        self
    }

    /// Whether all parts read the whole of an input, where items are cut or not.
    fn is_whole(&self, input: usize, cuts_items: bool) -> bool {
        self.inputs.get(input).is_none_or(|axes| !(axes.batch || cuts_items && axes.items.is_some()))
    }

    /// The part of an input.
    pub(crate) fn of_input<'t>(&self, input: usize, tensor: &TensorRef<'t>, part: &Part) -> TensorRef<'t> {
        let axes = self.inputs.get(input).copied().unwrap_or_default();
        let rows = if axes.batch { tensor.part(0, part.rows.clone()) } else { *tensor };
        match (axes.items, &part.items) {
            (Some(axis), Some(items)) => rows.part(axis, items.clone()),
            _ => rows,
        }
    }

    /// The part of an output.
    pub(crate) fn of_output<'p>(&self, output: &'p mut TensorMut<'_>, part: &Part) -> TensorMut<'p> {
        output.parts(self.axes_of_outputs(part))
    }

    /// As [`Cuts::of_output`], of what others hold too.
    pub(crate) fn of_result<'t>(&self, output: &TensorRef<'t>, part: &Part) -> TensorRef<'t> {
        self.axes_of_outputs(part).fold(*output, |view, (axis, range)| view.part(axis, range))
    }

    fn axes_of_outputs(&self, part: &Part) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let rows = self.batch.map(|_| (0, part.rows.clone()));
        let items = part.items.clone().map(|items| (usize::from(self.batch.is_some()), items));
        rows.into_iter().chain(items)
    }
}

impl Axes {
    /// A batch of one is shared by all rows.
    fn of(tensor: &TensorRef<'_>, inner: usize) -> Self {
        Self { batch: tensor.shape().len() > inner && tensor.shape()[0] != 1, items: None }
    }
}

/// A part of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) rows: Range<usize>,
    /// The items of each row, where these are cut.
    pub(crate) items: Option<Range<usize>>,
}

/// Into what parts a call is cut: so many rows at a time, or so many items of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    rows: usize,
    rows_of_part: usize,
    items: usize,
    items_of_part: usize,
}

impl Division {
    /// All at once.
    pub(crate) fn whole(rows: usize, items: usize) -> Self {
        Self { rows, rows_of_part: rows, items, items_of_part: items }
    }

    /// In so many rows at a time; so many items, where there is one row.
    pub(crate) fn of_size(rows: usize, items: usize, size: usize) -> Self {
        let size = size.max(1);
        if rows > 1 || items <= 1 {
            return Self { rows_of_part: size.min(rows), ..Self::whole(rows, items) };
        }
        Self { items_of_part: size.min(items), ..Self::whole(rows, items) }
    }

    /// In the largest parts that need no more than a budget, where a part of so many rows and items needs `need`. Where
    /// even the smallest needs more, that is the error.
    pub(crate) fn within(
        rows: usize,
        items: usize,
        budget: u64,
        need: &dyn Fn(usize, usize) -> Result<u64>,
    ) -> Result<std::result::Result<Self, u64>> {
        let fits = |rows, items| Ok(need(rows, items)? <= budget);
        let whole = Self::whole(rows, items);
        if rows == 0 || items == 0 || fits(rows, items)? {
            return Ok(Ok(whole));
        }
        if let Some(most) = largest(rows, |rows| fits(rows, items))? {
            return Ok(Ok(Self { rows_of_part: most, ..whole }));
        }
        if let Some(most) = largest(items, |items| fits(1, items))? {
            return Ok(Ok(Self { rows_of_part: 1, items_of_part: most, ..whole }));
        }
        need(1, 1).map(Err)
    }

    /// With parts of half the size; none where they are as small as they can be.
    pub(crate) fn halved(self) -> Option<Self> {
        match (self.rows_of_part, self.items_of_part) {
            (0 | 1, 0 | 1) => None,
            (0 | 1, items) => Some(Self { items_of_part: items.div_ceil(2), ..self }),
            (rows, _) => Some(Self { rows_of_part: rows.div_ceil(2), ..self }),
        }
    }

    /// How many parts there are; at least one, which may be empty.
    pub(crate) fn count(self) -> usize {
        self.rows.div_ceil(self.rows_of_part.max(1)).max(1) * self.items_of_rows()
    }

    fn items_of_rows(self) -> usize {
        self.items.div_ceil(self.items_of_part.max(1)).max(1)
    }

    /// Rows and items of the largest part.
    pub(crate) fn largest(self) -> (usize, usize) {
        (self.rows_of_part, self.items_of_part)
    }

    /// Rows and items of parts that differ: of full ones and of the last.
    pub(crate) fn sizes(self) -> impl Iterator<Item = (usize, usize)> {
        let of = |all: usize, part: usize| [part, all % part.max(1)].into_iter().filter(move |&n| n > 0 || all == 0);
        let items = move || of(self.items, self.items_of_part);
        of(self.rows, self.rows_of_part).flat_map(move |rows| items().map(move |items| (rows, items)))
    }

    /// A part, in the order of rows and, within these, of items.
    pub(crate) fn part(self, index: usize) -> Part {
        let (row, item) = (index / self.items_of_rows(), index % self.items_of_rows());
        let range = |index: usize, size: usize, all: usize| (index * size).min(all)..((index + 1) * size).min(all);
        let items = (self.items_of_part < self.items).then(|| range(item, self.items_of_part, self.items));
        Part { rows: range(row, self.rows_of_part, self.rows), items }
    }

    /// A part of the largest size, for its needs.
    fn sample(rows: usize, items: usize, all_items: usize) -> Part {
        Part { rows: 0..rows, items: (items < all_items).then_some(0..items) }
    }
}

/// The largest of `1..=most` that fits; none where not even 1 does. What is larger must not fit where less does not.
fn largest(most: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<Option<usize>> {
    let (mut low, mut high) = (0, most + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((low > 0).then_some(low))
}

/// A call that can be cut.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) cuts: Cuts,
    pub(crate) division: Division,
}

/// The tensors of an op.
pub(crate) fn inputs_of<O: Op>(op: &O) -> Vec<TensorRef<'_>> {
    let mut inputs = Vec::new();
    op.inputs().for_each(|(_, tensor)| inputs.push(*tensor));
    inputs
}

/// What an op needs: bytes of its inputs, outputs and workspace.
pub(crate) fn footprint<O: Op>(op: &O, gpu: Option<&GpuInfo>) -> Result<Footprint> {
    let dims = op.check()?;
    let mut input = 0u64;
    op.inputs().for_each(|(_, tensor)| input = input.saturating_add(tensor.bytes() as u64));
    let outputs = op.outputs(&dims)?;
    let output = outputs.iter().map(|spec| (spec.layout.count() * spec.dtype.size()) as u64).sum();
    Ok(Footprint { input, output, temporary: op.workspace(&dims, gpu)? as u64 })
}

impl Chunks {
    /// All of an op in one.
    pub(crate) fn whole<O: Op>(op: &O, dims: &O::Dims) -> Self {
        let cuts = op.cuts(dims).unwrap_or_default();
        let (rows, items) = (cuts.batch.unwrap_or(1), cuts.items.map_or(1, |(_, count)| count));
        Self { division: Division::whole(rows, items), cuts }
    }

    /// As a way says, and the bytes of the parts that are in flight at a time. `free`: bytes that are.
    pub(crate) fn planned<O: Op>(
        op: &O,
        dims: &O::Dims,
        gpu: Option<&GpuInfo>,
        way: &Way,
        free: Option<u64>,
        streamed: bool,
    ) -> Result<(Self, u64)> {
        let whole = Self::whole(op, dims);
        // A GPU that is named twice has twice as many.
        let times = |gpu: &u32| way.devices.iter().filter(|other| *other == gpu).count();
        let slots = if streamed { IN_FLIGHT * way.devices.iter().map(times).max().unwrap_or(1) as u64 } else { 1 };
        let budget = match way.budget {
            Some(Budget::Bytes(budget)) => Some(budget),
            // Others need memory, too.
            Some(Budget::Auto) => free.map(|free| free / 2),
            None => free.filter(|_| streamed).map(|free| free / 2),
        };
        let mut chunks = match (way.chunk, budget) {
            (Some(size), _) => whole.of_size(size),
            (None, None) => whole,
            (None, Some(budget)) => match whole.within(op, gpu, budget, slots)? {
                Ok(chunks) => chunks,
                // Nobody has set a limit: whether there is room shows when it is asked for. Data that is there already does
                // not become smaller by parts.
                Err(_) if !matches!(way.budget, Some(Budget::Bytes(_))) => {
                    let whole = Self::whole(op, dims);
                    if streamed { whole.of_size(1) } else { whole }
                }
                Err(least) => return Err(Self::whole(op, dims).too_small(least, budget)),
            },
        };
        if streamed && way.chunk.is_none() {
            chunks = chunks.within_ring(op, gpu)?;
        }
        let bytes = chunks.in_flight(op, gpu, slots)?.total();
        Ok((chunks, bytes))
    }

    /// Bytes of so many parts at a time, or of all that there are.
    pub(crate) fn in_flight<O: Op>(&self, op: &O, gpu: Option<&GpuInfo>, slots: u64) -> Result<Footprint> {
        let (needs, shared) = self.needs(op, gpu, self.division.largest())?;
        let slots = slots.min(self.division.count() as u64);
        Ok(Footprint {
            input: shared.saturating_add((needs.input - shared).saturating_mul(slots)),
            output: needs.output.saturating_mul(slots),
            temporary: needs.temporary.saturating_mul(slots),
        })
    }

    /// In smaller parts yet, where these are so large that upload, work and download could not overlap.
    fn within_ring<O: Op>(self, op: &O, gpu: Option<&GpuInfo>) -> Result<Self> {
        let cuts = self.cuts.clone();
        let division = self.division;
        let (needs, shared) = self.needs(op, gpu, division.largest())?;
        if needs.total() - shared <= RING_BYTES {
            return Ok(self);
        }
        match self.within(op, gpu, shared.saturating_add(RING_BYTES), 1)? {
            Ok(smaller) => Ok(smaller),
            // A single item is what it is.
            Err(_) => Ok(Self { cuts, division }),
        }
    }

    /// In parts of a size that is given.
    pub(crate) fn of_size(mut self, size: usize) -> Self {
        self.division = Division::of_size(self.division.rows, self.division.items, size);
        self
    }

    /// What a part of so many rows and items needs, and how much of that all parts share.
    pub(crate) fn needs<O: Op>(
        &self,
        op: &O,
        gpu: Option<&GpuInfo>,
        (rows, items): (usize, usize),
    ) -> Result<(Footprint, u64)> {
        let part = Division::sample(rows, items, self.division.items);
        let mut shared = 0;
        let tensors = self.inputs_of_part(&inputs_of(op), &part);
        for (index, tensor) in tensors.iter().enumerate() {
            if self.cuts.is_whole(index, part.items.is_some()) {
                shared += tensor.bytes() as u64;
            }
        }
        Ok((footprint(&op.on(Tensors::new(&tensors)), gpu)?, shared))
    }

    /// In parts that take no more than a budget, `in_flight` at a time. Where even the smallest take more, that is the
    /// error.
    pub(crate) fn within<O: Op>(
        mut self,
        op: &O,
        gpu: Option<&GpuInfo>,
        budget: u64,
        in_flight: u64,
    ) -> Result<std::result::Result<Self, u64>> {
        let Division { rows, items, .. } = self.division;
        let need = |rows: usize, items: usize| {
            let (needs, shared) = self.needs(op, gpu, (rows, items))?;
            Ok(shared.saturating_add((needs.total() - shared).saturating_mul(in_flight)))
        };
        Ok(Division::within(rows, items, budget, &need)?.map(|division| {
            self.division = division;
            self
        }))
    }

    /// Whether all parts read the whole of an input.
    pub(crate) fn is_whole(&self, input: usize) -> bool {
        self.cuts.is_whole(input, self.division.items_of_part < self.division.items)
    }

    /// The error about a budget that the smallest part exceeds.
    pub(crate) fn too_small(&self, least: u64, budget: u64) -> Error {
        let unit = match (self.cuts.batch, self.cuts.items) {
            (_, Some((name, _))) => name,
            (Some(_), None) => "row",
            (None, None) => "call",
        };
        Error::invalid("max_memory", format!("expected {least} bytes or more, which one {unit} takes, got {budget}"))
    }

    /// The tensors of a part.
    pub(crate) fn inputs_of_part<'t>(&self, inputs: &[TensorRef<'t>], part: &Part) -> Vec<TensorRef<'t>> {
        let cut = |(index, tensor): (usize, &TensorRef<'t>)| self.cuts.of_input(index, tensor, part);
        inputs.iter().enumerate().map(cut).collect()
    }

    /// Bytes of workspace for any of the parts.
    pub(crate) fn workspace<O: Op>(&self, op: &O, gpu: Option<&GpuInfo>) -> Result<usize> {
        let mut most = self.division.sizes().map(|size| Ok(self.needs(op, gpu, size)?.0.temporary));
        most.try_fold(0, |most, bytes: Result<u64>| Ok(most.max(bytes? as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_and_items(division: Division) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        for index in 0..division.count() {
            let Part { rows, items } = division.part(index);
            let items = items.unwrap_or(0..division.items);
            rows.for_each(|row| items.clone().for_each(|item| seen.push((row, item))));
        }
        seen
    }

    proptest! {
        /// Every item of every row is in one part, in order, and no part needs more than the budget.
        #[test]
        fn parts_cover_a_call_once(rows in 0usize..40, items in 1usize..40, each in 1u64..9, fixed in 0u64..50, budget in 1u64..2000) {
            let need = |rows: usize, items: usize| Ok(fixed + rows as u64 * items as u64 * each);
            match Division::within(rows, items, budget, &need).unwrap() {
                Ok(division) => {
                    let all: Vec<_> = (0..rows).flat_map(|row| (0..items).map(move |item| (row, item))).collect();
                    prop_assert_eq!(rows_and_items(division), all);
                    let (most_rows, most_items) = division.largest();
                    prop_assert!(rows == 0 || need(most_rows, most_items).unwrap() <= budget);
                    let next = if most_rows < rows { need(most_rows + 1, most_items) } else { need(rows, most_items + 1) };
                    let is_whole = division.count() == 1;
                    prop_assert!(is_whole || next.unwrap() > budget || most_items < items);
                }
                Err(least) => prop_assert!(least > budget && least == fixed + each),
            }
        }

        #[test]
        fn halves_end_at_one_item(rows in 0usize..1000, items in 1usize..1000) {
            let mut division = Division::whole(rows, items);
            let mut steps = 0;
            while let Some(half) = division.halved() {
                prop_assert!(half.count() > division.count());
                (division, steps) = (half, steps + 1);
            }
            prop_assert!(steps <= 22 && division.largest() == (rows.min(1), 1));
        }
    }

    #[test]
    fn sizes_by_hand_are_rows_or_items_of_one() {
        assert_eq!(Division::of_size(10, 5, 4).count(), 3);
        assert_eq!(Division::of_size(10, 5, 4).part(2), Part { rows: 8..10, items: None });
        assert_eq!(Division::of_size(1, 5, 4).part(1), Part { rows: 0..1, items: Some(4..5) });
        assert_eq!(Division::of_size(1, 1, 4).count(), 1);
        assert_eq!(Division::of_size(0, 0, 4).count(), 1);
        assert_eq!(Division::of_size(3, 3, 99), Division::whole(3, 3));
    }
}
