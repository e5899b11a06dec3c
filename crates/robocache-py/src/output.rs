//! Outputs: allocated by the framework of the first data argument, or the caller's own.

use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use robocache::{Context, DType, Device, Error, ErrorKind, Memory, Op, OutputSpec, Prepared, Result};

use crate::cuda;
use crate::input::{Framework, Input, Inputs};
use crate::stream::Stream;
use crate::torch::Torch;
use crate::{array, enter, errors, numpy, observe};

/// Allocates what `prepared` asks for like `like`, or takes the caller's `out`, runs the op
/// without the interpreter, and returns the results.
pub(crate) fn run<'py, O: Op>(
    prepared: &mut Prepared<'_, O>,
    like: &Input<'py>,
    out: Option<&Bound<'py, PyAny>>,
    stream: &Stream,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = like.object.py();
    let (name, device) = (prepared.name(), prepared.device());
    let fail = |error: Error| errors::to_python(py, &error.op(name));
    let count = prepared.outputs().len();
    let results = prepared.outputs().iter().filter(|spec| !spec.temporary).count();
    check_number(out, &prepared.outputs()[..results]).map_err(fail)?;
    let mut outputs = Inputs::with_room_for(count);
    for index in 0..count {
        let mut spec = prepared.outputs()[index];
        if let Some(object) = given(out, index) {
            outputs.add(spec.name, &object, Some(stream)).map_err(fail)?;
            continue;
        }
        let (object, zeroed) = loop {
            if let Some(made) = in_kept_memory(py, &spec, like, device) {
                break made;
            }
            let error = match stream.during(like, || allocate(py, name, &spec, like, device)) {
                Ok(made) => break (made, false),
                Err(error) => error,
            };
            // Smaller parts work in less memory.
            if spec.temporary && errors::is_any_out_of_memory(py, &error) && prepared.halve().map_err(fail)? {
                spec = prepared.outputs()[index];
                continue;
            }
            return Err(if errors::is_out_of_memory(py, &error) {
                fail(errors::from_python(py, ErrorKind::OutOfMemory, spec.name, &error))
            } else {
                error
            });
        };
        outputs.add_fresh(spec.name, object, zeroed).map_err(fail)?;
    }
    let mut views = outputs.views_mut().map_err(fail)?;
    let handle = stream.handle;
    let _range = observe::Range::of(py, name);
    if cuda::is_warming_up() {
        // What comes back holds nothing; ops that are made of several go on with it.
        enter::engine(py, |_| prepared.warm_up(&mut views))?;
    } else {
        enter::engine_in_parts(py, stream.progress(), |interrupt, progress| {
            let context = Context { interrupt: Some(interrupt), progress, stream: handle, way: None };
            prepared.run(&mut views, &context)
        })?;
    }
    drop(views);
    stream.keep_alive(outputs.iter())?;
    let hand_over = |(index, output): (usize, &Input<'py>)| match given(out, index) {
        Some(_) => Ok(output.object.clone()),
        None => into_framework(like, output.object.clone()),
    };
    outputs.iter().take(results).enumerate().map(hand_over).collect()
}

/// One of the caller's outputs, which are a tensor, or a tuple for ops with several.
fn given<'a, 'py>(out: Option<&'a Bound<'py, PyAny>>, index: usize) -> Option<Borrowed<'a, 'py, PyAny>> {
    match out?.cast::<PyTuple>() {
        Ok(tuple) => tuple.get_borrowed_item(index).ok(),
        Err(_) => out.filter(|_| index == 0).map(|out| out.as_borrowed()),
    }
}

/// Refuses a tuple of another length than the results.
fn check_number(out: Option<&Bound<'_, PyAny>>, specs: &[OutputSpec]) -> Result<()> {
    match out.and_then(|out| out.cast::<PyTuple>().ok()).map(|tuple| tuple.len()) {
        Some(count) if count != specs.len() => {
            let names: Vec<_> = specs.iter().map(|spec| spec.name).collect();
            Err(Error::invalid("out", format!("expected ({}), got {count} tensors", names.join(", "))))
        }
        _ => Ok(()),
    }
}

/// A large host output from the pool, and whether it is zeroed. None where the framework's own allocator is as good.
fn in_kept_memory<'py>(
    py: Python<'py>,
    spec: &OutputSpec,
    like: &Input<'py>,
    device: Device,
) -> Option<(Bound<'py, PyAny>, bool)> {
    let possible = like.framework != Framework::Torch || Torch::loaded(py).is_some_and(Torch::adopts);
    if device != Device::Cpu || !possible {
        return None;
    }
    let adopt = |memory: Memory| match like.framework {
        Framework::Torch => Torch::loaded(py)?.adopt(py, spec, memory),
        _ => array::from_memory(py, spec, memory).ok(),
    };
    let memory = Memory::new(spec.layout.count() * spec.dtype.size())?;
    let zeroed = memory.is_zeroed();
    Some((adopt(memory)?, zeroed))
}

fn allocate<'py>(
    py: Python<'py>,
    op: &'static str,
    spec: &OutputSpec,
    like: &Input<'py>,
    device: Device,
) -> PyResult<Bound<'py, PyAny>> {
    match (like.framework, Torch::loaded(py)) {
        (Framework::Torch, Some(torch)) => torch.allocate(spec, like),
        (Framework::DlPack, _) if device != Device::Cpu => cuda::allocate_cupy(py, op, spec, &like.object),
        _ => numpy::allocate(py, op, spec, &like.object),
    }
}

/// Hands a result to a framework that is neither torch nor NumPy, by the array standard's
/// `from_dlpack`; an object whose framework has no such function gets a NumPy array.
fn into_framework<'py>(like: &Input<'py>, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if like.framework != Framework::DlPack || like.device() != Device::Cpu {
        return Ok(result);
    }
    let Ok(namespace) = like.object.call_method0("__array_namespace__") else {
        return Ok(result);
    };
    let is_bf16 = result.getattr("dtype").and_then(|dtype| dtype.str()).is_ok_and(|name| name == DType::BF16.name());
    // NumPy cannot export bfloat16 by DLPack.
    let import = if is_bf16 { "asarray" } else { "from_dlpack" };
    namespace.call_method1(import, (result,))
}
