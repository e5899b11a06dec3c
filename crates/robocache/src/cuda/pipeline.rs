//! Calls on data of the host that stream through GPUs.
//!
//! Each GPU of the list has a thread of its own here and a few [`Slot`]s: a part's data goes up, is computed and comes
//! down on the slot's own CUDA stream while other slots do the same, so both directions of the link and the GPU work at
//! once. Threads take the next part when they have room, so a GPU that is slower, or has less memory, does fewer. Data
//! that is not pinned goes by way of pinned memory. Where a result belongs follows from its part: the order of the work
//! does not matter.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::buffer::DeviceBuffer;
use super::device::Gpu;
use super::lane::Lane;
use super::launch::Parts;
use super::pages::{gather, scatter};
use crate::chunks::{Chunks, IN_FLIGHT, Part, Tensors, inputs_of};
use crate::plan::shown;
use crate::run::Outputs;
use crate::tensor::{DType, Device, Layout, TensorMut, TensorRef};
use crate::{Context, Error, ErrorKind, Op, OutputSpec, Result};

/// How often the calling thread looks after the others.
const LOOK: Duration = Duration::from_millis(10);

/// Streams a call through GPUs, in parts that become smaller where memory runs out.
pub(crate) fn stream<O: Op>(
    op: &O,
    chunks: &Chunks,
    gpus: &[&'static Gpu],
    out: &mut [TensorMut<'_>],
    context: &Context<'_>,
) -> Result<usize> {
    let mut division = chunks.division;
    loop {
        let smaller = Chunks { cuts: chunks.cuts.clone(), division };
        let error = match in_parts(op, &smaller, gpus, out, context) {
            Ok(()) => return Ok(division.count()),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => error,
            Err(error) => return Err(error),
        };
        let Some(halved) = division.halved() else {
            return Err(out_of_memory(op, &smaller, gpus, error));
        };
        log::info!("{}: {error}; trying {} parts instead of {}", op.name(), halved.count(), division.count());
        division = halved;
    }
}

/// What was asked, what is free, and what would fit.
fn out_of_memory<O: Op>(op: &O, chunks: &Chunks, gpus: &[&'static Gpu], error: Error) -> Error {
    let free = gpus.iter().filter_map(|gpu| gpu.free_bytes()).min();
    let needs = chunks.needs(op, gpus.first().map(|gpu| gpu.info()), chunks.division.largest());
    let (Some(free), Ok((needs, _))) = (free, needs) else { return error };
    let text = format!(
        "one part of the call takes {} on the GPU, of which {} are free; it cannot be made smaller, so only a call with \
         smaller rows would fit",
        shown(needs.total()),
        shown(free)
    );
    Error::new(ErrorKind::OutOfMemory, text).caused_by(error)
}

/// What the threads of a call have in common.
struct Shared<'c> {
    chunks: &'c Chunks,
    count: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    stop: AtomicBool,
    /// The error of the first part that has one.
    failed: Mutex<Option<(usize, Error)>>,
}

impl Shared<'_> {
    fn fail(&self, part: usize, error: Error) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.as_ref().is_none_or(|(earlier, _)| part < *earlier) {
            *failed = Some((part, error));
        }
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An output that several threads write to, each its own parts.
struct Target<'o>(TensorRef<'o>);

impl Target<'_> {
    /// # Safety
    /// Nobody else may have a view of this part.
    unsafe fn part(&self, chunks: &Chunks, part: &Part) -> Result<TensorMut<'_>> {
        let view = chunks.cuts.of_result(&self.0, part);
        // SAFETY: the caller's promise; the tensor was one that may be written to.
        unsafe { TensorMut::from_view(view) }
    }
}

fn in_parts<O: Op>(
    op: &O,
    chunks: &Chunks,
    gpus: &[&'static Gpu],
    out: &mut [TensorMut<'_>],
    context: &Context<'_>,
) -> Result<()> {
    let count = chunks.division.count();
    let shared = Shared {
        chunks,
        count,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
    };
    let inputs = inputs_of(op);
    let targets: Vec<_> = out.iter().map(|output| Target(*output.view())).collect();
    let mut interrupted = false;
    std::thread::scope(|scope| {
        let work = |gpu: &'static Gpu| {
            let (shared, inputs, targets) = (&shared, &inputs[..], &targets[..]);
            move || {
                if let Err((part, error)) = Worker::run(op, gpu, shared, inputs, targets) {
                    shared.fail(part, error);
                }
            }
        };
        let mut threads = Vec::new();
        for &gpu in gpus {
            let thread = std::thread::Builder::new().name(format!("robocache-cuda-{}", gpu.info().ordinal));
            match thread.spawn_scoped(scope, work(gpu)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let text = "cannot start a thread for a GPU";
                    shared.fail(0, Error::new(ErrorKind::OutOfMemory, text).caused_by(error));
                }
            }
        }
        let (mut told, mut waited) = (0, Duration::ZERO);
        while threads.iter().any(|thread| !thread.is_finished()) {
            // Short calls are not kept waiting.
            let pause = (LOOK / 100).max(waited / 4).min(LOOK);
            std::thread::sleep(pause);
            waited += pause;
            if !interrupted && context.interrupt.is_some_and(|interrupt| waited > LOOK && interrupt()) {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
            told = tell(&shared, context, told);
        }
        tell(&shared, context, told);
    });
    if interrupted {
        return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
    }
    if let Some((_, error)) = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(())
}

/// Tells about parts that are done since `told`.
fn tell(shared: &Shared<'_>, context: &Context<'_>, told: usize) -> usize {
    let done = shared.done.load(Ordering::Relaxed);
    if let Some(progress) = context.progress
        && done > told
    {
        progress(done, shared.count);
    }
    done
}

/// One of the GPUs of a call.
struct Worker<'w, O> {
    op: &'w O,
    gpu: &'static Gpu,
    shared: &'w Shared<'w>,
    inputs: &'w [TensorRef<'w>],
    targets: &'w [Target<'w>],
    /// Inputs that all parts read, by place.
    common: Vec<Option<DeviceBuffer>>,
}

/// A part on its way.
struct Slot {
    lane: Lane,
    memory: Option<DeviceBuffer>,
    going: Option<Going>,
}

/// What comes back of a part.
struct Going {
    index: usize,
    part: Part,
    /// Where each result lies in pinned memory; none where it went to its place.
    results: Vec<Option<usize>>,
}

impl<'w, O: Op> Worker<'w, O> {
    fn run(
        op: &'w O,
        gpu: &'static Gpu,
        shared: &'w Shared<'w>,
        inputs: &'w [TensorRef<'w>],
        targets: &'w [Target<'w>],
    ) -> std::result::Result<(), (usize, Error)> {
        let mut worker = Self { op, gpu, shared, inputs, targets, common: Vec::new() };
        let mut slots = Vec::new();
        let done = worker.run_parts(&mut slots);
        // Nothing may be freed before the GPU is done with it, whatever happened.
        let mut idle = true;
        for slot in &slots {
            idle &= slot.lane.wait().is_ok();
        }
        if idle {
            slots.into_iter().for_each(|slot| slot.lane.keep());
        } else {
            std::mem::forget((slots, std::mem::take(&mut worker.common)));
        }
        done
    }

    fn run_parts(&mut self, slots: &mut Vec<Slot>) -> std::result::Result<(), (usize, Error)> {
        self.common = self.send_common().map_err(|error| (0, error))?;
        let (mut most, mut turn, mut again) = ((IN_FLIGHT as usize).min(self.shared.count), 0, None);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let index = again.take().unwrap_or_else(|| self.shared.next.fetch_add(1, Ordering::Relaxed));
            if index >= self.shared.count {
                break;
            }
            if slots.len() < most {
                let lane = Lane::new(self.gpu).map_err(|error| (index, error))?;
                slots.push(Slot { lane, memory: None, going: None });
                turn = slots.len() - 1;
            }
            turn %= slots.len();
            self.finish(&mut slots[turn])?;
            match self.begin(&mut slots[turn], index) {
                Ok(()) => turn += 1,
                // With fewer slots there is more room.
                Err(error) if error.kind() == ErrorKind::OutOfMemory && slots.len() > 1 => {
                    slots[turn].lane.wait().map_err(|error| (index, error))?;
                    drop(slots.remove(turn));
                    (most, again) = (slots.len(), Some(index));
                    log::debug!("{}: {error}; going on with {most} parts at a time", self.op.name());
                }
                Err(error) => return Err((index, error)),
            }
        }
        // The first part that has an error is to be told.
        slots.sort_by_key(|slot| slot.going.as_ref().map(|going| going.index));
        slots.iter_mut().try_for_each(|slot| self.finish(slot))
    }

    /// Copies what all parts read to the GPU.
    fn send_common(&self) -> Result<Vec<Option<DeviceBuffer>>> {
        let send = |(index, tensor): (usize, &TensorRef<'_>)| {
            if !self.shared.chunks.is_whole(index) {
                return Ok(None);
            }
            let buffer = DeviceBuffer::new(self.gpu, tensor.bytes())?;
            let mut lane = Lane::new(self.gpu)?;
            let staged = lane.pinned(tensor.bytes())?;
            // SAFETY: there is room, and nothing else is queued on the lane.
            unsafe {
                gather(tensor, staged)?;
                lane.up(buffer.address(), staged, tensor.bytes())?;
            }
            lane.wait()?;
            lane.keep();
            Ok(Some(buffer))
        };
        self.inputs.iter().enumerate().map(send).collect()
    }

    /// Queues a part on a slot that is free.
    fn begin(&self, slot: &mut Slot, index: usize) -> Result<()> {
        let chunks = self.shared.chunks;
        let part = chunks.division.part(index);
        let tensors = chunks.inputs_of_part(self.inputs, &part);
        let (specs, workspace) = self.needs_of(&tensors)?;

        let mut places = Parts::default();
        let is_common = |place: usize| self.common.get(place).is_some_and(Option::is_some);
        let mut upload =
            |(place, tensor): (usize, &TensorRef<'_>)| (!is_common(place)).then(|| places.add(tensor.bytes()));
        let uploads: Vec<_> = tensors.iter().enumerate().map(&mut upload).collect();
        let results: Vec<_> = specs.iter().map(|spec| places.add(bytes_of(spec))).collect();
        let staged = places.bytes();
        let work = places.add(workspace);
        let memory = slot.room(self.gpu, places.bytes())?;
        let pinned = slot.lane.pinned(staged)?;
        let lane = &slot.lane;

        // SAFETY: the places lie within both memories and apart from each other; the lane is idle, and what is queued on
        // it ends before this slot is used again or freed.
        unsafe {
            let mut on_gpu = Vec::with_capacity(tensors.len());
            for (place, tensor) in tensors.iter().enumerate() {
                let address = match (uploads[place], &self.common[place]) {
                    (Some(offset), _) => {
                        let address = memory + offset as u64;
                        if tensor.layout().is_contiguous() && lane.is_pinned(tensor) {
                            lane.up(address, tensor.data(), tensor.bytes())?;
                        } else {
                            gather(tensor, pinned.add(offset))?;
                            lane.up(address, pinned.add(offset), tensor.bytes())?;
                        }
                        address
                    }
                    (None, Some(buffer)) => buffer.address(),
                    (None, None) => 0,
                };
                on_gpu.push(self.tensor(address, tensor.dtype(), tensor.shape())?);
            }
            let mut views = Vec::with_capacity(specs.len() + 1);
            for (spec, offset) in specs.iter().zip(&results) {
                let view = self.tensor(memory + *offset as u64, spec.dtype, spec.layout.shape())?;
                views.push(TensorMut::from_view(view)?);
            }
            if workspace > 0 {
                views.push(TensorMut::from_view(self.tensor(memory + work as u64, DType::U8, &[workspace])?)?);
            }
            let launcher = lane.launcher().with_first_row(part.rows.start);
            let on_part = self.op.on(Tensors::new(&on_gpu));
            on_part.cuda(&on_part.check()?, &mut Outputs::new(&mut views), &launcher)?;
            let mut going = Going { index, part, results: Vec::with_capacity(specs.len()) };
            for ((spec, offset), target) in specs.iter().zip(&results).zip(self.targets) {
                let mut result = target.part(chunks, &going.part)?;
                let (bytes, address) = (bytes_of(spec), memory + *offset as u64);
                // Bools are looked at on the way.
                let direct = spec.dtype != DType::Bool && result.view().layout().is_contiguous();
                if direct && lane.is_pinned(result.view()) {
                    lane.down(result.data_mut(), address, bytes)?;
                    going.results.push(None);
                } else {
                    lane.down(pinned.add(*offset), address, bytes)?;
                    going.results.push(Some(*offset));
                }
            }
            slot.going = Some(going);
        }
        Ok(())
    }

    /// Results and workspace of a part, whose tensors will be row-major.
    fn needs_of(&self, tensors: &[TensorRef<'_>]) -> Result<(Vec<OutputSpec>, usize)> {
        /// Where nothing is.
        const NOWHERE: u64 = 256;
        // SAFETY: sizes are asked for, and nothing is read.
        let imagine = |tensor: &TensorRef<'_>| unsafe { self.tensor(NOWHERE, tensor.dtype(), tensor.shape()) };
        let imagined = tensors.iter().map(imagine).collect::<Result<Vec<_>>>()?;
        let sizes = self.op.on(Tensors::new(&imagined));
        let dims = sizes.check()?;
        Ok((sizes.outputs(&dims)?, sizes.workspace(&dims, Some(self.gpu.info()))?))
    }

    /// Waits for the part of a slot, and puts its results where they belong.
    fn finish(&self, slot: &mut Slot) -> std::result::Result<(), (usize, Error)> {
        let Some(Going { index, part, results }) = slot.going.take() else { return Ok(()) };
        let put = || -> Result<()> {
            slot.lane.wait()?;
            for (target, offset) in self.targets.iter().zip(results) {
                let Some(offset) = offset else { continue };
                // SAFETY: parts lie apart, and each is finished once; the GPU is done with the memory.
                unsafe {
                    let mut result = target.part(self.shared.chunks, &part)?;
                    let staged = slot.lane.start().add(offset);
                    if result.view().dtype() == DType::Bool {
                        // A bool that is neither 0 nor 1 must not exist, whatever a kernel wrote.
                        let bytes = std::slice::from_raw_parts_mut(staged, result.view().layout().count());
                        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                    }
                    scatter(staged, &mut result)?;
                }
            }
            slot.lane.found().map_or(Ok(()), Err)
        };
        put().map_err(|error| (index, error))?;
        self.shared.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A row-major tensor on the GPU.
    ///
    /// # Safety
    /// The memory must be there for as long as work that reads it is queued.
    unsafe fn tensor(&self, address: u64, dtype: DType, shape: &[usize]) -> Result<TensorRef<'static>> {
        let device = Device::Cuda(self.gpu.info().ordinal);
        // SAFETY: the caller's promise.
        unsafe { TensorRef::from_raw(address as *const u8, dtype, device, Layout::contiguous(shape, dtype)?) }
    }
}

fn bytes_of(spec: &OutputSpec) -> usize {
    spec.layout.count() * spec.dtype.size()
}

impl Slot {
    /// Memory on the GPU, which is that of the last part where that is enough; returns where it begins.
    fn room(&mut self, gpu: &'static Gpu, bytes: usize) -> Result<u64> {
        if self.memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            // Freed first: both may not fit.
            self.memory = None;
            self.memory = Some(DeviceBuffer::new(gpu, bytes)?);
        }
        Ok(self.memory.as_ref().map_or(0, DeviceBuffer::address))
    }
}
