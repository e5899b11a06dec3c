//! Reads everything in every way, for fuzzing and for tests on hostile files.

use std::ops::Range;
use std::path::Path;

use half::{bf16, f16};
use robocache::tensor::{F8E4M3, F8E5M2};
use robocache::{DType, Error, ErrorKind, Result, Tensor};

use super::{ParquetFile, arrow, fast, numbers};
use crate::Limits;

/// Reads all columns of a file, numbers both ways, and returns how many columns there are.
///
/// The first error is returned after all columns were tried; two ways that disagree about a
/// number are an error of another kind than any file can cause.
pub(crate) fn examine(path: &Path, limits: &Limits) -> Result<usize> {
    let file = ParquetFile::open(path, limits)?;
    let rows = file.rows();
    let mut failure = None;
    for root in 0..file.schema().fields().len() {
        let name = file.schema().field(root).name();
        if let Err(error) = file.read(&[name], 0..rows) {
            failure.get_or_insert(error);
        }
        if file.number_type(name).is_none() {
            continue;
        }
        let leaf = file.leaves_of(root).next().unwrap_or(0);
        let values = file.groups.iter().filter_map(|group| group.chunks.get(leaf)).map(|chunk| chunk.values);
        let values = values.fold(0, u64::saturating_add);
        let is_list = file.descriptor.column(leaf).max_rep_level() > 0;
        let shape = usize::try_from(values / rows.max(1)).ok().filter(|_| is_list);
        for rows in [0..rows, rows / 3..rows - rows / 3] {
            if let Err(error) = both(&file, root, &rows, shape.as_slice()) {
                if error.kind() == ErrorKind::InvalidArgument {
                    return Err(error);
                }
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(file.schema().fields().len()), Err)
}

/// Reads numbers both ways and compares them. Returns whether the fast way took the column.
pub(super) fn both(file: &ParquetFile, root: usize, rows: &Range<u64>, shape: &[usize]) -> Result<bool> {
    let name = file.schema().field(root).name();
    let fast_one = {
        let mut tensor = file.room(name, rows, shape)?;
        fast::fill(file, root, rows, shape, &mut tensor)?.then_some(tensor)
    };
    let mut tensor = file.room(name, rows, shape)?;
    let array = arrow::read_column(file, root, rows.clone(), 0)?;
    let slow_one = numbers::fill(&array, shape, &mut tensor);
    let agree = match (&fast_one, &slow_one) {
        (Some(fast), Ok(())) => bits(fast)? == bits(&tensor)?,
        (Some(_), Err(_)) => false,
        (None, _) => true,
    };
    if agree {
        return Ok(fast_one.is_some());
    }
    let what = slow_one.err().map_or("other numbers".to_owned(), |misfit| misfit.what);
    Err(Error::new(ErrorKind::InvalidArgument, format!("column {name:?}: the general way to read it gives {what}")))
}

/// All elements as bytes, so that NaNs compare too.
pub(crate) fn bits(tensor: &Tensor) -> Result<Vec<u8>> {
    macro_rules! bytes {
        ($type:ty) => {
            tensor.as_slice::<$type>()?.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
    }
    Ok(match tensor.dtype() {
        DType::F16 => bytes!(f16),
        DType::BF16 => bytes!(bf16),
        DType::F32 => bytes!(f32),
        DType::F64 => bytes!(f64),
        DType::U8 => bytes!(u8),
        DType::I8 => bytes!(i8),
        DType::U16 => bytes!(u16),
        DType::I16 => bytes!(i16),
        DType::U32 => bytes!(u32),
        DType::I32 => bytes!(i32),
        DType::U64 => bytes!(u64),
        DType::I64 => bytes!(i64),
        DType::Bool => tensor.as_slice::<bool>()?.iter().map(|value| u8::from(*value)).collect(),
        DType::F8E4M3 => tensor.as_slice::<F8E4M3>()?.iter().map(|value| value.0).collect(),
        DType::F8E5M2 => tensor.as_slice::<F8E5M2>()?.iter().map(|value| value.0).collect(),
    })
}
