//! The ways in which a rotation is written down, by name.

use std::fmt;

use crate::{Error, Result, did_you_mean};

/// How the numbers of a rotation are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// A quaternion x, y, z, w.
    QuatXyzw,
    /// A quaternion w, x, y, z.
    QuatWxyz,
    /// A matrix `[3,3]`.
    Matrix,
    /// An axis times the angle about it.
    AxisAngle,
    /// The first column of the matrix, then the second.
    Rot6d,
    /// The first row of the matrix, then the second.
    Rot6dRows,
    /// Three angles about the axes of a sequence.
    Euler(EulerOrder),
}

/// A sequence of axes, such as `xyz` (fixed axes) or `XYZ` (axes that turn along); its place in the list of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EulerOrder(u8);

/// The 12 sequences about fixed axes, then those about axes that turn along.
const EULER: [&str; 24] = [
    "euler_xyz",
    "euler_xzy",
    "euler_yxz",
    "euler_yzx",
    "euler_zxy",
    "euler_zyx",
    "euler_xyx",
    "euler_xzx",
    "euler_yxy",
    "euler_yzy",
    "euler_zxz",
    "euler_zyz",
    "euler_XYZ",
    "euler_XZY",
    "euler_YXZ",
    "euler_YZX",
    "euler_ZXY",
    "euler_ZYX",
    "euler_XYX",
    "euler_XZX",
    "euler_YXY",
    "euler_YZY",
    "euler_ZXZ",
    "euler_ZYZ",
];

const OTHERS: [(&str, Representation); 6] = [
    ("quat_xyzw", Representation::QuatXyzw),
    ("quat_wxyz", Representation::QuatWxyz),
    ("matrix", Representation::Matrix),
    ("axis_angle", Representation::AxisAngle),
    ("rot6d", Representation::Rot6d),
    ("rot6d_rows", Representation::Rot6dRows),
];

impl Representation {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        OTHERS.into_iter().map(|(_, known)| known).chain((0..24).map(|index| Self::Euler(EulerOrder(index))))
    }

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Euler(order) => EULER.get(usize::from(order.0)).copied().unwrap_or("?"),
            _ => OTHERS.iter().find(|(_, known)| *known == self).map_or("?", |(name, _)| name),
        }
    }

    /// The representation of this name; an error is about `argument`.
    pub fn named(argument: &'static str, name: &str) -> Result<Self> {
        Self::all().find(|known| known.name() == name).ok_or_else(|| {
            let others: Vec<_> = OTHERS.iter().map(|(name, _)| *name).collect();
            let meant = did_you_mean(name, Self::all().map(Self::name));
            let expected = format!("expected one of {}, euler_xyz or another order", others.join(", "));
            Error::invalid(argument, format!("{expected}, got {name:?}{meant}"))
        })
    }

    /// The axes of one rotation.
    pub fn shape(self) -> &'static [usize] {
        match self {
            Self::QuatXyzw | Self::QuatWxyz => &[4],
            Self::Matrix => &[3, 3],
            Self::AxisAngle | Self::Euler(_) => &[3],
            Self::Rot6d | Self::Rot6dRows => &[6],
        }
    }

    /// The numbers of one rotation.
    pub(super) fn numbers(self) -> usize {
        self.shape().iter().product()
    }

    /// Whether it is a matrix or a part of one.
    pub(super) fn is_matrix(self) -> bool {
        matches!(self, Self::Matrix | Self::Rot6d | Self::Rot6dRows)
    }

    /// As kernels know it: the kind, and above it the sequence of axes. Mirrors `Form` in rotation.cuh.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::QuatXyzw => 0,
            Self::QuatWxyz => 1,
            Self::Matrix => 2,
            Self::AxisAngle => 3,
            Self::Rot6d => 4,
            Self::Rot6dRows => 5,
            Self::Euler(order) => {
                let Sequence { first, second, is_symmetric, is_intrinsic, is_odd, .. } = order.sequence();
                let flags = u32::from(is_symmetric) | u32::from(is_intrinsic) << 1 | u32::from(is_odd) << 2;
                6 | (first as u32) << 8 | (second as u32) << 10 | flags << 12
            }
        }
    }
}

impl fmt::Display for Representation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Turns about fixed axes, one after the other: those about axes that turn along are the same, the last one first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    pub(super) first: usize,
    pub(super) second: usize,
    /// The axis that is neither of these.
    pub(super) other: usize,
    /// Whether the third turn is about the first axis again, not about the other one.
    pub(super) is_symmetric: bool,
    /// Whether angles come the last one first.
    pub(super) is_intrinsic: bool,
    /// Whether first, second and other are left-handed.
    pub(super) is_odd: bool,
}

impl EulerOrder {
    pub(super) fn sequence(self) -> Sequence {
        let name = Representation::Euler(self).name().as_bytes();
        let letter = |at: usize| name.get(at).copied().unwrap_or(b'x');
        let axis = |at: usize| usize::from(letter(at).to_ascii_lowercase().wrapping_sub(b'x')) % 3;
        let is_intrinsic = letter(6).is_ascii_uppercase();
        let (first, second, third) =
            if is_intrinsic { (axis(8), axis(7), axis(6)) } else { (axis(6), axis(7), axis(8)) };
        let other = (6 - first - second) % 3;
        let is_odd = (first + 1) % 3 != second;
        Sequence { first, second, other, is_symmetric: first == third, is_intrinsic, is_odd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        assert_eq!(Representation::all().count(), 30);
        for known in Representation::all() {
            assert_eq!(Representation::named("source", known.name()).unwrap(), known);
            assert_eq!(known.to_string(), known.name());
        }
        let error = Representation::named("target", "quat_xyz").unwrap_err();
        assert_eq!(error.argument_name(), Some("target"));
        assert!(error.to_string().contains("did you mean") && error.to_string().contains("quat_xyzw"), "{error}");
        assert!(Representation::named("target", "euler_xYz").is_err());
    }

    #[test]
    fn sequences_are_about_fixed_axes() {
        let sequence = |name: &str| match Representation::named("source", name).unwrap() {
            Representation::Euler(order) => order.sequence(),
            other => panic!("{other}"),
        };
        let known = |name: &str| {
            let x = sequence(name);
            (x.first, x.second, x.other, x.is_symmetric, x.is_intrinsic, x.is_odd)
        };
        assert_eq!(known("euler_xyz"), (0, 1, 2, false, false, false));
        assert_eq!(known("euler_XYZ"), (2, 1, 0, false, true, true));
        assert_eq!(known("euler_zxz"), (2, 0, 1, true, false, false));
        assert_eq!(known("euler_YXZ"), (2, 0, 1, false, true, false));
        assert_eq!(known("euler_xzx"), (0, 2, 1, true, false, true));
    }
}
