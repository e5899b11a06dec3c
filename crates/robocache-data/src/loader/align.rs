//! Steps that the engine computes: one call of its `fuse` for all streams of a window that need the same steps.

use robocache::ops::Fuse;
use robocache::ops::fuse::{MOST_STREAMS, Stream};
use robocache::ops::resample::{Method, Methods};
use robocache::{DType, Error, ErrorKind, Result, TensorRef};

use super::episodes::Rows;
use super::gather::needed;
use super::normal::numbers;
use super::spec::{Key, lies_together};
use super::window::{Anchored, Wanted, Work};
use crate::cache::bytes_mut;

/// The number of a key, and the steps that it still wants, in the order of windows.
type Left<'w> = (usize, &'w [Wanted]);

/// Streams that one call can align: of one type, with the same offsets.
#[derive(Debug)]
pub(super) struct Group {
    /// Numbers of keys.
    keys: Vec<usize>,
    /// The type that the engine sees.
    dtype: DType,
}

/// The keys that are interpolated, by what one call can do.
pub(super) fn groups(keys: &[Key]) -> Vec<Group> {
    let mut groups: Vec<(Group, &[i64])> = Vec::new();
    for (number, key) in keys.iter().enumerate().filter(|(_, key)| lies_together(&key.meta) && key.picks().is_none()) {
        let Some(dtype) = key.meta.number_type() else { continue };
        // What only stores numbers is copied, and what a file says is a bool may be another byte.
        let dtype = if dtype.is_stored() || dtype == DType::Bool { DType::U8 } else { dtype };
        let fits = |(group, offsets): &&mut (Group, &[i64])| {
            group.dtype == dtype && group.keys.len() < MOST_STREAMS && *offsets == key.offsets
        };
        match groups.iter_mut().find(fits) {
            Some((group, _)) => group.keys.push(number),
            None => groups.push((Group { keys: vec![number], dtype }, &key.offsets)),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

impl Group {
    /// Computes the steps of its streams that `wanted` lists, for each of `keys`, in the order of windows. `write` is
    /// given the number of the key, the step, and the row as the cache would keep it.
    pub(super) fn align(
        &self,
        keys: &[Key],
        samples: &[Anchored<'_>],
        wanted: &[Vec<Wanted>],
        work: &Work<'_>,
        mut write: impl FnMut(usize, Wanted, &[u8]),
    ) -> Result<()> {
        let list = |&number: &usize| (number, wanted.get(number).map(Vec::as_slice).unwrap_or_default());
        let mut left: Vec<Left<'_>> = self.keys.iter().map(list).collect();
        let mut targets = Vec::new();
        loop {
            let together = next_call(&mut left);
            let Some(&(_, places @ [first, ..])) = together.first() else { return Ok(()) };
            let sample =
                samples.get(first.window).ok_or_else(|| Error::invalid("sample", "there is no such window"))?;
            work.check()?;
            targets.clear();
            targets.extend(places.iter().map(|place| place.target));
            let mut parts = Vec::with_capacity(together.len());
            for &(number, places) in &together {
                let known = keys.get(number).zip(sample.view.rows.get(number));
                let (key, &rows) = known.ok_or_else(|| Error::invalid("streams", "there is no such stream"))?;
                parts.push(Part { number, name: &key.name, method: &key.method, row: key.row_bytes(), rows, places });
            }
            blend(self.dtype, &targets, &parts, &mut write)?;
        }
    }
}

/// Takes the streams that the next call aligns: those that want the same steps of the first window that is left, at
/// the same times.
fn next_call<'w>(left: &mut [Left<'w>]) -> Vec<Left<'w>> {
    let window = left.iter().filter_map(|(_, places)| places.first()).map(|place| place.window).min();
    let (mut together, mut steps): (Vec<Left<'w>>, &[Wanted]) = (Vec::with_capacity(left.len()), &[]);
    for (number, places) in left {
        let (own, later) = places.split_at(places.iter().take_while(|place| Some(place.window) == window).count());
        let when = |place: &Wanted| (place.step, place.target);
        let is_alike = own.iter().map(when).eq(steps.iter().map(when));
        if own.is_empty() || !(is_alike || steps.is_empty()) {
            continue;
        }
        (steps, *places) = (own, later);
        together.push((*number, own));
    }
    together
}

/// A stream of a call.
struct Part<'a> {
    number: usize,
    name: &'a str,
    method: &'a Methods,
    /// Bytes of a sample.
    row: usize,
    rows: Rows<'a>,
    places: &'a [Wanted],
}

impl<'a> Part<'a> {
    /// The samples that its places can need, and their stamps.
    fn samples(&self, dtype: DType) -> Result<(TensorRef<'a>, TensorRef<'a>)> {
        let missing = || Error::new(ErrorKind::CorruptData, format!("{:?}: samples are missing", self.name));
        let (first, last) = self
            .places
            .iter()
            .fold((usize::MAX, 0), |(first, last), place| (first.min(place.before), last.max(place.before)));
        let is_curved = self.method.each().any(|method| method == Method::Cubic);
        let (start, end) = needed(self.rows.times, first, last, is_curved);
        let times = self.rows.times.get(start..end).filter(|times| !times.is_empty()).ok_or_else(missing)?;
        let values = self.rows.values.get(start * self.row..end * self.row).ok_or_else(missing)?;
        Ok((numbers(values, self.row, dtype)?, TensorRef::from_slice(times, &[times.len()])?))
    }
}

/// Aligns streams at the targets, one for each of their places.
fn blend(
    dtype: DType,
    targets: &[i64],
    parts: &[Part<'_>],
    write: &mut impl FnMut(usize, Wanted, &[u8]),
) -> Result<()> {
    let samples = parts.iter().map(|part| part.samples(dtype)).collect::<Result<Vec<_>>>()?;
    let mut streams = Vec::with_capacity(parts.len());
    for (part, (values, times)) in parts.iter().zip(&samples) {
        streams.push(Stream { name: Some(part.name), method: part.method.clone(), ..Stream::new(values, times) });
    }
    let op = Fuse { check: false, ..Fuse::new(streams, TensorRef::from_slice(targets, &[targets.len()])?) };
    let mut results = robocache::run(&op)?;
    let rows = results.first_mut().map(bytes_mut).unwrap_or_default();
    let whole: usize = parts.iter().map(|part| part.row).sum();
    let mut column = 0;
    for part in parts {
        for (at, &place) in part.places.iter().enumerate() {
            let start = at * whole + column;
            write(part.number, place, rows.get(start..start + part.row).unwrap_or_default());
        }
        column += part.row;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(window: usize, step: usize, before: usize) -> Wanted {
        Wanted { window, step, target: 0, before }
    }

    #[test]
    fn a_call_is_of_one_window_and_the_same_steps() {
        let lists = [
            vec![place(0, 1, 5), place(0, 2, 5), place(3, 0, 9)],
            vec![place(0, 2, 7), place(3, 0, 1)],
            vec![],
            vec![place(0, 1, 2), place(0, 2, 3), place(2, 4, 0)],
            // The same step, but of a sample that is stamped otherwise.
            vec![Wanted { target: 1, ..place(2, 4, 0) }],
        ];
        let mut left: Vec<Left<'_>> = lists.iter().map(Vec::as_slice).enumerate().collect();
        let mut calls = Vec::new();
        loop {
            let call = next_call(&mut left);
            let Some(first) = call.first() else { break };
            let steps: Vec<usize> = first.1.iter().map(|place| place.step).collect();
            calls.push((first.1[0].window, steps, call.iter().map(|(number, _)| *number).collect::<Vec<_>>()));
        }
        let expected = [
            (0, vec![1, 2], vec![0, 3]),
            (0, vec![2], vec![1]),
            (2, vec![4], vec![3]),
            (2, vec![4], vec![4]),
            (3, vec![0], vec![0, 1]),
        ];
        assert_eq!(calls, expected);
        assert!(left.iter().all(|(_, places)| places.is_empty()));
    }

    #[test]
    fn streams_of_a_call_have_their_own_clocks_widths_and_methods() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
        let floats = |row: &[u8]| row.chunks(4).map(|x| f32::from_ne_bytes(x.try_into().unwrap())).collect::<Vec<_>>();
        let aligned = |values: &[f32]| {
            // A vector of bytes may begin anywhere.
            let mut room = vec![0u8; values.len() * 4 + 8];
            let start = room.as_ptr().align_offset(8);
            room[start..start + values.len() * 4].copy_from_slice(&bytes(values));
            (room, start..start + values.len() * 4)
        };
        // Every 10 and every 4, two columns and one.
        let (slow_times, quick_times) = ([0, 10, 20, 30], [0i64, 4, 8, 12, 16, 20]);
        let (slow, slow_at) = aligned(&[0.0, 1.0, 10.0, 3.0, 20.0, 1.0, 30.0, 5.0]);
        let (quick, quick_at) = aligned(&[0.0, 4.0, 8.0, 12.0, 16.0, 20.0]);
        let (linear, previous) = (Methods::One(Method::Linear), Methods::One(Method::Previous));
        let part = |number, row, method, times, values, places| Part {
            number,
            name: "stream",
            method,
            row,
            rows: Rows { times, values },
            places,
        };
        let (slow_places, quick_places) = ([place(0, 0, 0), place(0, 3, 1)], [place(0, 0, 1), place(0, 3, 4)]);
        let parts = [
            part(4, 8, &linear, &slow_times[..], &slow[slow_at], &slow_places[..]),
            part(9, 4, &previous, &quick_times[..], &quick[quick_at], &quick_places[..]),
        ];
        let mut written = Vec::new();
        let mut write = |number, place: Wanted, row: &[u8]| written.push((number, place.step, floats(row)));
        blend(DType::F32, &[5, 18], &parts, &mut write).unwrap();
        let expected = [(4, 0, vec![5.0, 2.0]), (4, 3, vec![18.0, 1.4]), (9, 0, vec![4.0]), (9, 3, vec![16.0])];
        assert_eq!(written, expected);
    }

    #[test]
    fn samples_that_a_stream_does_not_have_are_an_error_with_its_name() {
        let places = [place(0, 0, 3)];
        let (method, rows) = (Methods::One(Method::Linear), Rows { times: &[0, 1, 2], values: &[0; 12] });
        let part = Part { number: 0, name: "arm", method: &method, row: 4, rows, places: &places };
        let error = blend(DType::F32, &[1], &[part], &mut |_, _, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptData);
        assert!(error.to_string().contains("\"arm\""), "{error}");
    }
}
