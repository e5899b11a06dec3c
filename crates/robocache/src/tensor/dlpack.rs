//! DLPack: the C structures that array libraries exchange, and their translation.
//!
//! The layout follows dlpack.h 1.x. Only the translation lives here; who owns the memory and
//! for how long is the binding's business.

use std::ffi::{c_char, c_int, c_void};

use super::{DType, Device, TensorRef};
use crate::{Error, ErrorKind, Result};

/// The major version whose structures these are.
pub const MAJOR_VERSION: u32 = 1;
/// `DLManagedTensorVersioned::flags`: the memory must not be written.
pub const FLAG_READ_ONLY: u64 = 1;

/// `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DlDevice {
    /// `DLDeviceType`.
    pub device_type: i32,
    /// Ordinal of the device.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DlDataType {
    /// `DLDataTypeCode`.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of one element.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    /// Start of the allocation.
    pub data: *mut c_void,
    /// Where it lives.
    pub device: DlDevice,
    /// Number of axes.
    pub ndim: i32,
    /// Element type.
    pub dtype: DlDataType,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` strides in elements, or null for row-major.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, the form of version 0.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensor {
    /// The description.
    pub tensor: DlTensor,
    /// The producer's own.
    pub manager: *mut c_void,
    /// Gives the tensor back; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// `DLPackVersion`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DlVersion {
    /// Structures of another major version must not be read.
    pub major: u32,
    /// Additions that keep the structures.
    pub minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct DlManagedTensorVersioned {
    /// Checked before anything else is read.
    pub version: DlVersion,
    /// The producer's own.
    pub manager: *mut c_void,
    /// Gives the tensor back; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    /// See [`FLAG_READ_ONLY`].
    pub flags: u64,
    /// The description.
    pub tensor: DlTensor,
}

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
#[derive(Debug)]
pub struct ExchangeHeader {
    /// Version of the table.
    pub version: DlVersion,
    /// A table of an older major version, or null.
    pub previous: *mut ExchangeHeader,
}

/// How the allocator of [`ExchangeApi`] reports an error: context, kind, message.
pub type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// How [`ExchangeApi`] makes a Python object of an owning description.
pub type ToObject = unsafe extern "C" fn(*mut DlManagedTensorVersioned, *mut *mut c_void) -> c_int;

/// `DLPackExchangeAPI`: what a framework offers to C callers without going through Python.
#[repr(C)]
#[derive(Debug)]
pub struct ExchangeApi {
    /// Version and older tables.
    pub header: ExchangeHeader,
    /// Allocates a tensor like a prototype.
    pub allocate:
        Option<unsafe extern "C" fn(*mut DlTensor, *mut *mut DlManagedTensorVersioned, *mut c_void, SetError) -> c_int>,
    /// An owning description of a Python tensor.
    pub from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut DlManagedTensorVersioned) -> c_int>,
    /// A Python tensor from an owning description, which it consumes.
    pub to_object: Option<ToObject>,
    /// A borrowed description of a Python tensor; may be null.
    pub view_object: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
    /// The stream that the framework queues work on.
    pub current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: frameworks hand out one static, immutable table; its functions may be called from any
// thread that is attached to the interpreter.
unsafe impl Sync for ExchangeApi {}

const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

impl Device {
    /// The device as DLPack writes it.
    pub fn to_dlpack(self) -> DlDevice {
        match self {
            Self::Cpu => DlDevice { device_type: CPU, device_id: 0 },
            Self::Cuda(index) => DlDevice { device_type: CUDA, device_id: i32::try_from(index).unwrap_or(i32::MAX) },
        }
    }

    /// Host and pinned memory are the CPU; managed memory counts as its GPU's.
    #[inline]
    pub fn from_dlpack(device: DlDevice) -> Result<Self> {
        match (device.device_type, u32::try_from(device.device_id)) {
            (CPU | CUDA_HOST, _) => Ok(Self::Cpu),
            (CUDA | CUDA_MANAGED, Ok(index)) => Ok(Self::Cuda(index)),
            (other, _) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("DLPack device type {other}; tensors live on the CPU or on CUDA"),
            )),
        }
    }
}

impl DType {
    /// The dtype as DLPack writes it.
    #[inline]
    pub const fn to_dlpack(self) -> DlDataType {
        let code = match self {
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => 0,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => 1,
            Self::F16 | Self::F32 | Self::F64 => 2,
            Self::BF16 => 4,
            Self::Bool => 6,
            Self::F8E4M3 => 10,
            Self::F8E5M2 => 12,
        };
        DlDataType { code, bits: self.size() as u8 * 8, lanes: 1 }
    }

    /// All dtypes by code and size.
    const BY_CODE: [Option<Self>; 128] = {
        let (mut table, mut index) = ([None; 128], 0);
        while index < Self::ALL.len() {
            table[Self::place(Self::ALL[index].to_dlpack())] = Some(Self::ALL[index]);
            index += 1;
        }
        table
    };

    const fn place(dtype: DlDataType) -> usize {
        (dtype.code as usize % 16) * 8 + dtype.bits.trailing_zeros() as usize % 8
    }

    /// The dtype that DLPack names, or `Unsupported` with its name.
    #[inline]
    pub fn from_dlpack(dtype: DlDataType) -> Result<Self> {
        Self::BY_CODE[Self::place(dtype)].filter(|known| known.to_dlpack() == dtype).ok_or_else(|| {
            let class = match dtype.code {
                0 => "int",
                1 => "uint",
                2 => "float",
                3 => "opaque handle",
                4 => "bfloat",
                5 => "complex",
                6 => "bool",
                7..=14 => "float8",
                _ => "unknown type of",
            };
            let bits = if class == "float8" { String::new() } else { dtype.bits.to_string() };
            let lanes = if dtype.lanes == 1 { String::new() } else { format!(" with {} lanes", dtype.lanes) };
            Error::new(ErrorKind::Unsupported, format!("dtype {class}{bits}{lanes} is not supported"))
        })
    }
}

/// The view that a `DLTensor` describes.
///
/// # Safety
/// `shape` must point to `ndim` sizes, `strides` to as many or be null; and as for [`TensorRef::from_raw`].
pub unsafe fn describe<'a>(tensor: &DlTensor) -> Result<TensorRef<'a>> {
    let mut view = TensorRef::nothing();
    // SAFETY: the caller's promise.
    unsafe { describe_into(tensor, &mut view) }.map(|()| view)
}

/// As [`describe`], in place of a view of nothing, which it stays after an error.
///
/// # Safety
/// As for [`describe`].
#[inline]
pub unsafe fn describe_into<'a>(tensor: &DlTensor, view: &mut TensorRef<'a>) -> Result<()> {
    let dtype = DType::from_dlpack(tensor.dtype)?;
    let device = Device::from_dlpack(tensor.device)?;
    let rank = usize::try_from(tensor.ndim)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("{} axes", tensor.ndim)))?;
    if rank > 0 && tensor.shape.is_null() {
        return Err(Error::new(ErrorKind::InvalidArgument, "DLPack tensor without a shape"));
    }
    // SAFETY: the caller vouches for `rank` elements behind each pointer that is not null.
    let (shape, strides) = unsafe {
        (
            if rank == 0 { &[][..] } else { std::slice::from_raw_parts(tensor.shape, rank) },
            (rank > 0 && !tensor.strides.is_null()).then(|| std::slice::from_raw_parts(tensor.strides, rank)),
        )
    };
    let offset = usize::try_from(tensor.byte_offset)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, "byte offset outside the address space"))?;
    let data = tensor.data.cast::<u8>().wrapping_add(offset);
    // SAFETY: the caller's promise.
    unsafe { view.fill(data, (dtype, device), (shape, strides)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_survives_the_way_there_and_back() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_dlpack(dtype.to_dlpack()).unwrap(), dtype);
        }
    }

    #[test]
    fn foreign_types_are_named() {
        let complex = DlDataType { code: 5, bits: 64, lanes: 1 };
        let error = DType::from_dlpack(complex).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("complex64"), "{error}");
        let vector = DlDataType { code: 2, bits: 32, lanes: 4 };
        assert!(DType::from_dlpack(vector).unwrap_err().to_string().contains("4 lanes"));
    }

    #[test]
    fn pinned_memory_is_host_memory_and_other_devices_are_refused() {
        let device = |device_type| Device::from_dlpack(DlDevice { device_type, device_id: 1 });
        assert_eq!(device(CUDA_HOST).unwrap(), Device::Cpu);
        assert_eq!(device(CUDA).unwrap(), Device::Cuda(1));
        assert_eq!(device(8).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(Device::from_dlpack(DlDevice { device_type: CUDA, device_id: -1 }).is_err());
    }

    #[test]
    fn a_tensor_is_described_with_its_offset() {
        let mut data = [0f32; 12];
        let (mut shape, mut strides) = ([2i64, 3], [1i64, 2]);
        let mut tensor = DlTensor {
            data: data.as_mut_ptr().cast(),
            device: Device::Cpu.to_dlpack(),
            ndim: 2,
            dtype: DType::F32.to_dlpack(),
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 8,
        };
        // SAFETY: shape and strides hold two elements.
        let described = unsafe { describe(&tensor) }.unwrap();
        assert_eq!(described.data() as usize, data.as_ptr() as usize + 8);
        assert_eq!((described.shape(), described.layout().strides()), (&[2, 3][..], &[1, 2][..]));
        tensor.ndim = -1;
        // SAFETY: a negative rank reads nothing.
        assert!(unsafe { describe(&tensor) }.is_err());
    }
}
