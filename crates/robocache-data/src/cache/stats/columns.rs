//! The statistics of one component, and how numbers of any type come to it.

use half::{bf16, f16};
use robocache::tensor::{Element, F8E4M3, F8E5M2};
use serde::{Deserialize, Serialize};

use super::super::sketch::{Real, Sketch, vector};
use super::{PARTS, Summary};

/// Rows whose numbers are gathered per component at a time.
const ROWS: usize = 1024;
/// Numbers that those rows should not exceed, so that they stay in the processor's cache.
const BLOCK: usize = 1 << 13;

/// The type of a tensor's numbers.
pub(super) trait Number: Element {
    /// Whether `f32` holds them exactly.
    const FITS_F32: bool;
    fn narrow(self) -> f32;
    fn wide(self) -> f64;
}

macro_rules! number {
    ($fits:literal: $($type:ty, |$value:ident| $narrow:expr, $wide:expr;)+) => {
        $(impl Number for $type {
            const FITS_F32: bool = $fits;
            fn narrow(self) -> f32 {
                let $value = self;
                $narrow
            }
            fn wide(self) -> f64 {
                let $value = self;
                $wide
            }
        })+
    };
}
// Adding 0 makes 0 of -0, which is the same number.
number! { true:
    f32, |x| x + 0.0, f64::from(x + 0.0);
    f16, |x| x.to_f32() + 0.0, x.to_f64() + 0.0;
    bf16, |x| x.to_f32() + 0.0, x.to_f64() + 0.0;
    u8, |x| f32::from(x), f64::from(x);
    i8, |x| f32::from(x), f64::from(x);
    u16, |x| f32::from(x), f64::from(x);
    i16, |x| f32::from(x), f64::from(x);
    bool, |x| f32::from(u8::from(x)), f64::from(u8::from(x));
    F8E4M3, |x| x.to_f32() + 0.0, f64::from(x) + 0.0;
    F8E5M2, |x| x.to_f32() + 0.0, f64::from(x) + 0.0;
}
number! { false:
    f64, |x| x as f32, x + 0.0;
    u32, |x| x as f32, f64::from(x);
    i32, |x| x as f32, f64::from(x);
    u64, |x| x as f32, x as f64;
    i64, |x| x as f32, x as f64;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "T: Real")]
pub(super) struct Column<T: Real> {
    #[serde(flatten)]
    moments: Moments,
    nan: u64,
    infinite: u64,
    sketch: Sketch<T>,
}

/// Of finite numbers; all 0 where there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Moments {
    pub(super) count: u64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) mean: f64,
    /// Sum of the squared distances from the mean. Numbers beyond 10^150 can exceed what `f64`
    /// holds; it then is the largest finite number.
    pub(super) squares: f64,
}

impl Moments {
    /// Of numbers that are not empty, with the smallest and the largest; `None` where some are not finite.
    fn of<T: Real>(values: &[T]) -> Option<(Self, (T, T))> {
        // Distances from a number among them stay small where all are far from 0.
        let origin: f64 = (*values.first()?).into();
        let (sum, squares) = vector::sums(values, origin);
        if !squares.is_finite() {
            return Some((Self::of_extremes(values)?, vector::bounds(values)));
        }
        let count = values.len() as f64;
        let (low, high) = vector::bounds(values);
        let all = Self {
            count: values.len() as u64,
            low: low.into(),
            high: high.into(),
            mean: origin + sum / count,
            squares: (squares - sum * sum / count).max(0.0),
        };
        Some((all, (low, high)))
    }

    /// The same one by one: numbers whose squares overflow come here, and those that are not finite.
    #[cold]
    fn of_extremes<T: Real>(values: &[T]) -> Option<Self> {
        let mut all = Self::default();
        for value in values.iter().map(|&value| value.into()) {
            if !value.is_finite() {
                return None;
            }
            all.merge(&Self { count: 1, low: value, high: value, mean: value, squares: 0.0 });
        }
        Some(all)
    }

    fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = *other;
            }
            return;
        }
        let count = self.count.saturating_add(other.count);
        let (own, more) = (self.count as f64 / count as f64, other.count as f64 / count as f64);
        let distance = other.mean - self.mean;
        let squares = self.squares + other.squares + distance * distance * own * other.count as f64;
        let mean = self.mean + distance * more;
        *self = Self {
            count,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            mean: if mean.is_finite() { mean } else { self.mean * own + other.mean * more },
            squares: squares.min(f64::MAX),
        };
    }

    fn is_finite(&self) -> bool {
        [self.low, self.high, self.mean, self.squares].iter().all(|value| value.is_finite())
    }
}

impl<T: Real> Column<T> {
    fn new() -> Self {
        Self { moments: Moments::default(), nan: 0, infinite: 0, sketch: Sketch::default() }
    }

    /// Whether what was read from a file can have been written.
    pub(super) fn is_sound(&self) -> bool {
        self.moments.is_finite() && self.moments.count == self.sketch.count()
    }

    /// Adds as many numbers as the sketch has room for, at most.
    fn add(&mut self, values: impl Iterator<Item = T>) {
        let Self { moments, nan, infinite, sketch } = self;
        sketch.add_from(values, |all, first| {
            let (own, span) = Moments::of(&all[first..]).unwrap_or_else(|| {
                drop_infinite(all, first, (nan, infinite));
                Moments::of(&all[first..]).unwrap_or((Moments::default(), T::BEYOND))
            });
            moments.merge(&own);
            span
        });
    }

    /// Makes the sketch as small as it is written.
    pub(super) fn settle(&mut self) {
        self.sketch.settle();
    }

    pub(super) fn summarise(&self, summary: &mut Summary) {
        let quantiles = self.sketch.quantiles(PARTS, self.moments.low, self.moments.high);
        summary.push(self.moments, quantiles, (self.nan, self.infinite));
    }
}

/// Counts what is not finite from a place on, and leaves it out.
#[cold]
fn drop_infinite<T: Real>(values: &mut Vec<T>, first: usize, (nan, infinite): (&mut u64, &mut u64)) {
    let added = values.split_off(first);
    values.extend(added.into_iter().filter(|&value| {
        let value: f64 = value.into();
        *nan += u64::from(value.is_nan());
        *infinite += u64::from(value.is_infinite());
        value.is_finite()
    }));
}

pub(super) fn columns<T: Real>(width: usize) -> Vec<Column<T>> {
    (0..width).map(|_| Column::new()).collect()
}

pub(super) fn widened(columns: &[Column<f32>]) -> Vec<Column<f64>> {
    let wide = |column: &Column<f32>| Column {
        moments: column.moments,
        nan: column.nan,
        infinite: column.infinite,
        sketch: column.sketch.widened(),
    };
    columns.iter().map(wide).collect()
}

pub(super) fn merge_columns<T: Real>(own: &mut [Column<T>], others: &[Column<T>]) {
    for (own, other) in own.iter_mut().zip(others) {
        own.moments.merge(&other.moments);
        own.nan = own.nan.saturating_add(other.nan);
        own.infinite = own.infinite.saturating_add(other.infinite);
        own.sketch.merge(&other.sketch);
    }
}

/// Adds rows of as many numbers as there are columns.
pub(super) fn fill<E: Number, T: Real>(columns: &mut [Column<T>], rows: &[E], convert: impl Fn(E) -> T) {
    let width = columns.len();
    if width == 0 {
        return;
    }
    for block in rows.chunks((BLOCK / width).clamp(16, ROWS) * width) {
        for (at, column) in columns.iter_mut().enumerate() {
            let mut rest = block;
            while rest.len() >= width {
                let room = column.sketch.room() * width;
                let (now, later) = rest.split_at(rest.len().min(room));
                column.add(now.chunks_exact(width).map(|row| convert(row[at])));
                rest = later;
            }
        }
    }
}

/// Of the counts of a channel's values, which stand for 0..1.
pub(super) fn summarise_channel(counts: &[u64], summary: &mut Summary) {
    let value = |at: usize| at as f64 / 255.0;
    let mut all = Moments::default();
    for (at, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        all.merge(&Moments { count, low: value(at), high: value(at), mean: value(at), squares: 0.0 });
    }
    let nth = |place: u64| {
        let mut upto = 0u64;
        let found = counts.iter().position(|&count| {
            upto = upto.saturating_add(count);
            place < upto
        });
        value(found.unwrap_or(255))
    };
    let quantiles = PARTS.map(|part| {
        let place = part * all.count.saturating_sub(1) as f64;
        let (low, high) = (nth(place.floor() as u64), nth(place.ceil() as u64));
        low + (high - low) * place.fract()
    });
    summary.push(all, quantiles, (0, 0));
}
