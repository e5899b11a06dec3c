//! torch tensors. torch 2.11 and newer hand out a C table (DLPack's exchange API) that describes
//! and allocates tensors without going through Python; older ones go the DLPack way.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyTuple, PyType};
use robocache::tensor::dlpack::{
    DlDevice, DlManagedTensorVersioned, DlTensor, DlVersion, ExchangeApi, MAJOR_VERSION, ToObject, describe_into,
};
use robocache::{DType, Device, Error, ErrorKind, Layout, MAX_RANK, Memory, OutputSpec, Result, TensorRef};

use crate::described::{Described, Keep};
use crate::input::Input;
use crate::{dlpack, errors};

/// What is known about the torch in this process.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    is_grad_enabled: Py<PyAny>,
    requires_grad: Attribute,
    new_empty_strided: Py<PyAny>,
    on_current_gpu: Option<OnCurrentGpu>,
    /// Our dtypes that this torch has, and its own.
    dtypes: Vec<(DType, Py<PyAny>)>,
    /// The names of `torch.autograd.forward_ad`.
    forward_ad: Py<PyDict>,
    dispatch_modes: Option<Py<PyAny>>,
    functorch_is_active: Option<Py<PyAny>>,
    api: Option<&'static ExchangeApi>,
}

/// What code that torch has compiled allocates with, quicker than public functions. Not public itself, so nothing may
/// depend on its being there.
struct OnCurrentGpu {
    /// From shape, strides and dtype.
    allocate: Py<PyAny>,
    /// The ordinal of the GPU where that is.
    current: Py<PyAny>,
}

impl OnCurrentGpu {
    /// Whether it allocates on that GPU. Elsewhere it would wake a GPU up that nobody has chosen.
    fn is(&self, py: Python<'_>, ordinal: u32) -> bool {
        robocache::cuda::is_only_gpu()
            || self.current.call0(py).is_ok_and(|current| current.extract(py).is_ok_and(|at: u32| at == ordinal))
    }
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Torch {
    /// torch, when `object` is one of its tensors. Never imports torch: without it having been
    /// imported there is no tensor.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Option<&'static Self> {
        let torch = Self::loaded(object.py())?;
        (torch.is_exact(object) || torch.is_tensor(object)).then_some(torch)
    }

    /// torch, when it has been imported.
    pub(crate) fn loaded(py: Python<'_>) -> Option<&'static Self> {
        if let Some(known) = TORCH.get(py) {
            return Some(known);
        }
        static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let modules = MODULES.import(py, "sys", "modules").ok()?;
        // A torch that is still being imported has no tensors yet; look again at the next call.
        let module = modules.get_item(intern!(py, "torch")).ok()?;
        let found = Self::new(&module).ok()?;
        Some(TORCH.get_or_init(py, || found))
    }

    fn new(module: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = module.getattr("Tensor")?.cast_into::<PyType>()?;
        // Not public, but older than every torch that we know; without them nothing is asked.
        let internal = |name: &str| module.getattr("_C").and_then(|c| c.getattr(name)).map(Bound::unbind).ok();
        let allocate = internal("_dynamo").and_then(|module| {
            let guards = module.bind(tensor.py()).getattr("guards").ok()?;
            guards.getattr("_empty_strided_cuda").map(Bound::unbind).ok()
        });
        let on_current_gpu = allocate.zip(internal("_cuda_getDevice"));
        let dtypes = DType::ALL.iter().filter_map(|&dtype| Some((dtype, module.getattr(dtype.name()).ok()?.unbind())));
        Ok(Self {
            dtypes: dtypes.collect(),
            on_current_gpu: on_current_gpu.map(|(allocate, current)| OnCurrentGpu { allocate, current }),
            api: exchange_api(&tensor),
            parameter: module.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?.unbind(),
            new_empty_strided: tensor.getattr("new_empty_strided")?.unbind(),
            requires_grad: Attribute::of(&tensor, "requires_grad")?,
            is_grad_enabled: module.getattr("is_grad_enabled")?.unbind(),
            forward_ad: module.getattr("autograd")?.getattr("forward_ad")?.cast_into::<PyModule>()?.dict().unbind(),
            dispatch_modes: internal("_len_torch_dispatch_stack"),
            functorch_is_active: internal("_are_functorch_transforms_active"),
            tensor: tensor.unbind(),
        })
    }

    /// Whether this is a plain tensor, and of no subclass.
    pub(crate) fn is_exact(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: an object has a type; the addresses are only compared.
        let class = unsafe { ffi::Py_TYPE(object.as_ptr()) }.cast();
        class == self.tensor.as_ptr() || class == self.parameter.as_ptr()
    }

    /// Whether this is a tensor of any class.
    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        is_of(object, self.tensor.bind(object.py()))
    }

    /// Whether something looks at all calls on tensors: a dispatch mode, functorch (vmap, grad, ...), whose
    /// tensors may be wrapped, or forward differentiation, whose tangents would be lost without a word.
    pub(crate) fn is_watching(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(modes) = &self.dispatch_modes
            && modes.call0(py)?.is_truthy(py)?
        {
            return Ok(true);
        }
        if let Some(is_active) = &self.functorch_is_active
            && is_active.call0(py)?.is_truthy(py)?
        {
            return Ok(true);
        }
        // Entering a level of forward differentiation is rare; looking for it costs a load.
        let level = self.forward_ad.bind(py).get_item(intern!(py, "_current_level"))?;
        Ok(level.and_then(|level| level.extract::<i64>().ok()).unwrap_or(-1) >= 0)
    }

    /// Describes a tensor; of its gradients torch has taken care ([`crate::torch_op`]).
    pub(crate) fn describe<'py>(
        &self,
        name: &'static str,
        tensor: &Bound<'py, PyAny>,
        to: &mut Described<'py>,
    ) -> Result<()> {
        self.describe_plain(name, tensor, to)?;
        // Views such as `z.conj().imag` are negated only when read, which DLPack does not tell. They
        // skip every other number, so dense tensors need not be asked.
        let layout = to.tensor.layout();
        if layout.count() == 1 || !layout.is_contiguous() { self.resolve_negation(name, tensor, to) } else { Ok(()) }
    }

    /// Describes a copy where a tensor is negated when it is read.
    fn resolve_negation<'py>(
        &self,
        name: &'static str,
        tensor: &Bound<'py, PyAny>,
        to: &mut Described<'py>,
    ) -> Result<()> {
        let py = tensor.py();
        let refused = |error: PyErr| errors::from_python(py, ErrorKind::Unsupported, name, &error);
        if tensor.call_method0(intern!(py, "is_neg")).and_then(|neg| neg.is_truthy()).map_err(refused)? {
            let copy = tensor.call_method0("resolve_neg").map_err(refused)?;
            to.tensor = TensorRef::nothing();
            self.describe_plain(name, &copy, to)?;
            (to.read_only, to.keep) = (true, Keep::Copy { _copy: copy });
        }
        Ok(())
    }

    /// Describes an ordinary tensor.
    fn describe_plain<'py>(
        &self,
        name: &'static str,
        tensor: &Bound<'py, PyAny>,
        to: &mut Described<'py>,
    ) -> Result<()> {
        let Some(view) = self.api.and_then(|api| api.view_object).filter(|_| self.is_exact(tensor)) else {
            let detached = tensor.call_method0("detach").map_err(|error| refused(name, tensor, &error))?;
            let described = dlpack::describe(name, &detached, None);
            *to = described.map_err(|error| in_our_words(name, tensor, error))?;
            return Ok(());
        };
        let mut described = DlTensor {
            data: std::ptr::null_mut(),
            device: DlDevice { device_type: 0, device_id: 0 },
            ndim: 0,
            dtype: DType::U8.to_dlpack(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        // SAFETY: the table belongs to this exact type; the interpreter is attached.
        if unsafe { view(tensor.as_ptr().cast(), &raw mut described) } != 0 {
            return Err(refused(name, tensor, &PyErr::fetch(tensor.py())));
        }
        // SAFETY: torch filled shape and strides, which live as long as the tensor; so does its memory.
        let done = unsafe { describe_into(&described, &mut to.tensor) };
        done.map_err(|error| in_our_words(name, tensor, error))
    }

    /// Whether a gradient is wanted, backwards.
    pub(crate) fn wants_grad(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = tensor.py();
        // A subclass may have its own idea of it.
        let wanted = match self.is_exact(tensor) {
            true => self.requires_grad.get(tensor)?,
            false => tensor.getattr(intern!(py, "requires_grad"))?,
        };
        // Nearly always False itself, which is told without asking.
        Ok(!wanted.is(PyBool::new(py, false))
            && wanted.is_truthy()?
            && self.is_grad_enabled.call0(py)?.is_truthy(py)?)
    }

    /// The handle of torch's current stream on a GPU.
    pub(crate) fn current_stream(&self, py: Python<'_>, ordinal: u32) -> PyResult<usize> {
        let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
        if let Some(current) = self.api.and_then(|api| api.current_stream) {
            let mut stream = std::ptr::null_mut();
            let device = Device::Cuda(0).to_dlpack().device_type;
            // SAFETY: the pointer is valid; the interpreter is attached.
            if unsafe { current(device, ordinal, &raw mut stream) } == 0 {
                return Ok(stream as usize);
            }
            return Err(PyErr::fetch(py));
        }
        py.import("torch")?.getattr("_C")?.call_method1("_cuda_getCurrentRawStream", (ordinal,))?.extract()
    }

    fn allocate_in_python<'py>(&self, spec: &OutputSpec, like: &Input<'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = like.object.py();
        let arguments = self.allocation(py, spec)?;
        if let Some(quick) = &self.on_current_gpu
            && let Device::Cuda(ordinal) = like.device()
            && quick.is(py, ordinal)
            && let Ok(made) = quick.allocate.bind(py).call1(&arguments)
        {
            return Ok(made);
        }
        // Whatever was the matter: out of memory, most likely, which this says again.
        let (shape, strides, dtype) = (arguments.get_item(0)?, arguments.get_item(1)?, arguments.get_item(2)?);
        let (new, arguments) = (self.new_empty_strided.bind(py), (&like.object, shape, strides));
        if spec.dtype == like.dtype() {
            return new.call1(arguments);
        }
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        new.call(arguments, Some(&options))
    }

    /// Shape, strides and dtype of an output, as torch is asked for them: given the strides, it is quicker than if it has to
    /// find them itself. Those of the thread's last call are kept, since most calls want the same again.
    fn allocation<'py>(&self, py: Python<'py>, spec: &OutputSpec) -> PyResult<Bound<'py, PyTuple>> {
        thread_local! {
            static LAST: RefCell<Option<(Layout, DType, Py<PyTuple>)>> = const { RefCell::new(None) };
        }
        let kept = LAST.with_borrow(|last| {
            let (layout, dtype, asked) = last.as_ref()?;
            (layout == &spec.layout && dtype == &spec.dtype).then(|| asked.bind(py).clone())
        });
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let known = self.dtypes.iter().find(|(dtype, _)| *dtype == spec.dtype);
        let missing = || pyo3::exceptions::PyAttributeError::new_err(format!("this torch has no {}", spec.dtype));
        let dtype = known.ok_or_else(missing)?.1.bind(py);
        let (shape, strides) = (PyTuple::new(py, spec.layout.shape())?, PyTuple::new(py, spec.layout.strides())?);
        let made = PyTuple::new(py, [shape.as_any(), strides.as_any(), dtype])?;
        // What was kept goes only when it is no longer borrowed.
        drop(LAST.replace(Some((spec.layout, spec.dtype, made.clone().unbind()))));
        Ok(made)
    }

    /// A new tensor for an output, from torch's own allocator. `like` is a tensor on the same device.
    pub(crate) fn allocate<'py>(&self, spec: &OutputSpec, like: &Input<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (py, device) = (like.object.py(), like.device());
        let table = self.api.and_then(|api| api.allocate.zip(api.to_object));
        // A tensor that comes by DLPack ignores `record_stream`, so on a GPU torch makes its own.
        let Some((allocate, to_object)) = table.filter(|_| device == Device::Cpu) else {
            return self.allocate_in_python(spec, like);
        };
        let mut shape = [0i64; MAX_RANK];
        for (to, &from) in shape.iter_mut().zip(spec.layout.shape()) {
            *to = i64::try_from(from).unwrap_or(i64::MAX);
        }
        let mut prototype = DlTensor {
            data: std::ptr::null_mut(),
            device: device.to_dlpack(),
            ndim: i32::try_from(spec.layout.rank()).unwrap_or(0),
            dtype: spec.dtype.to_dlpack(),
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let mut managed = std::ptr::null_mut();
        // SAFETY: the prototype outlives the call.
        let code = unsafe { allocate(&raw mut prototype, &raw mut managed, std::ptr::null_mut(), ignore_error) };
        if code != 0 || managed.is_null() {
            let _ = PyErr::take(py);
            // Out of memory, most likely: torch itself says so in its own class.
            return self.allocate_in_python(spec, like);
        }
        // SAFETY: torch's own tensor.
        unsafe { object_of(py, to_object, managed) }
    }

    /// Whether this torch takes memory of others without a way through Python.
    pub(crate) fn adopts(&self) -> bool {
        self.api.is_some_and(|api| api.to_object.is_some())
    }

    /// A new tensor for an output on the host, in this memory. None where torch does not take it; whether it has then
    /// given the memory back nobody can tell, so it is not done here.
    pub(crate) fn adopt<'py>(&self, py: Python<'py>, spec: &OutputSpec, memory: Memory) -> Option<Bound<'py, PyAny>> {
        let to_object = self.api?.to_object?;
        // SAFETY: the description owns all that it speaks of.
        unsafe { object_of(py, to_object, Adopted::describe(spec, memory)) }.ok()
    }
}

/// An attribute that a class computes or has a slot for: read without the search for it that every other way begins with.
pub(crate) struct Attribute {
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
}

impl Attribute {
    pub(crate) fn of(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        let py = class.py();
        let descriptor = class.getattr(name)?;
        // SAFETY: any type may be asked; a slot of this number is a function of this type, or null.
        let get = unsafe {
            let slot = ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_get);
            std::mem::transmute::<*mut c_void, Option<ffi::descrgetfunc>>(slot)
        };
        let Some(get) = get else {
            let _ = PyErr::take(py);
            return Err(pyo3::exceptions::PyAttributeError::new_err(name.to_owned()));
        };
        Ok(Self { descriptor: descriptor.unbind(), get })
    }

    /// Its value for an object of the class.
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: as Python calls it; the descriptor refuses objects of other classes. A new reference comes back.
        unsafe {
            let class = ffi::Py_TYPE(object.as_ptr());
            let value = (self.get)(self.descriptor.as_ptr(), object.as_ptr(), class.cast());
            Bound::from_owned_ptr_or_err(object.py(), value)
        }
    }
}

/// Memory as torch holds it, with what describes it.
struct Adopted {
    managed: DlManagedTensorVersioned,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    _memory: Memory,
}

impl Adopted {
    /// A description that owns the memory, to be given back by its deleter.
    fn describe(spec: &OutputSpec, memory: Memory) -> *mut DlManagedTensorVersioned {
        let (mut shape, mut strides, mut step) = ([0i64; MAX_RANK], [0i64; MAX_RANK], 1i64);
        for (axis, &size) in spec.layout.shape().iter().enumerate().rev() {
            (shape[axis], strides[axis]) = (i64::try_from(size).unwrap_or(i64::MAX), step);
            step = step.saturating_mul(shape[axis].max(1));
        }
        let tensor = DlTensor {
            data: memory.data().cast(),
            device: Device::Cpu.to_dlpack(),
            ndim: i32::try_from(spec.layout.rank()).unwrap_or(0),
            dtype: spec.dtype.to_dlpack(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let version = DlVersion { major: MAJOR_VERSION, minor: 0 };
        let (manager, deleter) = (std::ptr::null_mut(), Some(give_back as unsafe extern "C" fn(_)));
        let managed = DlManagedTensorVersioned { version, manager, deleter, flags: 0, tensor };
        let own = Box::into_raw(Box::new(Self { managed, shape, strides, _memory: memory }));
        // SAFETY: just made, and nobody else has it.
        unsafe {
            (*own).managed.manager = own.cast();
            (*own).managed.tensor.shape = (&raw mut (*own).shape).cast();
            (*own).managed.tensor.strides = (&raw mut (*own).strides).cast();
            &raw mut (*own).managed
        }
    }
}

/// Called once, by whoever has the tensor, on any thread.
unsafe extern "C" fn give_back(managed: *mut DlManagedTensorVersioned) {
    // SAFETY: made by `Adopted::describe`, and not used again.
    drop(unsafe { Box::from_raw((*managed).manager.cast::<Adopted>()) });
}

/// A tensor that consumes an owning description.
///
/// # Safety
/// The description must be valid until its deleter is called.
unsafe fn object_of(
    py: Python<'_>,
    to_object: ToObject,
    managed: *mut DlManagedTensorVersioned,
) -> PyResult<Bound<'_, PyAny>> {
    let mut object: *mut c_void = std::ptr::null_mut();
    // SAFETY: the caller's promise; torch returns a new reference.
    unsafe {
        if to_object(managed, &raw mut object) != 0 || object.is_null() {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr_or_err(py, object.cast())
    }
}

/// `isinstance` by the classes alone: calls nothing, and cannot fail.
pub(crate) fn is_of(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    // SAFETY: both are types, which their references keep alive.
    unsafe {
        let own = ffi::Py_TYPE(object.as_ptr());
        own == class.as_type_ptr() || ffi::PyType_IsSubtype(own, class.as_type_ptr()) != 0
    }
}

/// Why torch does not describe a tensor.
#[cold]
fn refused(name: &'static str, tensor: &Bound<'_, PyAny>, error: &PyErr) -> Error {
    in_our_words(name, tensor, errors::from_python(tensor.py(), ErrorKind::Unsupported, name, error))
}

/// As `error`, unless the kind of the tensor is why it cannot be read.
#[cold]
fn in_our_words(name: &'static str, tensor: &Bound<'_, PyAny>, error: Error) -> Error {
    reason(tensor).map_or(error, |reason| Error::unsupported(name, reason))
}

/// What is the matter with a tensor that cannot be read, where that is for its kind.
fn reason(tensor: &Bound<'_, PyAny>) -> Option<String> {
    let is = |name: &str| tensor.getattr(name).and_then(|answer| answer.is_truthy()).unwrap_or(false);
    let text =
        |name: &str| tensor.getattr(name).and_then(|it| it.str()).map_or_else(|_| "?".into(), |it| it.to_string());
    let is_wrapped = || {
        let functorch = tensor.py().import("torch._C._functorch")?;
        functorch.call_method1("is_functorch_wrapped_tensor", (tensor,))?.is_truthy()
    };
    let (layout, dtype) = (text("layout"), text("dtype"));
    if is_wrapped().unwrap_or(false) {
        Some("functorch (vmap, grad, ...) has wrapped this tensor; the data must be a tensor of torch, too".to_owned())
    } else if is("is_meta") {
        Some("a meta tensor holds no data".to_owned())
    } else if is("is_nested") {
        Some("nested tensors are not supported; pass a padded one, with lengths".to_owned())
    } else if layout != "torch.strided" {
        Some(format!("tensors of layout {layout} are not supported; pass .to_dense()"))
    } else if !DType::ALL.iter().any(|known| dtype.strip_prefix("torch.") == Some(known.name())) {
        Some(format!("dtype {dtype} is not supported"))
    } else {
        None
    }
}

/// The allocation is tried again where the error can be told properly.
unsafe extern "C" fn ignore_error(_context: *mut c_void, _kind: *const c_char, _message: *const c_char) {}

fn exchange_api(tensor: &Bound<'_, PyType>) -> Option<&'static ExchangeApi> {
    let capsule = tensor.getattr("__dlpack_c_exchange_api__").ok()?;
    // SAFETY: any object may be asked; a pointer comes back only for a capsule of this name, and
    // the table is static. Only the header is read before its version is known.
    unsafe {
        let name = c"dlpack_exchange_api".as_ptr();
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name) == 0 {
            return None;
        }
        let api = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name).cast::<ExchangeApi>();
        ((*api).header.version.major == MAJOR_VERSION).then(|| &*api)
    }
}
