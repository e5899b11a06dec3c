//! The kernels of `align`, and which one a call needs.

use super::arguments::{Args, FEW, MANY, ONE};
use crate::tensor::DType;

/// Which of the kernel's parts are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Lines and copies, all of one dtype.
    Lean,
    /// Every method, all of one dtype.
    Rich,
    /// Every method, dtypes of all kinds.
    Mixed,
    /// Every method but cubic, of one narrow stream whose rows threads make as a whole.
    Whole,
    /// Lines or copies of one stream, by one method, with dense results.
    One,
}

/// Threads that kernels of [`Mode::Whole`] are compiled for.
pub(super) const WHOLE_THREADS: u32 = 128;

const MODES: [(Mode, &str); 5] =
    [(Mode::Lean, "lean"), (Mode::Rich, "rich"), (Mode::Mixed, "mixed"), (Mode::Whole, "whole"), (Mode::One, "one")];
/// The elements that kernels are compiled for: floats, and what integers are copied as.
const CELLS: [(&str, &str); 8] = [
    ("float16", "rc::f16"),
    ("bfloat16", "rc::bf16"),
    ("float32", "float"),
    ("float64", "double"),
    ("copy_8", "u8"),
    ("copy_16", "u16"),
    ("copy_32", "u32"),
    ("copy_64", "u64"),
];

/// Types of stamps that kernels are compiled for: name, type, bytes.
pub(in crate::ops) const STAMPS: [(&str, &str, u32); 3] =
    [("int64", "i64", 8), ("float64", "double", 8), ("float32", "float", 4)];

/// The place of a type in `STAMPS`.
pub(in crate::ops) fn stamp_number(dtype: DType) -> u8 {
    match dtype {
        DType::I64 => 0,
        DType::F64 => 1,
        _ => 2,
    }
}

/// A kernel. One for each stamp takes every dtype and all streams; the others are quicker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    /// An index in `MODES`.
    mode: u8,
    /// An index in `CELLS`; 0 in the one that takes every dtype.
    out: u8,
    pub(super) stamp: u8,
}

impl Variant {
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for stamp in 0..STAMPS.len() as u8 {
            for mode in [Mode::Lean, Mode::One] {
                all.extend((0..CELLS.len() as u8).map(|out| Self { mode: mode as u8, out, stamp }));
            }
            all.extend((0..4).map(|out| Self { mode: Mode::Rich as u8, out, stamp }));
            all.push(Self { mode: Mode::Mixed as u8, out: 0, stamp });
            all.extend((0..3).map(|out| Self { mode: Mode::Whole as u8, out, stamp }));
        }
        all
    }

    /// `copies`: whether no number is blended, so that only sizes matter.
    pub(super) fn new(mode: Mode, dtype: DType, stamp: DType, (many, copies): (bool, bool)) -> Self {
        let mode = if many { Mode::Mixed } else { mode };
        let out = match dtype {
            _ if mode == Mode::Mixed => 0,
            _ if matches!(mode, Mode::Lean | Mode::One) && copies => 4 + dtype.size().trailing_zeros() as u8,
            DType::F16 => 0,
            DType::BF16 => 1,
            DType::F32 => 2,
            DType::F64 => 3,
            _ => 4 + dtype.size().trailing_zeros() as u8,
        };
        let stamp = stamp_number(stamp);
        Self { mode: mode as u8, out, stamp }
    }

    /// The kernel of [`Mode::Whole`] for the same elements, which must be floats of at most 4 bytes, and stamps.
    pub(super) fn whole(self) -> Self {
        Self { mode: Mode::Whole as u8, ..self }
    }

    pub(super) fn number(self) -> u32 {
        u32::from_le_bytes([self.mode, self.out, self.stamp, 0])
    }

    pub(super) fn from_number(number: u32) -> Self {
        let [mode, out, stamp, _] = number.to_le_bytes();
        Self { mode, out, stamp }
    }

    pub(super) fn mode(self) -> (Mode, &'static str) {
        MODES[usize::from(self.mode) % MODES.len()]
    }

    /// The name and type of the elements.
    fn out(self) -> (&'static str, &'static str) {
        CELLS[usize::from(self.out) % CELLS.len()]
    }

    pub(super) fn stamp(self) -> (&'static str, &'static str, u32) {
        STAMPS[usize::from(self.stamp) % STAMPS.len()]
    }

    pub(super) fn entry(self) -> String {
        let stamp = self.stamp().0;
        match self.mode() {
            (Mode::Mixed, name) => format!("rc_align_{name}_{stamp}"),
            (_, name) => format!("rc_align_{name}_{}_{stamp}", self.out().0),
        }
    }

    pub(super) fn options(self) -> Vec<String> {
        let mode = self.mode().0;
        let (size, (streams, segments)) = match mode {
            Mode::Mixed => (size_of::<Args<{ MANY.0 }, { MANY.1 }>>(), MANY),
            Mode::One => (size_of::<Args<{ ONE.0 }, { ONE.1 }>>(), ONE),
            _ => (size_of::<Args<{ FEW.0 }, { FEW.1 }>>(), FEW),
        };
        vec![
            format!("-DRC_OUT={}", self.out().1),
            format!("-DRC_FLOAT={}", u8::from(self.out < 4)),
            format!("-DRC_MIXED={}", u8::from(mode == Mode::Mixed)),
            format!("-DRC_RICH={}", u8::from(matches!(mode, Mode::Rich | Mode::Mixed | Mode::Whole))),
            format!("-DRC_WHOLE={}", u8::from(mode == Mode::Whole)),
            format!("-DRC_WHOLE_THREADS={WHOLE_THREADS}"),
            format!("-DRC_STAMP={}", self.stamp().1),
            format!("-DRC_STREAMS={streams}"),
            format!("-DRC_SEGMENTS={segments}"),
            format!("-DRC_ARGS_SIZE={size}"),
        ]
    }

    /// Bytes of a number that the kernel computes in.
    pub(super) fn weight(self) -> u32 {
        if self.mode().0 == Mode::Mixed || self.out == 3 { 8 } else { 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_numbered_both_ways() {
        for variant in Variant::all() {
            assert_eq!(Variant::from_number(variant.number()), variant);
        }
    }
}
