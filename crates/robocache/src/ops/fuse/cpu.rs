//! `fuse` on the host: the jobs of all streams, run side by side.

use super::{Dims, Fuse};
use crate::ops::resample::{Destination, Rows, Stamp, StreamJob, run_jobs, stream_job, strides};
use crate::tensor::DType;
use crate::{Context, Outputs, Result};

pub(super) fn fuse(op: &Fuse<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    if op.is_empty(dims) {
        return Ok(());
    }
    match op.targets.dtype() {
        DType::I64 => with_stamps::<i64>(op, dims, out, context),
        DType::F64 => with_stamps::<f64>(op, dims, out, context),
        _ => with_stamps::<f32>(op, dims, out, context),
    }
}

fn with_stamps<S: Stamp>(op: &Fuse<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    let streams: Vec<_> = op.streams.iter().map(|stream| op.stream_op(stream, Some(dims.dtype))).collect();
    if op.check {
        for (index, (stream, part)) in streams.iter().zip(&dims.parts).enumerate() {
            if let (Some(stream), Some(samples)) = (stream, &part.samples) {
                let rows = Rows::<S>::new(stream, samples);
                rows.check(stream, context).map_err(|error| op.blame(index, error))?;
            }
        }
    }
    let (valid_place, age_place) = op.output_places();
    let (valid, valid_strides) = super::per_stream(out, valid_place);
    let (age, age_strides) = super::per_stream(out, age_place);
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let (out_strides, size) = (strides::<3>(output.view()), dims.dtype.size());
    let out = output.data_mut();
    let mut jobs = Vec::with_capacity(dims.parts.len());
    for (index, (stream, part)) in streams.iter().zip(&dims.parts).enumerate() {
        let at =
            |data: *mut u8, stride: isize, size: usize| data.wrapping_offset(stride * index as isize * size as isize);
        let to = Destination {
            out: out.wrapping_offset(part.column as isize * out_strides[2] * size as isize),
            dtype: dims.dtype,
            out_strides,
            valid: if valid.is_null() { valid } else { at(valid, valid_strides[2], 1) },
            valid_strides: [valid_strides[0], valid_strides[1]],
            age: if age.is_null() { age.cast() } else { at(age, age_strides[2], size_of::<f32>()).cast() },
            age_strides: [age_strides[0], age_strides[1]],
            // Rows of several streams share lines of the cache, so they stay there.
            stream: false,
        };
        jobs.push(match (stream, &part.samples) {
            (Some(stream), Some(samples)) => stream_job(stream, Rows::<S>::new(stream, samples), to),
            _ => Box::new(MissingJob { width: part.width, to }),
        });
    }
    run_jobs(&jobs, dims.batch, dims.targets, context)
}

/// A modality that was not recorded: zeros.
struct MissingJob {
    width: usize,
    to: Destination,
}

// SAFETY: every task writes its own rows and targets of the outputs.
unsafe impl Sync for MissingJob {}

impl StreamJob for MissingJob {
    fn target_bytes(&self) -> usize {
        self.width * self.to.dtype.size()
    }

    fn run(&self, row: usize, start: usize, end: usize) {
        let (row, size) = (row as isize, self.to.dtype.size());
        let [batch, step, column] = self.to.out_strides;
        for target in start as isize..end as isize {
            // SAFETY: the tasks stay inside the outputs; all bits 0 are the number 0 in every dtype.
            unsafe {
                self.to.mark(row, target, false, || f32::NAN);
                for i in 0..self.width as isize {
                    let offset = row * batch + target * step + i * column;
                    self.to.out.offset(offset * size as isize).write_bytes(0, size);
                }
            }
        }
    }
}
