//! A batch: windows of samples, gathered and aligned straight from the map.

use robocache::{DType, Error, ErrorKind, Result, Tensor};

use super::Windows;
use super::episodes::{Clock, Rows, Sample, View, look};
use super::gather::{Place, find, pick, write_numbers};
use super::pixels::write_pixels;
use super::spec::{Anchor, Key, lies_together};
use super::stamps::Times;
use super::tasks::TASK_INDEX;
use super::window::{Anchored, Wanted, Work};
use crate::cache::{Encoding, bytes_mut};
use crate::image::{Pixels, decode_image};

/// A column of a batch.
#[derive(Debug)]
pub enum Column {
    /// `[batch, ...]`.
    Numbers(Tensor),
    /// One text per sample.
    Words(Vec<String>),
    /// Several per sample, one for each step.
    Texts(Vec<Vec<String>>),
}

/// Windows of some samples.
#[derive(Debug)]
pub struct Batch {
    /// Columns by name, in order.
    pub columns: Vec<(String, Column)>,
    /// The number of every sample's task; -1 for none.
    pub tasks: Vec<i64>,
}

/// A column, what of it is padding, and the steps that the engine is to compute.
type Filled = (Column, Tensor, Vec<Wanted>);

impl Windows {
    /// Makes the batch of these samples.
    pub fn batch(&self, samples: &[Sample], work: &Work<'_>) -> Result<Batch> {
        let samples: Vec<Anchored<'_>> = samples.iter().map(|&sample| self.anchored(sample)).collect::<Result<_>>()?;
        let (mut columns, mut places, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (number, key) in self.keys.iter().enumerate() {
            let (column, pads, left) = if key.meta.encoding == Encoding::Text {
                self.texts(number, key, &samples, work)?
            } else {
                self.numbers(number, key, &samples, work)?
            };
            places.push(columns.len());
            wanted.push(left);
            columns.push((key.name.clone(), column));
            if key.has_time {
                columns.push((format!("{}_is_pad", key.name), Column::Numbers(pads)));
            }
        }
        for group in &self.groups {
            group.align(&self.keys, &samples, &wanted, work, |number, place, row| {
                let (Some(key), Some(&column)) = (self.keys.get(number), places.get(number)) else { return };
                if let Some((_, Column::Numbers(values))) = columns.get_mut(column) {
                    let size = key.width() * values.dtype().size();
                    let start = (place.window * key.offsets.len() + place.step) * size;
                    write_numbers(key, row, bytes_mut(values).get_mut(start..start + size).unwrap_or_default());
                }
            })?;
        }
        let tasks: Vec<i64> = samples.iter().map(|sample| self.task(sample)).collect();
        columns.extend(self.bookkeeping(&samples, &tasks)?);
        Ok(Batch { columns, tasks })
    }

    fn view(&self, sample: Sample) -> Result<&View<'_>> {
        let look = || look(&self.cache, self.episode_of(sample), &self.keys, &self.anchor, &self.tasks);
        // SAFETY: it points into the cache, which `self` owns and drops after the views.
        unsafe { self.views.get(sample.episode, look) }
    }

    fn anchored(&self, sample: Sample) -> Result<Anchored<'_>> {
        let view = self.view(sample)?;
        let (first, time) = match (view.clock, &self.anchor) {
            (Clock::Grid(start), Anchor::Rate(rate)) => {
                (Some(start), Some(start.saturating_add((sample.anchor as f64 * 1e9 / rate).round() as i64)))
            }
            (Clock::Grid(_), _) => (None, None),
            (Clock::Stamps(times), _) => nth(times, sample.anchor),
            (Clock::Stream(stream), _) => nth(&self.stamps(view, stream)?, sample.anchor),
        };
        let (Some(first), Some(time)) = (first, time) else {
            return Err(Error::invalid("sample", "there is no such anchor"));
        };
        Ok(Anchored { sample, view, time: time.saturating_sub(self.late), since: time.saturating_sub(first) })
    }

    /// The stamps of a stream that does not lie together.
    fn stamps(&self, view: &View<'_>, stream: usize) -> Result<Times<'static>> {
        if self.cache.count(view.place, stream) == 0 {
            return Ok(Times::Map(&[]));
        }
        let read = || self.cache.times(view.place, stream);
        Ok(Times::Held(self.stamps.get(view.place, stream, read)?))
    }

    /// The stamps of a key in an episode.
    fn times<'w>(&'w self, number: usize, key: &Key, view: &'w View<'_>) -> Result<Times<'w>> {
        if lies_together(&key.meta) {
            return Ok(Times::Map(view.rows.get(number).map(|rows| rows.times).unwrap_or_default()));
        }
        self.stamps(view, key.stream)
    }

    /// Values, what is padding, and the steps that the engine is to compute.
    fn numbers(&self, number: usize, key: &Key, samples: &[Anchored<'_>], work: &Work<'_>) -> Result<Filled> {
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
        // Numbers are copied faster than threads are started.
        let threads = if key.is_picture() { work.threads.clamp(1, samples.len().max(1)) } else { 1 };
        let wanted = if threads == 1 {
            self.fill(number, key, samples, bytes, pad, work)?
        } else {
            let each = samples.len().div_ceil(threads);
            let parts = samples.chunks(each).zip(bytes.chunks_mut((each * steps * row).max(1)));
            let parts = parts.zip(pad.chunks_mut((each * steps).max(1)));
            std::thread::scope(|scope| {
                let fill =
                    |((samples, bytes), pad)| scope.spawn(move || self.fill(number, key, samples, bytes, pad, work));
                let workers: Vec<_> = parts.map(fill).collect();
                let join = |worker: std::thread::ScopedJoinHandle<'_, Result<_>>| {
                    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(drop)
                };
                workers.into_iter().try_for_each(join)
            })?;
            // Pictures are taken as they are.
            Vec::new()
        };
        Ok((Column::Numbers(values), pads, wanted))
    }

    /// Fills windows, one after the other; returns the steps that the engine is to compute.
    fn fill(
        &self,
        number: usize,
        key: &Key,
        samples: &[Anchored<'_>],
        bytes: &mut [u8],
        pad: &mut [bool],
        work: &Work<'_>,
    ) -> Result<Vec<Wanted>> {
        let steps = key.offsets.len();
        let window = steps * key.width() * key.dtype.map_or(0, DType::size);
        let is_task = self.tasks.stream == Some(key.stream);
        let mut wanted = Vec::new();
        for (at, sample) in samples.iter().enumerate() {
            work.check()?;
            let out = bytes.get_mut(at * window..(at + 1) * window).unwrap_or_default();
            let pads = pad.get_mut(at * steps..(at + 1) * steps).unwrap_or_default();
            let times = self.times(number, key, sample.view)?;
            let values = sample.view.rows.get(number).map(|rows| rows.values).unwrap_or_default();
            let rows = Rows { times: &times, values };
            let leave = |step, target, before| wanted.push(Wanted { window: at, step, target, before });
            self.window(key, sample, &rows, out, pads, leave, work)?;
            if is_task {
                self.rename_tasks(sample.view, times.is_empty(), out);
            }
        }
        Ok(wanted)
    }

    /// A source's own numbers of tasks as those of the cache.
    fn rename_tasks(&self, view: &View<'_>, is_missing: bool, out: &mut [u8]) {
        for place in out.chunks_exact_mut(8) {
            let own = <[u8; 8]>::try_from(&*place).map_or(-1, i64::from_le_bytes);
            let number = if is_missing { view.task } else { self.tasks.number(view.source, own) };
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the inner loop of everything")]
    fn window(
        &self,
        key: &Key,
        sample: &Anchored<'_>,
        &Rows { times, values }: &Rows<'_>,
        out: &mut [u8],
        pads: &mut [bool],
        mut leave: impl FnMut(usize, i64, usize),
        work: &Work<'_>,
    ) -> Result<()> {
        let row = key.width() * key.dtype.map_or(0, DType::size);
        let is_formed = key.has_normal_form();
        let mut guess = usize::try_from(sample.sample.anchor).unwrap_or(0);
        let steps = out.chunks_exact_mut(row.max(1)).zip(pads.iter_mut()).zip(&key.offsets);
        for (step, ((out, pad), &offset)) in steps.enumerate() {
            let target = sample.time.saturating_add(offset);
            // Steps of a window are neighbours: the last found place is the best guess for the next.
            if let (Some(period), Some(&time)) = (self.period, times.get(guess)) {
                let ahead = target.saturating_sub(time) as f64 / period;
                guess = (guess as f64 + ahead.round()).max(0.0) as usize;
            }
            let Some(place) = find(times, target, self.tolerance, guess) else {
                // The episode does not have this stream.
                *pad = true;
                fill_missing(key, out);
                continue;
            };
            *pad = is_pad(key, times, place);
            let at = match (place, key.picks()) {
                (Place::At(at) | Place::Outside(at), _) => at,
                (Place::After(before), Some(method)) => pick(times, target, before, method),
                // Nothing lies between pictures, whatever a cache says.
                (Place::After(before), None) if key.is_picture() => before,
                (Place::After(before), None) => {
                    guess = before;
                    leave(step, target, before);
                    continue;
                }
            };
            guess = at;
            if is_formed {
                leave(step, times.get(at).copied().unwrap_or(target), at);
                continue;
            }
            if key.is_picture() {
                work.check()?;
                self.picture(key, sample.view.place, at, out)?;
                continue;
            }
            let kept = key.row_bytes();
            let row = values.get(at * kept..(at + 1) * kept);
            let row = row.ok_or_else(|| Error::new(ErrorKind::CorruptData, "samples are missing"))?;
            write_numbers(key, row, out);
        }
        Ok(())
    }

    fn picture(&self, key: &Key, place: usize, at: usize, out: &mut [u8]) -> Result<()> {
        if key.meta.encoding == Encoding::Raw {
            write_pixels(key, self.cache.row(place, key.stream, at)?, out);
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

    /// Texts, and what is padding.
    fn texts(&self, number: usize, key: &Key, samples: &[Anchored<'_>], work: &Work<'_>) -> Result<Filled> {
        let mut texts = Vec::with_capacity(samples.len());
        let mut pads = Vec::with_capacity(samples.len() * key.offsets.len());
        for sample in samples {
            work.check()?;
            let times = self.times(number, key, sample.view)?;
            let mut text = |&offset: &i64| {
                let target = sample.time.saturating_add(offset);
                let place = find(&times, target, self.tolerance, 0);
                pads.push(place.is_none_or(|place| is_pad(key, &times, place)));
                let at = match (place, key.picks()) {
                    (Some(Place::After(before)), Some(method)) => pick(&times, target, before, method),
                    (Some(Place::At(at) | Place::Outside(at) | Place::After(at)), _) => at,
                    (None, _) => return Ok(String::new()),
                };
                Ok(String::from_utf8_lossy(self.cache.item(sample.view.place, key.stream, at)?).into_owned())
            };
            texts.push(key.offsets.iter().map(&mut text).collect::<Result<Vec<_>>>()?);
        }
        let pads = Tensor::from_slice(&pads, &[samples.len(), key.offsets.len()])?;
        let column = if key.has_time { Column::Texts(texts) } else { Column::Words(texts.concat()) };
        Ok((column, pads, Vec::new()))
    }

    /// The number of the task at the anchor.
    fn task(&self, sample: &Anchored<'_>) -> i64 {
        let Rows { times, values } = sample.view.tasks;
        let guess = usize::try_from(sample.sample.anchor).unwrap_or(0);
        let at = match find(times, sample.time, self.tolerance, guess) {
            Some(Place::At(at) | Place::After(at) | Place::Outside(at)) => at,
            None => return sample.view.task,
        };
        let own = values.get(at * 8..).and_then(<[u8]>::first_chunk).map(|bytes| i64::from_le_bytes(*bytes));
        own.map_or(-1, |own| self.tasks.number(sample.view.source, own))
    }

    /// Where every sample comes from.
    fn bookkeeping(&self, samples: &[Anchored<'_>], tasks: &[i64]) -> Result<Vec<(String, Column)>> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let column = |of: &dyn Fn(&Anchored<'_>) -> i64| samples.iter().map(of).collect::<Vec<i64>>();
        let mut numbers = vec![
            ("index", column(&|sample| whole(self.selection.number(sample.sample)))),
            ("episode_index", column(&|sample| sample.view.episode_index)),
            ("frame_index", column(&|sample| whole(sample.sample.anchor))),
            (TASK_INDEX, tasks.to_vec()),
        ];
        if self.cache.sources().len() > 1 {
            numbers.push(("source_index", column(&|sample| i64::try_from(sample.view.source).unwrap_or(-1))));
        }
        let shape = [samples.len()];
        let mut columns = Vec::new();
        // A stream of that name has come already.
        let is_free = |name: &str| self.keys.iter().all(|key| key.name != name);
        for (name, numbers) in numbers.into_iter().filter(|(name, _)| is_free(name)) {
            columns.push((name.to_owned(), Column::Numbers(Tensor::from_slice(&numbers, &shape)?)));
        }
        if is_free("timestamp") {
            let seconds: Vec<f32> = samples.iter().map(|sample| (sample.since as f64 * 1e-9) as f32).collect();
            columns.push(("timestamp".to_owned(), Column::Numbers(Tensor::from_slice(&seconds, &shape)?)));
        }
        Ok(columns)
    }
}

/// The first stamp and one by its number.
fn nth(times: &[i64], number: u64) -> (Option<i64>, Option<i64>) {
    let nth = usize::try_from(number).ok().and_then(|number| times.get(number));
    (times.first().copied(), nth.copied())
}

/// Whether a target is outside of the episode, or in a gap that is too long.
fn is_pad(key: &Key, times: &[i64], place: Place) -> bool {
    match place {
        Place::At(_) => false,
        Place::Outside(_) => true,
        Place::After(before) => match (key.max_gap, times.get(before), times.get(before + 1)) {
            (Some(most), Some(&before), Some(&after)) => after.saturating_sub(before) > most,
            _ => false,
        },
    }
}

/// What stands for no value: NaN, 0 for integers and pictures.
fn fill_missing(key: &Key, out: &mut [u8]) {
    if key.is_picture() {
        out.fill(0);
        return;
    }
    let dtype = key.dtype.unwrap_or(DType::U8);
    let bits = dtype.missing_bits().to_le_bytes();
    for place in out.chunks_exact_mut(dtype.size()) {
        place.copy_from_slice(bits.get(..dtype.size()).unwrap_or_default());
    }
}
