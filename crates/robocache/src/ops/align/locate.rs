//! Which samples a target needs: the rules of `resample`, free of dtypes and memory.
//!
//! A row is `len` stamps that do not decrease. Of equal stamps only the last one exists. A target
//! on a stamp takes that sample; between two stamps the method decides; outside, `Extrapolate`.

use std::fmt::Display;

use super::{Extrapolate, Method};

/// A type of time stamp. Differences are taken in the type itself and are exact for integers.
pub(in crate::ops) trait Stamp: Copy + PartialOrd + Display + Send + Sync + 'static {
    /// Not NaN and not infinite.
    fn is_finite(self) -> bool;
    fn is_nan(self) -> bool;
    /// Seconds over which this type cannot tell one second from the next, if there is such a size.
    const COARSE: Option<Self>;
    /// Whether the difference of two stamps can be infinite.
    const OVERFLOWS: bool = true;
    fn magnitude(self) -> Self;
    /// Whether `later - earlier`, never negative, is more than `seconds`.
    fn exceeds(earlier: Self, later: Self, seconds: f64) -> bool;
    /// Whether `self` is no further from `earlier` than from `later`, which bracket it.
    fn is_nearer_to_earlier(self, earlier: Self, later: Self) -> bool;
    /// `later - earlier`, never negative, as a number that is only compared with others like it.
    fn gap(earlier: Self, later: Self) -> f64;
    /// `self - earlier`, never negative, in seconds.
    fn seconds_since(self, earlier: Self) -> f32;
    /// `(self - first) / (second - first)`, for `first < second`.
    fn weight_f32(self, first: Self, second: Self) -> f32;
    fn weight_f64(self, first: Self, second: Self) -> f64;
}

impl Stamp for i64 {
    const COARSE: Option<Self> = None;
    const OVERFLOWS: bool = false;
    fn is_finite(self) -> bool {
        true
    }
    fn is_nan(self) -> bool {
        false
    }
    fn magnitude(self) -> Self {
        self.saturating_abs()
    }
    fn exceeds(earlier: Self, later: Self, seconds: f64) -> bool {
        // Rounded to whole nanoseconds: 0.1 s means 100,000,000 ns. The cast saturates.
        later.abs_diff(earlier) > (seconds * 1e9).round() as u64
    }
    fn is_nearer_to_earlier(self, earlier: Self, later: Self) -> bool {
        self.abs_diff(earlier) <= later.abs_diff(self)
    }
    fn gap(earlier: Self, later: Self) -> f64 {
        later.abs_diff(earlier) as f64
    }
    fn seconds_since(self, earlier: Self) -> f32 {
        (self.abs_diff(earlier) as f64 / 1e9) as f32
    }
    fn weight_f32(self, first: Self, second: Self) -> f32 {
        let weight = self.abs_diff(first) as f32 / second.abs_diff(first) as f32;
        if self < first { -weight } else { weight }
    }
    fn weight_f64(self, first: Self, second: Self) -> f64 {
        let weight = self.abs_diff(first) as f64 / second.abs_diff(first) as f64;
        if self < first { -weight } else { weight }
    }
}

impl Stamp for f64 {
    const COARSE: Option<Self> = None;
    fn is_finite(self) -> bool {
        self.is_finite()
    }
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    fn magnitude(self) -> Self {
        self.abs()
    }
    fn exceeds(earlier: Self, later: Self, seconds: f64) -> bool {
        later - earlier > seconds
    }
    fn is_nearer_to_earlier(self, earlier: Self, later: Self) -> bool {
        self - earlier <= later - self
    }
    fn gap(earlier: Self, later: Self) -> f64 {
        later - earlier
    }
    fn seconds_since(self, earlier: Self) -> f32 {
        (self - earlier) as f32
    }
    fn weight_f32(self, first: Self, second: Self) -> f32 {
        let gap = (second - first) as f32;
        // A gap outside the range of f32 has no digits there, or is infinite.
        if gap.is_normal() { (self - first) as f32 / gap } else { ((self - first) / (second - first)) as f32 }
    }
    fn weight_f64(self, first: Self, second: Self) -> f64 {
        (self - first) / (second - first)
    }
}

impl Stamp for f32 {
    /// From 2^24 on, neighbouring f32 are a second or more apart.
    const COARSE: Option<Self> = Some(16_777_216.0);
    fn is_finite(self) -> bool {
        self.is_finite()
    }
    fn is_nan(self) -> bool {
        self.is_nan()
    }
    fn magnitude(self) -> Self {
        self.abs()
    }
    fn exceeds(earlier: Self, later: Self, seconds: f64) -> bool {
        f64::from(later - earlier) > seconds
    }
    fn is_nearer_to_earlier(self, earlier: Self, later: Self) -> bool {
        self - earlier <= later - self
    }
    fn gap(earlier: Self, later: Self) -> f64 {
        f64::from(later - earlier)
    }
    fn seconds_since(self, earlier: Self) -> f32 {
        self - earlier
    }
    fn weight_f32(self, first: Self, second: Self) -> f32 {
        (self - first) / (second - first)
    }
    fn weight_f64(self, first: Self, second: Self) -> f64 {
        f64::from(self - first) / f64::from(second - first)
    }
}

/// Stamps ahead that are looked at together.
const NEAR: usize = 8;

/// The stamps of one row.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Stamps<S> {
    data: *const S,
    stride: isize,
    len: usize,
}

impl<S: Stamp> Stamps<S> {
    /// # Safety
    /// `len` stamps, `stride` elements apart, must be readable from `data` while this is used.
    pub(in crate::ops) unsafe fn new(data: *const S, stride: isize, len: usize) -> Self {
        Self { data, stride, len }
    }

    pub(in crate::ops) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(in crate::ops) fn at(&self, index: usize) -> S {
        debug_assert!(index < self.len);
        // SAFETY: every caller keeps `index < len`, also for unsorted and NaN stamps.
        unsafe { self.data.offset(index as isize * self.stride).read() }
    }

    /// The stamps as a slice, where they lie side by side.
    pub(in crate::ops) fn as_slice(&self) -> Option<&[S]> {
        // SAFETY: the constructor's promise, with a stride of 1.
        (self.stride == 1).then(|| unsafe { std::slice::from_raw_parts(self.data, self.len) })
    }

    /// How many leading stamps are at or before `target`, searched outwards from `hint`: targets
    /// that come in order then cost a step or two each.
    #[inline(always)]
    fn count_until(&self, target: S, hint: usize) -> usize {
        let (mut low, mut high);
        if hint > 0 && target < self.at(hint - 1) {
            (low, high) = (0, hint - 1);
        } else {
            low = hint;
            // Most targets lie among the next few stamps. To look at all of those takes no branch
            // that could be guessed wrong, and becomes a vector comparison.
            if self.stride == 1 && hint + NEAR <= self.len {
                let ahead = (0..NEAR).map(|step| usize::from(target < self.at(hint + step))).sum::<usize>();
                let passed = NEAR - ahead;
                if passed < NEAR {
                    return hint + passed;
                }
                low += NEAR;
            }
            let mut step = 1;
            high = loop {
                let probe = low + step;
                if probe > self.len {
                    break self.len;
                }
                if target < self.at(probe - 1) {
                    break probe - 1;
                }
                low = probe;
                step *= 2;
            };
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if target < self.at(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The last of the stamps that equal the one at `index`.
    #[inline(always)]
    pub(in crate::ops) fn last_equal(&self, index: usize) -> usize {
        if index + 1 < self.len && self.at(index + 1) == self.at(index) {
            // Never before `index`: with unsorted stamps the search may end anywhere.
            self.count_until(self.at(index), index).max(index + 1) - 1
        } else {
            index
        }
    }

    /// The last stamp before those that equal the last one.
    fn second_last(&self) -> Option<usize> {
        self.distinct_before(self.len - 1)
    }

    /// The last stamp before those that equal the one at `index`.
    pub(in crate::ops) fn distinct_before(&self, index: usize) -> Option<usize> {
        let end = self.at(index);
        let before = index.checked_sub(1)?;
        if self.at(before) < end {
            return Some(before);
        }
        let (mut low, mut high) = (0, before);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) < end {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

/// What a target is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ops) enum Pick {
    /// One sample as it is.
    Take(usize),
    /// The line through two samples.
    Blend(usize, usize),
    /// No value.
    Missing,
}

/// The options that decide about a target.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Rules {
    pub(in crate::ops) method: Method,
    pub(in crate::ops) extrapolate: Extrapolate,
    /// Seconds; infinite where nobody asks.
    pub(in crate::ops) max_gap: f64,
}

/// The longest gap that is valid. Where none is too long, one that the stamps' type has no number for still is: no
/// weight can be made of it.
pub(in crate::ops) fn longest_gap(max_gap: Option<f64>) -> f64 {
    max_gap.unwrap_or(f64::INFINITY).min(f64::MAX)
}

impl Rules {
    /// What `target` is made of and whether it is valid. `hint` is kept from target to target.
    #[inline(always)]
    pub(in crate::ops) fn locate<S: Stamp>(&self, stamps: &Stamps<S>, target: S, hint: &mut usize) -> (Pick, bool) {
        if stamps.len == 0 || target.is_nan() {
            return (Pick::Missing, false);
        }
        let upper = stamps.count_until(target, *hint);
        *hint = upper;
        if upper > 0 && stamps.at(upper - 1) == target {
            return (Pick::Take(upper - 1), true);
        }
        if upper == 0 || upper == stamps.len {
            return (self.outside(stamps, upper), false);
        }
        let (before, after) = (upper - 1, stamps.last_equal(upper));
        let (earlier, later) = (stamps.at(before), stamps.at(after));
        let pick = match self.method {
            Method::Previous => Pick::Take(before),
            Method::Next => Pick::Take(after),
            Method::Nearest if target.is_nearer_to_earlier(earlier, later) => Pick::Take(before),
            Method::Nearest => Pick::Take(after),
            // What is made of the two samples is not decided here.
            _ => Pick::Blend(before, after),
        };
        let is_any = if S::OVERFLOWS { f64::INFINITY } else { f64::MAX };
        (pick, self.max_gap >= is_any || !S::exceeds(earlier, later, self.max_gap))
    }

    #[inline(never)]
    fn outside<S: Stamp>(&self, stamps: &Stamps<S>, upper: usize) -> Pick {
        let edge = if upper == 0 { stamps.last_equal(0) } else { stamps.len - 1 };
        match self.extrapolate {
            Extrapolate::Clamp => Pick::Take(edge),
            // `Error` was found by the checks; where they are off, it reads as NaN.
            Extrapolate::Nan | Extrapolate::Error => Pick::Missing,
            Extrapolate::Linear => {
                let pair = if upper > 0 {
                    stamps.second_last().map(|before| (before, edge))
                } else if edge + 1 < stamps.len {
                    Some((edge, stamps.last_equal(edge + 1)))
                } else {
                    None
                };
                pair.map_or(Pick::Take(edge), |(first, second)| Pick::Blend(first, second))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_searched_from_any_hint() {
        let stamps: Vec<i64> = (0..100).map(|i| i / 3 * 10).collect();
        for target in -5..345 {
            locate(&stamps, target, Method::Linear, Extrapolate::Linear);
        }
    }

    fn locate(stamps: &[i64], target: i64, method: Method, extrapolate: Extrapolate) -> (Pick, bool) {
        // SAFETY: the slice outlives the call.
        let row = unsafe { Stamps::new(stamps.as_ptr(), 1, stamps.len()) };
        let rules = Rules { method, extrapolate, max_gap: f64::INFINITY };
        let expected = rules.locate(&row, target, &mut 0);
        for mut hint in 0..=stamps.len() {
            assert_eq!(rules.locate(&row, target, &mut hint), expected, "the hint must not matter");
        }
        expected
    }

    #[test]
    fn of_equal_stamps_only_the_last_exists() {
        let stamps = [0, 0, 0, 10, 10, 20, 20];
        use Extrapolate::{Clamp, Linear as Line};
        assert_eq!(locate(&stamps, 0, Method::Linear, Clamp), (Pick::Take(2), true));
        assert_eq!(locate(&stamps, 5, Method::Linear, Clamp), (Pick::Blend(2, 4), true));
        assert_eq!(locate(&stamps, 5, Method::Nearest, Clamp), (Pick::Take(2), true));
        assert_eq!(locate(&stamps, 6, Method::Nearest, Clamp), (Pick::Take(4), true));
        assert_eq!(locate(&stamps, 15, Method::Next, Clamp), (Pick::Take(6), true));
        assert_eq!(locate(&stamps, -1, Method::Next, Clamp), (Pick::Take(2), false));
        assert_eq!(locate(&stamps, -1, Method::Linear, Line), (Pick::Blend(2, 4), false));
        assert_eq!(locate(&stamps, 25, Method::Linear, Line), (Pick::Blend(4, 6), false));
        assert_eq!(locate(&[7, 7], 9, Method::Linear, Line), (Pick::Take(1), false));
        assert_eq!(locate(&[7, 7], 1, Method::Linear, Line), (Pick::Take(1), false));
    }

    #[test]
    fn the_whole_range_of_nanoseconds_is_exact() {
        let (low, high) = (i64::MIN, i64::MAX);
        assert_eq!(0i64.weight_f64(low, high), 0.5);
        assert!(i64::exceeds(low, high, 1e9) && !i64::exceeds(low, high, 1e11));
        assert!((-1i64).is_nearer_to_earlier(low, high) && !0i64.is_nearer_to_earlier(low, high));
        assert_eq!((-5i64).weight_f32(0, 10), -0.5);
    }

    #[test]
    fn tiny_and_huge_float_gaps_have_a_weight() {
        assert_eq!(1e-300f64.weight_f32(0.0, 2e-300), 0.5);
        assert_eq!(1e300f64.weight_f32(0.0, 2e300), 0.5);
        assert_eq!(2.5e38f64.weight_f32(0.0, 1e39), 0.25);
    }

    #[test]
    fn garbage_stamps_stay_in_bounds() {
        let nan = f64::NAN;
        let rows: [&[f64]; 6] = [
            &[nan, 1.0, nan, 0.0, nan],
            &[5.0, 4.0, 3.0, 2.0, 1.0],
            &[2.0, 2.0, 1.0, 2.0, 2.0],
            &[nan; 5],
            // Longer than what is looked at together, with equal stamps behind larger ones.
            &[9.0, 8.0, 0.5, 0.5, 9.0, 9.0, 9.0, 9.0],
            &[9.0, 8.0, 0.5, 0.5, nan, 9.0, 1.0, 1.0, 1.0, 0.0, 0.0, 9.0],
        ];
        for stamps in rows {
            // SAFETY: the array outlives the loop.
            let row = unsafe { Stamps::new(stamps.as_ptr(), 1, stamps.len()) };
            for method in [Method::Linear, Method::Nearest, Method::Previous, Method::Next] {
                let rules = Rules { method, extrapolate: Extrapolate::Linear, max_gap: 0.1 };
                for target in [-1.0, 0.0, 1.5, 2.0, 9.0, f64::INFINITY, f64::NEG_INFINITY, nan] {
                    for hint in 0..=stamps.len() {
                        let (pick, _) = rules.locate(&row, target, &mut { hint });
                        assert!(match pick {
                            Pick::Take(a) => a < stamps.len(),
                            Pick::Blend(a, b) => a < stamps.len() && b < stamps.len(),
                            Pick::Missing => true,
                        });
                    }
                }
            }
        }
    }
}
