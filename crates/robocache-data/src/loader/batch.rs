//! A batch: windows of samples, gathered and aligned straight from the map.

use robocache::{DType, Error, ErrorKind, Result, Tensor};

use super::Windows;
use super::episodes::{Sample, View};
use super::gather::{Place, blend, find, pick, write_numbers, write_pixels};
use super::spec::{Anchor, Key};
use crate::cache::Encoding;
use crate::image::{Pixels, decode_image};
use crate::model::Interpolation;

/// A column of a batch.
#[derive(Debug)]
pub enum Column {
    /// `[batch, ...]`.
    Numbers(Tensor),
    /// One text per sample, or several with an axis of time.
    Text(Vec<Vec<String>>),
}

/// Windows of some samples.
#[derive(Debug)]
pub struct Batch {
    /// Columns by name, in order.
    pub columns: Vec<(String, Column)>,
}

impl Windows {
    /// Makes the batch of these samples.
    pub fn batch(&self, samples: &[Sample]) -> Result<Batch> {
        let mut columns = Vec::new();
        for (number, key) in self.keys.iter().enumerate() {
            if key.meta.encoding == Encoding::Text {
                columns.push((key.name.clone(), Column::Text(self.texts(number, key, samples)?)));
                continue;
            }
            let (values, pads) = self.numbers(number, key, samples)?;
            columns.push((key.name.clone(), Column::Numbers(values)));
            if let Some(pads) = pads {
                columns.push((format!("{}_is_pad", key.name), Column::Numbers(pads)));
            }
        }
        columns.extend(self.bookkeeping(samples)?);
        Ok(Batch { columns })
    }

    fn view(&self, sample: Sample) -> Result<&View<'_>> {
        // SAFETY: `self` owns the cache and the views, and drops the views first.
        unsafe { self.views.get(&self.cache, &self.selection, &self.keys, &self.anchor, sample.episode) }
    }

    /// When a sample's anchor is.
    fn anchor_time(&self, view: &View<'_>, sample: Sample) -> Result<i64> {
        if let Anchor::Rate(rate) = self.anchor {
            return Ok(view.start + (sample.anchor as f64 * 1e9 / rate).round() as i64);
        }
        let time = usize::try_from(sample.anchor).ok().and_then(|anchor| view.anchors.times.get(anchor)).copied();
        time.ok_or_else(|| Error::invalid("sample", "there is no such anchor"))
    }

    /// Values and, with an axis of time, what is padding.
    fn numbers(&self, number: usize, key: &Key, samples: &[Sample]) -> Result<(Tensor, Option<Tensor>)> {
        let dtype = key.dtype.ok_or_else(|| Error::invalid("stream", "it holds text"))?;
        let steps = key.offsets.len();
        let mut shape = vec![samples.len()];
        if key.has_time {
            shape.push(steps);
        }
        shape.extend(&key.shape);
        let mut values = Tensor::zeros(&shape, dtype)?;
        let mut pads = Tensor::zeros(&[samples.len(), steps], DType::Bool)?;
        let row = key.width() * dtype.size();
        let bytes = bytes_mut(&mut values);
        let pad = pads.as_mut_slice::<bool>()?;
        let mut scratch = Vec::new();
        for (at, &sample) in samples.iter().enumerate() {
            let view = self.view(sample)?;
            let anchor = self.anchor_time(view, sample)?;
            let window = bytes.get_mut(at * steps * row..(at + 1) * steps * row).unwrap_or_default();
            let pads = pad.get_mut(at * steps..(at + 1) * steps).unwrap_or_default();
            self.window(number, key, view, sample, anchor, window, pads, &mut scratch)?;
        }
        Ok((values, key.has_time.then_some(pads)))
    }

    #[expect(clippy::too_many_arguments, reason = "the inner loop of everything")]
    fn window(
        &self,
        number: usize,
        key: &Key,
        view: &View<'_>,
        sample: Sample,
        anchor: i64,
        out: &mut [u8],
        pads: &mut [bool],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(rows) = view.rows.get(number) else {
            return Ok(());
        };
        let row = key.width() * key.dtype.map_or(0, DType::size);
        let mut guess = usize::try_from(sample.anchor).unwrap_or(0);
        let steps = out.chunks_exact_mut(row.max(1)).zip(pads.iter_mut()).zip(&key.offsets);
        for ((out, pad), &offset) in steps {
            let target = anchor.saturating_add(offset);
            // Steps of a window are neighbours: the last found place is the best guess for the next.
            if let (Some(period), Some(&time)) = (self.period, rows.times.get(guess)) {
                let ahead = (target - time) as f64 / period;
                guess = (guess as f64 + ahead.round()).max(0.0) as usize;
            }
            let Some(place) = find(rows.times, target, self.tolerance, guess) else {
                // The episode does not have this stream.
                *pad = true;
                fill_missing(key, out);
                continue;
            };
            let (at, between) = match place {
                Place::At(at) => (at, None),
                Place::Outside(at) => {
                    *pad = true;
                    (at, None)
                }
                Place::After(before) => match key.method.as_slice() {
                    [all] if !matches!(all.method, Interpolation::Linear | Interpolation::Slerp) => {
                        (pick(rows.times, target, before, all.method), None)
                    }
                    _ => (before, Some(before)),
                },
            };
            guess = at;
            if key.is_picture() {
                self.picture(key, sample, at, out, scratch)?;
                continue;
            }
            let kept = key.row_bytes();
            match between {
                None => {
                    let row = rows.values.get(at * kept..(at + 1) * kept);
                    let row = row.ok_or_else(|| Error::new(ErrorKind::CorruptData, "samples are missing"))?;
                    write_numbers(key, row, out);
                }
                Some(before) if key.scale.is_none() => blend(key, rows, target, before, out)?,
                Some(before) => {
                    scratch.clear();
                    // Room for an aligned row.
                    scratch.resize(kept + 8, 0);
                    let start = scratch.as_ptr().align_offset(8);
                    let place = scratch.get_mut(start..start + kept).unwrap_or_default();
                    blend(key, rows, target, before, place)?;
                    write_numbers(key, place, out);
                }
            }
        }
        Ok(())
    }

    fn picture(&self, key: &Key, sample: Sample, at: usize, out: &mut [u8], _scratch: &mut Vec<u8>) -> Result<()> {
        let place = self.selection.places.get(sample.episode).copied().unwrap_or(usize::MAX);
        if key.meta.encoding == Encoding::Raw {
            let pixels = self.cache.row(place, key.stream, at)?;
            write_pixels(key, pixels, out);
            return Ok(());
        }
        let encoded = self.cache.item(place, key.stream, at)?;
        let image = decode_image(self.cache.path(), encoded, &self.limits)?;
        match &image.pixels {
            Pixels::U8(pixels) if pixels.len() == key.width() => write_pixels(key, pixels, out),
            _ => return Err(Error::new(ErrorKind::CorruptData, format!("{:?}: a picture of another size", key.name))),
        }
        Ok(())
    }

    fn texts(&self, number: usize, key: &Key, samples: &[Sample]) -> Result<Vec<Vec<String>>> {
        let mut texts = Vec::with_capacity(samples.len());
        for &sample in samples {
            let view = self.view(sample)?;
            let anchor = self.anchor_time(view, sample)?;
            let times = view.rows.get(number).map(|rows| rows.times).unwrap_or_default();
            let place = self.selection.places.get(sample.episode).copied().unwrap_or(usize::MAX);
            let text = |&offset: &i64| {
                let at = match find(times, anchor.saturating_add(offset), self.tolerance, 0) {
                    Some(Place::At(at) | Place::After(at) | Place::Outside(at)) => at,
                    None => return Ok(String::new()),
                };
                Ok(String::from_utf8_lossy(self.cache.item(place, key.stream, at)?).into_owned())
            };
            texts.push(key.offsets.iter().map(text).collect::<Result<Vec<_>>>()?);
        }
        Ok(texts)
    }

    /// Where every sample comes from.
    fn bookkeeping(&self, samples: &[Sample]) -> Result<Vec<(String, Column)>> {
        let mut numbers = [const { Vec::new() }; 4];
        let mut seconds = Vec::with_capacity(samples.len());
        for &sample in samples {
            let view = self.view(sample)?;
            let first = view.anchors.times.first().copied().unwrap_or(view.start);
            let [index, episode, frame, task] = &mut numbers;
            index.push(i64::try_from(self.selection.number(sample)).unwrap_or(i64::MAX));
            episode.push(view.episode_index);
            frame.push(i64::try_from(sample.anchor).unwrap_or(i64::MAX));
            task.push(view.task);
            let time = self.anchor_time(view, sample)?;
            // From the episode's start: its first stamp, which is 0 in a LeRobot dataset.
            seconds.push((if matches!(self.anchor, Anchor::Rate(_)) { time - first } else { time }) as f64 * 1e-9);
        }
        let shape = [samples.len()];
        let mut columns = Vec::new();
        for (name, numbers) in ["index", "episode_index", "frame_index", "task_index"].into_iter().zip(numbers) {
            // A stream of that name has come already.
            if self.keys.iter().all(|key| key.name != name) {
                columns.push((name.to_owned(), Column::Numbers(Tensor::from_slice(&numbers, &shape)?)));
            }
        }
        let seconds: Vec<f32> = seconds.into_iter().map(|second: f64| second as f32).collect();
        columns.push(("timestamp".to_owned(), Column::Numbers(Tensor::from_slice(&seconds, &shape)?)));
        Ok(columns)
    }
}

/// What stands for no value: NaN, 0 for integers.
fn fill_missing(key: &Key, out: &mut [u8]) {
    let dtype = key.dtype.unwrap_or(DType::U8);
    let bits = dtype.missing_bits().to_le_bytes();
    for place in out.chunks_exact_mut(dtype.size()) {
        place.copy_from_slice(bits.get(..dtype.size()).unwrap_or_default());
    }
}

fn bytes_mut(tensor: &mut Tensor) -> &mut [u8] {
    let bytes = tensor.view().layout().count() * tensor.dtype().size();
    let mut view = tensor.view_mut();
    // SAFETY: the tensor owns that many initialised bytes and is borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(view.data_mut(), bytes) }
}
