//! Statistics of a stream in one pass: smallest, largest, mean, standard deviation, quantiles.
//!
//! Numbers that are not finite are counted and take no part. Mean and deviation are summed in `f64`
//! against a number of the same block,
//! and blocks are put together by Chan's rule, so that a large
//! offset costs no digits. Quantiles come from a [`Sketch`](super::sketch::Sketch), which says how exact they are; those of
//! pictures from exact counts of the 256 values.
//!
//! The result depends on the order in which things are added only by rounding and by the sketch's
//! error; the same order gives the same bits.

mod columns;

use robocache::{DType, Error, Result, Tensor, ensure, for_each_dtype};
use serde::{Deserialize, Serialize};

use self::columns::{Column, Moments, Number, columns, fill, merge_columns, summarise_channel, widened};
use super::jpeg::Planes;
use super::layout::CachedStream;
use super::sketch::Real;
use crate::model::Kind;

/// Which quantiles a summary has.
const PARTS: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];
/// Pixels that a picture contributes at most, spread evenly over it.
const PIXELS: usize = 64 * 64;

/// The step from a pixel that counts to the next.
fn spread(count: usize) -> usize {
    // Odd, so that it does not meet the same columns in every row of the usual sizes.
    count.div_ceil(PIXELS) | 1
}

/// The statistics of a stream's components.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Smallest.
    #[serde(with = "nan_as_null")]
    pub min: Vec<f64>,
    /// Largest.
    #[serde(with = "nan_as_null")]
    pub max: Vec<f64>,
    /// Mean.
    #[serde(with = "nan_as_null")]
    pub mean: Vec<f64>,
    /// Standard deviation of the population.
    #[serde(with = "nan_as_null")]
    pub std: Vec<f64>,
    /// Quantile 1 %.
    #[serde(with = "nan_as_null")]
    pub q01: Vec<f64>,
    /// Quantile 10 %.
    #[serde(with = "nan_as_null")]
    pub q10: Vec<f64>,
    /// Median.
    #[serde(with = "nan_as_null")]
    pub q50: Vec<f64>,
    /// Quantile 90 %.
    #[serde(with = "nan_as_null")]
    pub q90: Vec<f64>,
    /// Quantile 99 %.
    #[serde(with = "nan_as_null")]
    pub q99: Vec<f64>,
    /// Samples that were seen.
    pub count: u64,
    /// NaN per component, which are in nothing else.
    pub nan: Vec<u64>,
    /// Infinities per component, which are in nothing else.
    pub infinite: Vec<u64>,
}

/// JSON has no NaN, which components without any finite number have.
mod nan_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        values.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
    }
}

/// Statistics of one stream in the making.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub(crate) struct StreamStats {
    width: usize,
    samples: u64,
    values: Values,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Values {
    Nothing,
    /// What `f32` holds exactly.
    Narrow(Vec<Column<f32>>),
    Wide(Vec<Column<f64>>),
    /// 256 counts per channel.
    Pictures(Vec<u64>),
}

#[derive(Deserialize)]
struct Unchecked {
    width: usize,
    samples: u64,
    values: Values,
}

/// Components of a stream without samples.
const MOST_EMPTY: usize = 1 << 22;

impl TryFrom<Unchecked> for StreamStats {
    type Error = String;

    fn try_from(Unchecked { width, samples, values }: Unchecked) -> Result<Self, String> {
        fn check<T: Real>(columns: &[Column<T>], width: usize) -> Result<(), String> {
            if columns.len() != width {
                return Err(format!("statistics of {} components, expected {width}", columns.len()));
            }
            match columns.iter().position(|column| !column.is_sound()) {
                None => Ok(()),
                Some(at) => Err(format!("the sketch of component {at} does not go with its mean")),
            }
        }
        match &values {
            // A summary of nothing has its width, which the file does not hold.
            Values::Nothing if width > MOST_EMPTY => {
                return Err(format!("statistics of {width} components of nothing"));
            }
            Values::Nothing => {}
            Values::Narrow(columns) => check(columns, width)?,
            Values::Wide(columns) => check(columns, width)?,
            Values::Pictures(counts) if width.checked_mul(256) == Some(counts.len()) => {}
            Values::Pictures(counts) => return Err(format!("{} counts for {width} channels", counts.len())),
        }
        Ok(Self { width, samples, values })
    }
}

impl StreamStats {
    /// For samples of `width` numbers, or pictures with so many channels.
    pub(crate) fn new(width: usize) -> Self {
        Self { width, samples: 0, values: Values::Nothing }
    }

    /// For the samples of a stream, and the points of each: points have no order, so statistics are of their coordinates.
    pub(crate) fn of(stream: &CachedStream) -> (Self, usize) {
        let shape = stream.shape.as_slice();
        match (stream.kind, shape) {
            (Kind::PointCloud, &[points, coordinates]) => (Self::new(coordinates), points),
            (kind, &[_, _, channels]) if kind.is_picture() => (Self::new(channels), 1),
            _ => (Self::new(shape.iter().product()), 1),
        }
    }

    /// How many components it is of.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The same without what it has seen.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.width)
    }

    #[cfg(test)]
    pub(crate) fn add(&mut self, tensor: &Tensor) -> Result<()> {
        self.add_points(tensor, 1)
    }

    /// Adds samples, `[S, ...shape]`, of so many points, of which each has the components.
    pub(crate) fn add_points(&mut self, tensor: &Tensor, points: usize) -> Result<()> {
        let shape = tensor.shape();
        let width: Option<usize> = shape.get(1..).map(|sample| sample.iter().product());
        let wanted = self.width.saturating_mul(points);
        ensure!(width == Some(wanted), "values", "expected samples of {wanted} numbers, got {shape:?}");
        macro_rules! add {
            ($(($variant:ident, $type:ty, $name:literal, $class:ident)),+) => {
                match tensor.dtype() { $(DType::$variant => self.add_rows(tensor.as_slice::<$type>()?)),+ }
            };
        }
        for_each_dtype!(add)?;
        self.samples += shape.first().map_or(0, |&rows| rows as u64);
        Ok(())
    }

    fn add_rows<E: Number>(&mut self, rows: &[E]) -> Result<()> {
        match &mut self.values {
            Values::Nothing if E::FITS_F32 => self.values = Values::Narrow(columns(self.width)),
            Values::Nothing => self.values = Values::Wide(columns(self.width)),
            Values::Narrow(narrow) if !E::FITS_F32 => self.values = Values::Wide(widened(narrow)),
            _ => {}
        }
        match &mut self.values {
            Values::Narrow(columns) => fill(columns, rows, E::narrow),
            Values::Wide(columns) => fill(columns, rows, E::wide),
            _ => return Err(Error::invalid("values", "numbers, where the others are pictures")),
        }
        Ok(())
    }

    /// Adds a picture, `[H, W, channels]`: evenly spread pixels of it, scaled to 0..1.
    pub(crate) fn add_picture(&mut self, pixels: &[u8], channels: usize) -> Result<()> {
        let count = pixels.len().checked_div(channels).unwrap_or(0);
        self.add_pixels(channels, pixels.chunks_exact(channels.max(1)).step_by(spread(count)))
    }

    /// The same of planes, as RGB.
    pub(crate) fn add_planes(&mut self, planes: &Planes<'_>) -> Result<()> {
        self.add_pixels(3, planes.pixels(spread(planes.height * planes.width)))
    }

    fn add_pixels(&mut self, channels: usize, pixels: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<()> {
        ensure!(channels == self.width, "pixels", "{channels} channels, expected {}", self.width);
        if self.values == Values::Nothing {
            self.values = Values::Pictures(vec![0; channels.saturating_mul(256)]);
        }
        let Values::Pictures(counts) = &mut self.values else {
            return Err(Error::invalid("pixels", "a picture, where the others are numbers"));
        };
        for pixel in pixels {
            for (counts, &value) in counts.chunks_exact_mut(256).zip(pixel.as_ref()) {
                counts[usize::from(value)] += 1;
            }
        }
        self.samples += 1;
        Ok(())
    }

    /// Adds what other statistics have seen.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        ensure!(other.width == self.width, "other", "{} components, expected {}", other.width, self.width);
        let samples = self.samples.saturating_add(other.samples);
        ensure!(i64::try_from(samples).is_ok(), "other", "there are no {samples} samples");
        if let (Values::Narrow(narrow), Values::Wide(_)) = (&self.values, &other.values) {
            self.values = Values::Wide(widened(narrow));
        }
        match (&mut self.values, &other.values) {
            (_, Values::Nothing) => {}
            (own @ Values::Nothing, values) => *own = values.clone(),
            (Values::Narrow(own), Values::Narrow(columns)) => merge_columns(own, columns),
            (Values::Wide(own), Values::Narrow(columns)) => merge_columns(own, &widened(columns)),
            (Values::Wide(own), Values::Wide(columns)) => merge_columns(own, columns),
            (Values::Pictures(own), Values::Pictures(counts)) => {
                own.iter_mut().zip(counts).for_each(|(own, count)| *own = own.saturating_add(*count));
            }
            _ => return Err(Error::invalid("other", "one has numbers, the other pictures")),
        }
        self.samples = samples;
        Ok(())
    }

    /// Makes them as small as they are written, once nothing is added any more: to write them copies them first.
    pub(crate) fn settle(&mut self) {
        match &mut self.values {
            Values::Narrow(columns) => columns.iter_mut().for_each(Column::settle),
            Values::Wide(columns) => columns.iter_mut().for_each(Column::settle),
            Values::Nothing | Values::Pictures(_) => {}
        }
    }

    /// What is known by now.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = Summary { count: self.samples, ..Summary::default() };
        match &self.values {
            Values::Nothing => (0..self.width).for_each(|_| summary.push(Moments::default(), [0.0; 5], (0, 0))),
            Values::Narrow(columns) => columns.iter().for_each(|column| column.summarise(&mut summary)),
            Values::Wide(columns) => columns.iter().for_each(|column| column.summarise(&mut summary)),
            Values::Pictures(counts) => {
                counts.chunks_exact(256).for_each(|counts| summarise_channel(counts, &mut summary))
            }
        }
        summary
    }
}

impl Summary {
    /// How many components each of its rows has.
    pub(crate) fn widths(&self) -> [usize; 11] {
        let Self { min, max, mean, std, q01, q10, q50, q90, q99, count: _, nan, infinite } = self;
        let [a, b, c, d, e, f, g, h, i] = [min, max, mean, std, q01, q10, q50, q90, q99].map(Vec::len);
        [a, b, c, d, e, f, g, h, i, nan.len(), infinite.len()]
    }

    fn push(&mut self, moments: Moments, quantiles: [f64; 5], (nan, infinite): (u64, u64)) {
        let known = |value: f64| if moments.count == 0 { f64::NAN } else { value };
        self.min.push(known(moments.low));
        self.max.push(known(moments.high));
        self.mean.push(known(moments.mean));
        self.std.push(known((moments.squares / moments.count as f64).sqrt()));
        let places = [&mut self.q01, &mut self.q10, &mut self.q50, &mut self.q90, &mut self.q99];
        places.into_iter().zip(quantiles).for_each(|(place, value)| place.push(known(value)));
        self.nan.push(nan);
        self.infinite.push(infinite);
    }
}

#[cfg(test)]
mod tests;
