//! The calls that scenarios make, and a scenario that makes them and tells how they went.

use robocache::cuda::{DeviceBuffer, gpu, synchronize};
use robocache::ops::Resample;
use robocache::{Context, DType, Error, OutputSpec, Result, TensorRef, prepare, run};

use crate::harness::{Process, Scenario, process, say};

pub(crate) const SCENARIOS: &[Scenario] = &[("calls", calls)];

const VALUES: [f32; 3] = [0.0, 1.0, 4.0];
const TIMES: [i64; 3] = [0, 10, 20];
const TARGETS: [i64; 2] = [5, 15];

/// A whole call on a GPU: memory, kernel, waiting, reading. The fake computes nothing: zeros.
pub(crate) fn on_gpu(ordinal: u32) -> Result<Vec<f32>> {
    on_stream(ordinal, 0)
}

pub(crate) fn on_stream(ordinal: u32, stream: usize) -> Result<Vec<f32>> {
    let gpu = gpu(ordinal, stream)?;
    let values = DeviceBuffer::from_slice(gpu, &VALUES)?;
    let times = DeviceBuffer::from_slice(gpu, &TIMES)?;
    let targets = DeviceBuffer::from_slice(gpu, &TARGETS)?;
    let op = Resample::new(
        values.view(&[3, 1], DType::F32)?,
        times.view(&[3], DType::I64)?,
        targets.view(&[2], DType::I64)?,
    );
    let context = Context { stream, ..Context::default() };
    let prepared = prepare(&op, &context)?;
    let OutputSpec { dtype, layout, .. } = prepared.outputs()[0];
    let mut out = DeviceBuffer::new(gpu, layout.count() * dtype.size())?;
    prepared.run(&mut [out.view_mut(layout.shape(), dtype)?], &context)?;
    synchronize(None, None)?;
    out.to_vec()
}

/// The same on the host, with its right answer.
pub(crate) fn assert_cpu_works() {
    let op = Resample::new(
        TensorRef::from_slice(&VALUES, &[3, 1]).unwrap(),
        TensorRef::from_slice(&TIMES, &[3]).unwrap(),
        TensorRef::from_slice(&TARGETS, &[2]).unwrap(),
    );
    assert_eq!(run(&op).unwrap()[0].as_slice::<f32>().unwrap(), [0.5, 2.5]);
}

pub(crate) fn told<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{}: {error}", error.kind().name()),
    }
}

pub(crate) fn kind<T>(result: &Result<T>) -> &'static str {
    result.as_ref().map_or_else(|error: &Error| error.kind().name(), |_| "ok")
}

/// Two calls on the GPU that a variable names; the CPU must work after them.
fn calls() {
    let ordinal = std::env::var("ORDINAL").map_or(0, |ordinal| ordinal.parse().unwrap());
    for _ in 0..2 {
        say(&told(on_gpu(ordinal)));
    }
    assert_cpu_works();
}

/// What both of two equal calls said: the first, and the one after it.
pub(crate) fn two_calls(configure: impl FnOnce(Process) -> Process) -> [String; 2] {
    configure(process("calls")).run().try_into().unwrap()
}

/// Both calls must be refused with the same words, which contain all of `parts`.
pub(crate) fn assert_refused(kind: &str, parts: &[&str], configure: impl FnOnce(Process) -> Process) {
    let [first, again] = two_calls(configure);
    for part in parts {
        assert!(first.starts_with(&format!("{kind}: ")) && first.contains(part), "{kind}, {part:?}: {first}");
    }
    assert_eq!(first, again);
}
