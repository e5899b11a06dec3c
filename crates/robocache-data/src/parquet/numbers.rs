//! Arrow arrays of numbers, plain or in lists of any kind, as tensors.

use std::ops::Range;

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

/// Why a row does not hold what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another number of values.
    Shape,
    /// A value is missing.
    Null,
    /// It cannot be read at all.
    Unreadable,
}

/// A row that does not hold what it should.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) row: usize,
    pub(super) why: Why,
    pub(super) what: String,
}

/// Writes the numbers of `array` into `out`: rows of `shape`, none missing. Lists within lists must
/// have that shape at each level; one list may hold all numbers of a row.
pub(super) fn fill(array: &ArrayRef, shape: &[usize], out: &mut Tensor) -> Result<(), Misfit> {
    let width = shape.iter().product();
    let depth = list_depth(array.data_type());
    let sizes: &[usize] = match depth {
        0 if width == 1 => &[],
        1 => &[width],
        depth if depth == shape.len() => shape,
        0 => return Err(Misfit { row: 0, why: Why::Shape, what: format!("expected {width} values, got 1") }),
        _ => {
            let what = format!("expected values of shape {shape:?}, got lists in {depth} levels");
            return Err(Misfit { row: 0, why: Why::Shape, what });
        }
    };
    let mut array = array.clone();
    // Where the entries of each row begin; each list level moves them one level down.
    let mut bounds: Vec<usize> = (0..=array.len()).collect();
    for &size in sizes {
        no_nulls(&array, &bounds)?;
        let of_size = |at: usize, count: usize| {
            if count == size {
                return Ok(());
            }
            let what = match depth {
                1 => format!("expected {size} values, got {count}"),
                _ => format!("expected values of shape {shape:?}, got a list of {count} in place of {size}"),
            };
            let row = bounds.partition_point(|bound| *bound <= at).saturating_sub(1);
            Err(Misfit { row, why: Why::Shape, what })
        };
        let lists = bounds.first().copied().unwrap_or(0)..bounds.last().copied().unwrap_or(0);
        let inner = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offset = |at: usize| list.value_offsets().get(at).and_then(|at| usize::try_from(*at).ok());
                all_of_size(lists, offset, of_size)?;
                descend(&mut bounds, offset)?;
                list.values().clone()
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offset = |at: usize| list.value_offsets().get(at).and_then(|at| usize::try_from(*at).ok());
                all_of_size(lists, offset, of_size)?;
                descend(&mut bounds, offset)?;
                list.values().clone()
            }
            DataType::FixedSizeList(_, fixed) => {
                let fixed = usize::try_from(*fixed).unwrap_or(0);
                if !lists.is_empty() {
                    of_size(lists.start, fixed)?;
                }
                descend(&mut bounds, |at| at.checked_mul(fixed))?;
                array.as_fixed_size_list().values().clone()
            }
            _ => break,
        };
        array = inner;
    }
    no_nulls(&array, &bounds)?;
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
    copied.ok_or_else(|| {
        let what = format!("expected {}, got {}", out.dtype(), array.data_type());
        Misfit { row: 0, why: Why::Unreadable, what }
    })
}

/// How many levels of lists a column has.
fn list_depth(mut data: &DataType) -> usize {
    let mut depth = 0;
    while let DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) = data {
        data = item.data_type();
        depth += 1;
    }
    depth
}

/// Asks `of_size` about the size of each list.
fn all_of_size(
    lists: Range<usize>,
    offset: impl Fn(usize) -> Option<usize>,
    of_size: impl Fn(usize, usize) -> Result<(), Misfit>,
) -> Result<(), Misfit> {
    for at in lists {
        let (from, to) = (offset(at).unwrap_or(0), at.checked_add(1).and_then(&offset).unwrap_or(0));
        of_size(at, to.saturating_sub(from))?;
    }
    Ok(())
}

fn descend(bounds: &mut [usize], offset: impl Fn(usize) -> Option<usize>) -> Result<(), Misfit> {
    for (row, bound) in bounds.iter_mut().enumerate() {
        *bound = offset(*bound).ok_or_else(|| Misfit {
            row,
            why: Why::Unreadable,
            what: "its list has no end".to_owned(),
        })?;
    }
    Ok(())
}

fn no_nulls(array: &ArrayRef, bounds: &[usize]) -> Result<(), Misfit> {
    let (from, to) = (bounds.first().copied().unwrap_or(0), bounds.last().copied().unwrap_or(0));
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else { return Ok(()) };
    match (from..to).find(|at| nulls.is_null(*at)) {
        Some(at) => {
            let row = bounds.partition_point(|bound| *bound <= at).saturating_sub(1);
            Err(Misfit { row, why: Why::Null, what: "a value is missing (null)".to_owned() })
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
