//! Element types. `for_each_dtype!` is the one list that the rest of the workspace expands.

use std::fmt;

use half::{bf16, f16};

/// Expands `$callback!` with every dtype as `(Variant, rust type, name, class)`.
///
/// The CUDA side mirrors this list; nothing else may enumerate dtypes.
#[macro_export]
macro_rules! for_each_dtype {
    ($callback:ident) => {
        $callback! {
            (F16, half::f16, "float16", Float),
            (BF16, half::bf16, "bfloat16", Float),
            (F32, f32, "float32", Float),
            (F64, f64, "float64", Float),
            (U8, u8, "uint8", Integer),
            (I8, i8, "int8", Integer),
            (U16, u16, "uint16", Integer),
            (I16, i16, "int16", Integer),
            (U32, u32, "uint32", Integer),
            (I32, i32, "int32", Integer),
            (U64, u64, "uint64", Integer),
            (I64, i64, "int64", Integer),
            (Bool, bool, "bool", Integer),
            (F8E4M3, $crate::tensor::F8E4M3, "float8_e4m3fn", Stored),
            (F8E5M2, $crate::tensor::F8E5M2, "float8_e5m2", Stored)
        }
    };
}

#[derive(PartialEq)]
enum Class {
    Float,
    Integer,
    Stored,
}

macro_rules! define_dtype {
    ($(($variant:ident, $type:ty, $name:literal, $class:ident)),+) => {
        /// The type of a tensor's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DType { $(#[doc = $name] $variant),+ }

        impl DType {
            /// Every dtype, in the order of the list.
            pub const ALL: &'static [DType] = &[$(DType::$variant),+];

            /// Bytes of one element.
            #[inline]
            pub const fn size(self) -> usize {
                match self { $(Self::$variant => size_of::<$type>()),+ }
            }

            /// The name that NumPy and torch use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Whether arithmetic between samples makes sense; bool counts as an integer.
            #[inline]
            pub fn is_float(self) -> bool {
                Class::Float == match self { $(Self::$variant => Class::$class),+ }
            }

            /// Whether it only stores numbers, which are then computed in float32.
            #[inline]
            pub fn is_stored(self) -> bool {
                Class::Stored == match self { $(Self::$variant => Class::$class),+ }
            }
        }

        $(impl sealed::Sealed for $type {})+
        $(impl Element for $type { const DTYPE: DType = DType::$variant; })+
    };
}
for_each_dtype!(define_dtype);

impl DType {
    /// The dtype that holds the numbers of both, as torch promotes them; none for uint64 with signed
    /// integers. Unsigned types that torch does not promote go to the next larger signed one.
    pub fn promote(self, other: Self) -> Option<Self> {
        use DType::{BF16, Bool, F16, F32, I8, I16, I32, I64, U8, U16, U32, U64};
        let computed = |dtype: Self| if dtype.is_stored() { F32 } else { dtype };
        let (a, b) = (computed(self), computed(other));
        Some(match (a.is_float(), b.is_float()) {
            _ if a == b => a,
            (true, false) => a,
            (false, true) => b,
            (true, true) if a.size() != b.size() => {
                if a.size() > b.size() {
                    a
                } else {
                    b
                }
            }
            (true, true) => {
                debug_assert!(matches!((a, b), (F16, BF16) | (BF16, F16)));
                F32
            }
            (false, false) if a == Bool => b,
            (false, false) if b == Bool => a,
            (false, false) => {
                let signed = |dtype: Self| matches!(dtype, I8 | I16 | I32 | I64);
                let (large, small) = if a.size() >= b.size() { (a, b) } else { (b, a) };
                if signed(large) == signed(small) || (signed(large) && large.size() > small.size()) {
                    large
                } else {
                    // An unsigned one and a signed one that is not larger.
                    match if signed(large) { small } else { large } {
                        U8 => I16,
                        U16 => I32,
                        U32 => I64,
                        U64 => return None,
                        _ => large,
                    }
                }
            }
        })
    }

    /// The bits that stand for "no value": NaN for floats, 0 for integers.
    pub fn missing_bits(self) -> u64 {
        match self {
            Self::F16 => u64::from(f16::NAN.to_bits()),
            Self::BF16 => u64::from(bf16::NAN.to_bits()),
            Self::F32 => u64::from(f32::NAN.to_bits()),
            Self::F64 => f64::NAN.to_bits(),
            _ => 0,
        }
    }

    /// The same in each of the elements that 8 bytes hold.
    pub(crate) fn repeated_missing_bits(self) -> u64 {
        let bits = self.missing_bits();
        match self.size() {
            1 => bits * 0x0101_0101_0101_0101,
            2 => bits * 0x0001_0001_0001_0001,
            4 => bits * 0x0000_0001_0000_0001,
            _ => bits,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a tensor can hold.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Its dtype.
    const DTYPE: DType;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of the kernels: `X(name, type)` after `RC_DTYPES`.
    fn kernel_dtypes() -> Vec<(String, usize)> {
        const SIZES: [(&str, usize); 15] = [
            ("rc::f16", 2),
            ("rc::bf16", 2),
            ("float", 4),
            ("double", 8),
            ("u8", 1),
            ("signed char", 1),
            ("u16", 2),
            ("short", 2),
            ("u32", 4),
            ("i32", 4),
            ("u64", 8),
            ("i64", 8),
            ("bool", 1),
            ("rc::f8e4m3", 1),
            ("rc::f8e5m2", 1),
        ];
        let header = include_str!("../../kernels/rc.cuh");
        let (_, list) = header.split_once("#define RC_DTYPES(X)").unwrap();
        // The definition goes on as long as lines end in a backslash.
        let lines = list.lines().scan(true, |more, line| std::mem::replace(more, line.ends_with('\\')).then_some(line));
        let entries = lines.flat_map(|line| line.split("X(").skip(1)).map(|entry| entry.split_once(')').unwrap().0);
        let read = |entry: &str| {
            let (name, kind) = entry.split_once(',').unwrap();
            let size = SIZES.iter().find(|(known, _)| *known == kind.trim());
            (name.trim().to_owned(), size.unwrap_or_else(|| panic!("the size of {kind} is not known here")).1)
        };
        entries.map(read).collect()
    }

    #[test]
    fn promotion_holds_the_numbers_of_both() {
        use DType::{BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let pairs = [
            (F16, BF16, Some(F32)),
            (BF16, F32, Some(F32)),
            (F64, F16, Some(F64)),
            (I64, F16, Some(F16)),
            (U8, I8, Some(I16)),
            (U8, I16, Some(I16)),
            (U8, I64, Some(I64)),
            (Bool, U8, Some(U8)),
            (Bool, F32, Some(F32)),
            (I32, U32, Some(I64)),
            (U16, I16, Some(I32)),
            (I8, U16, Some(I32)),
            (U16, U32, Some(U32)),
            (U64, I8, None),
            (U64, U8, Some(U64)),
            (F8E4M3, F8E5M2, Some(F32)),
            (F8E4M3, F16, Some(F32)),
            (F8E5M2, I64, Some(F32)),
        ];
        for (a, b, expected) in pairs {
            assert_eq!((a.promote(b), b.promote(a)), (expected, expected), "{a} and {b}");
        }
    }

    #[test]
    fn the_kernels_have_the_same_list() {
        let ours: Vec<_> = DType::ALL.iter().map(|dtype| (dtype.name().to_owned(), dtype.size())).collect();
        assert_eq!(kernel_dtypes(), ours);
    }
}
