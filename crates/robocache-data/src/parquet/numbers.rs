//! Arrow arrays of numbers, plain or in lists of any kind, as tensors.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use robocache::{DType, Element, Tensor};

/// The dtype of the numbers in a column of this type, through lists.
pub(super) fn number_type(mut data: &DataType) -> Option<DType> {
    loop {
        return Some(match data {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                data = item.data_type();
                continue;
            }
            DataType::Float16 => DType::F16,
            DataType::Float32 => DType::F32,
            DataType::Float64 => DType::F64,
            DataType::UInt8 => DType::U8,
            DataType::Int8 => DType::I8,
            DataType::UInt16 => DType::U16,
            DataType::Int16 => DType::I16,
            DataType::UInt32 => DType::U32,
            DataType::Int32 => DType::I32,
            DataType::UInt64 => DType::U64,
            DataType::Int64 => DType::I64,
            DataType::Boolean => DType::Bool,
            _ => return None,
        });
    }
}

/// A row that does not hold what it should, and why.
pub(super) struct Misfit {
    pub(super) row: usize,
    pub(super) what: String,
}

/// Writes the numbers of `array` into `out`: `width` of them per row, none missing.
pub(super) fn fill(array: &ArrayRef, width: usize, out: &mut Tensor) -> Result<(), Misfit> {
    let mut array = array.clone();
    // Where the entries of each row begin; each list level moves them one level down.
    let mut bounds: Vec<usize> = (0..=array.len()).collect();
    loop {
        no_nulls(&array, &bounds)?;
        array = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                descend(&mut bounds, |at| list.value_offsets().get(at).and_then(|at| usize::try_from(*at).ok()))?;
                list.values().clone()
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                descend(&mut bounds, |at| list.value_offsets().get(at).and_then(|at| usize::try_from(*at).ok()))?;
                list.values().clone()
            }
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).unwrap_or(0);
                descend(&mut bounds, |at| at.checked_mul(size))?;
                array.as_fixed_size_list().values().clone()
            }
            _ => break,
        };
    }
    for (row, span) in bounds.windows(2).enumerate() {
        if let [from, to] = *span
            && to.checked_sub(from) != Some(width)
        {
            let what = format!("expected {width} values, got {}", to.saturating_sub(from));
            return Err(Misfit { row, what });
        }
    }
    let (from, to) = (bounds.first().copied().unwrap_or(0), bounds.last().copied().unwrap_or(0));
    let copied = match array.data_type() {
        DataType::Float16 => copy::<Float16Type>(&array, from, to, out),
        DataType::Float32 => copy::<Float32Type>(&array, from, to, out),
        DataType::Float64 => copy::<Float64Type>(&array, from, to, out),
        DataType::UInt8 => copy::<UInt8Type>(&array, from, to, out),
        DataType::Int8 => copy::<Int8Type>(&array, from, to, out),
        DataType::UInt16 => copy::<UInt16Type>(&array, from, to, out),
        DataType::Int16 => copy::<Int16Type>(&array, from, to, out),
        DataType::UInt32 => copy::<UInt32Type>(&array, from, to, out),
        DataType::Int32 => copy::<Int32Type>(&array, from, to, out),
        DataType::UInt64 => copy::<UInt64Type>(&array, from, to, out),
        DataType::Int64 => copy::<Int64Type>(&array, from, to, out),
        DataType::Boolean => copy_bools(&array, from, to, out),
        _ => None,
    };
    copied.ok_or_else(|| Misfit { row: 0, what: format!("expected {}, got {}", out.dtype(), array.data_type()) })
}

fn descend(bounds: &mut [usize], offset: impl Fn(usize) -> Option<usize>) -> Result<(), Misfit> {
    for (row, bound) in bounds.iter_mut().enumerate() {
        *bound = offset(*bound).ok_or_else(|| Misfit { row, what: "its list has no end".to_owned() })?;
    }
    Ok(())
}

fn no_nulls(array: &ArrayRef, bounds: &[usize]) -> Result<(), Misfit> {
    let (from, to) = (bounds.first().copied().unwrap_or(0), bounds.last().copied().unwrap_or(0));
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    match (from..to).find(|at| nulls.is_null(*at)) {
        Some(at) => {
            let row = bounds.partition_point(|bound| *bound <= at).saturating_sub(1);
            Err(Misfit { row, what: "a value is missing (null)".to_owned() })
        }
        None => Ok(()),
    }
}

fn copy<T: ArrowPrimitiveType<Native: Element>>(
    array: &ArrayRef,
    from: usize,
    to: usize,
    out: &mut Tensor,
) -> Option<()> {
    let values = array.as_primitive_opt::<T>()?.values().get(from..to)?;
    let out = out.as_mut_slice::<T::Native>().ok()?;
    if out.len() != values.len() {
        return None;
    }
    out.copy_from_slice(values);
    Some(())
}

fn copy_bools(array: &ArrayRef, from: usize, to: usize, out: &mut Tensor) -> Option<()> {
    let values = array.as_boolean_opt()?.values();
    let out = out.as_mut_slice::<bool>().ok()?;
    if out.len() != to - from || to > values.len() {
        return None;
    }
    for (slot, at) in out.iter_mut().zip(from..to) {
        *slot = values.value(at);
    }
    Some(())
}
