//! The names of methods and ends, and which columns a method applies to.

use std::fmt;
use std::str::FromStr;

use crate::ops::rows::{by_name, name_of};
use crate::{Error, Result, ensure};

/// How a value between two samples is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// On the straight line between the two samples.
    Linear,
    /// The closer sample; the earlier one when both are equally close.
    Nearest,
    /// The sample before, held (zero-order hold).
    Previous,
    /// The sample after.
    Next,
    /// A cubic without overshoot through the samples (monotone, PCHIP). Linear between two samples.
    Cubic,
    /// Along the shorter arc between quaternions xyzw, with unit length; four columns each.
    Slerp,
    /// Along the shorter way around the circle, in [−π, π).
    Angle,
    /// The first two columns of a rotation matrix, blended and made orthonormal again; six columns
    /// each.
    Rot6d,
}

impl Method {
    /// The names of all methods.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    const NAMES: [(&'static str, Self); 8] = [
        ("linear", Self::Linear),
        ("nearest", Self::Nearest),
        ("previous", Self::Previous),
        ("next", Self::Next),
        ("cubic", Self::Cubic),
        ("slerp", Self::Slerp),
        ("angle", Self::Angle),
        ("rot6d", Self::Rot6d),
    ];

    /// Whether every value is one of the samples, so that any dtype will do.
    pub fn copies(self) -> bool {
        matches!(self, Self::Nearest | Self::Previous | Self::Next)
    }

    /// Whether samples have a normal form, which is what a target at a stamp gives: unit length, an angle in [−π, π).
    pub fn has_normal_form(self) -> bool {
        matches!(self, Self::Slerp | Self::Angle | Self::Rot6d)
    }

    /// Whether a straight line goes on where the samples end.
    pub fn extrapolates(self) -> bool {
        matches!(self, Self::Linear | Self::Cubic)
    }

    /// Whether the result is not linear in the values, so that its gradient depends on them.
    pub fn reads_values(self) -> bool {
        matches!(self, Self::Cubic | Self::Slerp | Self::Rot6d)
    }

    /// Columns that belong together.
    pub fn columns(self) -> usize {
        match self {
            Self::Slerp => 4,
            Self::Rot6d => 6,
            _ => 1,
        }
    }

    /// Whether the loops and kernels for whole rows know it.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::Linear || self.copies()
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        by_name("method", &Self::NAMES, name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

/// A method and the columns it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnRange {
    /// How these columns are interpolated.
    pub method: Method,
    /// The first column.
    pub start: usize,
    /// The column after the last.
    pub end: usize,
}

impl fmt::Display for ColumnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, {}, {})", name_of(&Method::NAMES, &self.method), self.start, self.end)
    }
}

/// One method for all columns, or ranges that cover every column once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Methods {
    /// The same method for all columns.
    One(Method),
    /// Methods by columns, in any order.
    Ranges(Vec<ColumnRange>),
}

impl From<Method> for Methods {
    fn from(method: Method) -> Self {
        Self::One(method)
    }
}

/// Methods by columns, in order; one of them needs no memory.
#[derive(Debug)]
pub(in crate::ops) enum Ranges {
    One(ColumnRange),
    Many(Vec<ColumnRange>),
}

impl std::ops::Deref for Ranges {
    type Target = [ColumnRange];

    fn deref(&self) -> &[ColumnRange] {
        match self {
            Self::One(range) => std::slice::from_ref(range),
            Self::Many(ranges) => ranges,
        }
    }
}

impl Methods {
    /// Whether the gradient of some columns depends on the values.
    pub fn reads_values(&self) -> bool {
        self.each().any(Method::reads_values)
    }

    /// Every method that is used.
    pub fn each(&self) -> impl Iterator<Item = Method> + '_ {
        let (one, ranges) = match self {
            Self::One(method) => (Some(*method), &[][..]),
            Self::Ranges(ranges) => (None, &ranges[..]),
        };
        one.into_iter().chain(ranges.iter().map(|range| range.method))
    }

    /// The method of all columns, if there is one that the loops for whole rows know.
    pub(crate) fn plain(&self) -> Option<Method> {
        let first = match self {
            Self::One(method) => *method,
            Self::Ranges(ranges) => {
                let first = ranges.first()?.method;
                ranges.iter().all(|range| range.method == first).then_some(first)?
            }
        };
        first.is_plain().then_some(first)
    }

    /// The ranges in order of columns, neighbours of one method as one; refuses what does not cover
    /// `width` columns exactly once. `whose` is the argument that has the columns.
    pub(in crate::ops) fn ranges(&self, whose: &'static str, width: usize) -> Result<Ranges> {
        let nothing_covers = |start: usize, end: usize| {
            let columns =
                if end - start == 1 { format!("column {start}") } else { format!("columns {start} to {}", end - 1) };
            Error::invalid("method", format!("no range covers {columns}"))
        };
        let given = match self {
            Self::One(method) => {
                let columns = method.columns();
                ensure!(
                    columns == 1 || width.is_multiple_of(columns),
                    whose,
                    "{method} takes {columns} columns at a time, got {width} columns"
                );
                return Ok(Ranges::One(ColumnRange { method: *method, start: 0, end: width }));
            }
            Self::Ranges(given) => given,
        };
        for range in given {
            let ColumnRange { method, start, end } = *range;
            ensure!(start < end, "method", "{range} has no columns");
            ensure!(end <= width, "method", "{range} ends after the last of {width} columns");
            let (count, columns) = (end - start, method.columns());
            ensure!(
                count.is_multiple_of(columns),
                "method",
                "{range} has {count} columns, but {method} takes {columns} at a time"
            );
        }
        let mut sorted = given.clone();
        sorted.sort_by_key(|range| range.start);
        let mut merged: Vec<ColumnRange> = Vec::with_capacity(sorted.len());
        let mut covered = 0;
        for range in sorted {
            if let Some(before) = merged.last_mut() {
                ensure!(range.start >= covered, "method", "{range} overlaps {before}");
                if range.start == covered && range.method == before.method {
                    before.end = range.end;
                    covered = range.end;
                    continue;
                }
            }
            if range.start != covered {
                return Err(nothing_covers(covered, range.start));
            }
            covered = range.end;
            merged.push(range);
        }
        if covered != width {
            return Err(nothing_covers(covered, width));
        }
        Ok(Ranges::Many(merged))
    }
}

/// What happens before the first and after the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extrapolate {
    /// The first or last sample.
    Clamp,
    /// The straight line through the two outermost samples; only for [`Method::Linear`] and
    /// [`Method::Cubic`].
    Linear,
    /// NaN; not for integers.
    Nan,
    /// An error.
    Error,
}

impl Extrapolate {
    const NAMES: [(&'static str, Self); 4] =
        [("clamp", Self::Clamp), ("linear", Self::Linear), ("nan", Self::Nan), ("error", Self::Error)];
}

impl FromStr for Extrapolate {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        by_name("extrapolate", &Self::NAMES, name)
    }
}

impl fmt::Display for Extrapolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(given: &[(Method, usize, usize)], width: usize) -> Result<Ranges> {
        let ranges = given.iter().map(|&(method, start, end)| ColumnRange { method, start, end });
        Methods::Ranges(ranges.collect()).ranges("values", width)
    }

    #[test]
    fn ranges_must_cover_every_column_once() {
        use Method::{Linear, Previous, Rot6d, Slerp};
        let good = ranges(&[(Slerp, 7, 11), (Linear, 0, 7), (Previous, 11, 12)], 12).unwrap();
        assert_eq!(good.iter().map(|range| range.start).collect::<Vec<_>>(), [0, 7, 11]);
        assert_eq!(ranges(&[(Linear, 0, 3), (Linear, 3, 5)], 5).unwrap().len(), 1);
        let refused = [
            (ranges(&[(Linear, 0, 7), (Slerp, 6, 10)], 10), "(\"slerp\", 6, 10) overlaps (\"linear\", 0, 7)"),
            (ranges(&[(Linear, 0, 3), (Linear, 2, 5)], 5), "(\"linear\", 2, 5) overlaps (\"linear\", 0, 3)"),
            (ranges(&[(Linear, 0, 3), (Previous, 4, 5)], 5), "no range covers column 3"),
            (ranges(&[(Linear, 1, 5)], 5), "no range covers column 0"),
            (ranges(&[(Linear, 0, 4)], 5), "no range covers column 4"),
            (ranges(&[], 5), "no range covers columns 0 to 4"),
            (ranges(&[(Linear, 0, 6)], 5), "(\"linear\", 0, 6) ends after the last of 5 columns"),
            (ranges(&[(Slerp, 0, 5)], 5), "(\"slerp\", 0, 5) has 5 columns, but slerp takes 4 at a time"),
            (ranges(&[(Rot6d, 0, 3), (Linear, 3, 5)], 5), "(\"rot6d\", 0, 3) has 3 columns"),
            (ranges(&[(Linear, 2, 2)], 5), "(\"linear\", 2, 2) has no columns"),
        ];
        for (result, message) in refused {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(message), "{text}");
        }
        assert!(ranges(&[], 0).unwrap().is_empty());
    }
}
