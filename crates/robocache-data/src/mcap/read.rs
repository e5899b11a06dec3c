//! The samples of an episode, decoded piece by piece.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use robocache::{DType, Error, Result, Tensor};

use super::cloud::CloudLayout;
use super::decoded::Decoded;
use super::layout::{McapFile, Placed};
use super::picture::{self, PictureShape};
use super::piece::load;
use super::records::{Message, Records};
use super::streams::Content;
use super::topic::{Key, Role, Topic, count, natural_order};
use super::track::Entry;
use crate::Limits;
use crate::cache::bytes_mut;
use crate::frames::{Frames, Stored, StoredPictures};
use crate::limits::{corrupt, exceeds};
use crate::model::{Samples, Values};

/// The files of a recording and where their messages are; shared with the pictures that are fetched later.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) files: Vec<McapFile>,
    pub(super) pieces: Vec<Placed>,
    pub(super) topics: Vec<Arc<Topic>>,
    pub(super) limits: Limits,
}

/// A stream that is wanted, and the messages with its samples, by time.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) topic: usize,
    pub(super) key: &'a Key,
    pub(super) content: &'a Content,
    pub(super) shape: &'a [usize],
    pub(super) entries: &'a [Entry],
}

/// The samples of a stream while they are read.
enum Column {
    Numbers { bytes: Vec<u8>, row: usize, dtype: DType, is_there: Vec<bool> },
    Texts(Vec<String>),
    Pictures,
}

/// Told the list and the row of a message, its bytes and what they say.
pub(super) type Tell<'a> = dyn FnMut(usize, usize, &[u8], &Decoded) -> Result<()> + 'a;

impl Messages {
    pub(super) fn piece(&self, piece: u32) -> Result<(&Placed, &McapFile)> {
        let placed = usize::try_from(piece).ok().and_then(|piece| self.pieces.get(piece));
        placed
            .and_then(|placed| Some((placed, self.files.get(placed.file)?)))
            .ok_or_else(|| Error::invalid("piece", "there is no such piece"))
    }

    /// The records of a piece.
    pub(super) fn load(&self, piece: u32) -> Result<Vec<u8>> {
        let (placed, file) = self.piece(piece)?;
        load(file, &placed.piece, &self.limits)
    }

    fn path(&self, piece: u32) -> PathBuf {
        self.piece(piece).map(|(_, file)| file.path.clone()).unwrap_or_default()
    }

    /// The message at a place in a piece.
    pub(super) fn message<'b>(&self, bytes: &'b [u8], entry: &Entry) -> Result<Message<'b>> {
        let offset = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let message = Records::at(bytes, offset).and_then(|record| Message::parse(record.body));
        message.ok_or_else(|| corrupt(&self.path(entry.piece), "the file has changed since it was opened"))
    }

    fn topic(&self, topic: usize) -> Result<&Topic> {
        self.topics.get(topic).map(AsRef::as_ref).ok_or_else(|| Error::invalid("topic", "there is no such topic"))
    }

    /// Decodes messages, each piece once, and hands them out with their places in `entries`.
    pub(super) fn each(
        &self,
        mut entries: Vec<(Entry, usize, usize)>,
        tell: &mut Tell<'_>,
        topic_of: &dyn Fn(usize) -> usize,
    ) -> Result<()> {
        entries.sort_unstable_by_key(|(entry, list, row)| (entry.piece, entry.offset, *list, *row));
        let mut decoded = Decoded::default();
        for of_piece in entries.chunk_by(|(a, ..), (b, ..)| a.piece == b.piece) {
            let Some((first, ..)) = of_piece.first() else { continue };
            let bytes = self.load(first.piece)?;
            let mut last = None;
            for (entry, list, row) in of_piece {
                let message = self.message(&bytes, entry)?;
                // Several frames, or several sets of streams, are in one message.
                if last != Some(entry.offset) {
                    let topic = self.topic(topic_of(*list))?;
                    topic.decode(message.data, &mut decoded).map_err(|why| self.bad(topic, entry, &why))?;
                    last = Some(entry.offset);
                }
                tell(*list, *row, message.data, &decoded)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn bad(&self, topic: &Topic, entry: &Entry, why: &str) -> Error {
        corrupt(&self.path(entry.piece), format!("a message of {:?}: {why}", topic.name))
    }

    /// Reads streams of an episode.
    pub(super) fn read(self: &Arc<Self>, wanted: &[Wanted<'_>]) -> Result<Vec<Samples>> {
        let mut columns: Vec<Column> = wanted.iter().map(Wanted::column).collect();
        self.ensure_room(wanted, &columns)?;
        for (column, wanted) in columns.iter_mut().zip(wanted) {
            column.reserve(wanted.entries.len());
        }
        let has_numbers = |(_, wanted): &(usize, &Wanted<'_>)| !matches!(wanted.content, Content::Picture(_));
        let jobs =
            wanted.iter().enumerate().filter(has_numbers).flat_map(|(list, wanted)| {
                wanted.entries.iter().enumerate().map(move |(row, entry)| (*entry, list, row))
            });
        let jobs = jobs.collect();
        let mut scratch = Scratch::default();
        let mut tell = |list: usize, row: usize, message: &[u8], decoded: &Decoded| {
            let (Some(wanted), Some(column)) = (wanted.get(list), columns.get_mut(list)) else { return Ok(()) };
            let topic = self.topic(wanted.topic)?;
            scratch.note(list, wanted.entries.get(row));
            column.take(wanted, topic, row, message, decoded, &mut scratch).map_err(|why| {
                let piece = wanted.entries.get(row).map_or(0, |entry| entry.piece);
                corrupt(&self.path(piece), format!("{}: {why}", wanted.name))
            })
        };
        self.each(jobs, &mut tell, &|list| wanted.get(list).map_or(0, |wanted| wanted.topic))?;
        columns.into_iter().zip(wanted).map(|(column, wanted)| self.samples(column, wanted)).collect()
    }

    /// What the samples of an episode take must be within the limits.
    fn ensure_room(&self, wanted: &[Wanted<'_>], columns: &[Column]) -> Result<()> {
        let bytes = columns.iter().zip(wanted).map(|(column, wanted)| match column {
            Column::Numbers { row, .. } => (wanted.entries.len() as u64).saturating_mul(*row as u64),
            _ => 0,
        });
        let bytes = bytes.fold(0, u64::saturating_add);
        if bytes <= self.limits.max_alloc {
            return Ok(());
        }
        let path = self.files.first().map(|file| file.path.clone()).unwrap_or_default();
        let text = format!(
            "the samples of one episode take {bytes} bytes, more than max_alloc ({}); cut the recording into episodes",
            self.limits.max_alloc
        );
        Err(exceeds(&path, text))
    }

    fn samples(self: &Arc<Self>, column: Column, wanted: &Wanted<'_>) -> Result<Samples> {
        let times = || wanted.entries.iter().map(|entry| entry.time);
        Ok(match column {
            Column::Texts(texts) => Samples { times: times().collect(), values: Values::Text(texts.into()) },
            Column::Pictures => {
                let Content::Picture(shape) = wanted.content else {
                    return Err(Error::invalid("stream", "it has no pictures"));
                };
                let pictures = MessagePictures {
                    messages: Arc::clone(self),
                    topic: wanted.topic,
                    entries: wanted.entries.into(),
                    shape: *shape,
                    last: Mutex::default(),
                };
                let frames = Frames::stored(Arc::new(pictures), shape.shape, shape.dtype, &self.limits);
                Samples { times: times().collect(), values: Values::Frames(Box::new(frames)) }
            }
            Column::Numbers { mut bytes, row, dtype, is_there } => {
                let mut kept = 0;
                // Messages in which the field is empty have no sample.
                for (at, _) in is_there.iter().enumerate().filter(|(_, there)| **there) {
                    if at != kept {
                        bytes.copy_within(at * row..(at + 1) * row, kept * row);
                    }
                    kept += 1;
                }
                bytes.truncate(kept * row);
                let times = times().zip(&is_there).filter(|(_, there)| **there).map(|(time, _)| time).collect();
                let shape: Vec<usize> = std::iter::once(kept).chain(wanted.shape.iter().copied()).collect();
                Samples { times, values: Values::Numbers(Arc::new(tensor(bytes, dtype, &shape)?)) }
            }
        })
    }
}

impl Wanted<'_> {
    fn column(&self) -> Column {
        let numbers = |count: usize, dtype: DType| Column::Numbers {
            bytes: Vec::new(),
            row: count.saturating_mul(dtype.size()),
            dtype,
            is_there: Vec::new(),
        };
        match *self.content {
            Content::Numbers { width, dtype, .. } => numbers(width, dtype),
            Content::Cloud { points, columns, dtype } => numbers(points.saturating_mul(columns), dtype),
            Content::Text { .. } => Column::Texts(Vec::new()),
            Content::Picture(_) => Column::Pictures,
        }
    }
}

/// Memory that is used again for every message.
#[derive(Default)]
struct Scratch {
    row: Vec<u8>,
    /// The names of the joints of the last message, each with a zero behind it, and where each goes.
    names: Vec<u8>,
    order: Vec<usize>,
    /// The last sample's list and place, and how many samples before it were the same.
    last: Option<(usize, Entry)>,
    again: usize,
}

impl Column {
    fn reserve(&mut self, rows: usize) {
        match self {
            Self::Numbers { bytes, row, is_there, .. } => {
                bytes.resize(rows * *row, 0);
                is_there.resize(rows, false);
            }
            Self::Texts(texts) => texts.resize(rows, String::new()),
            Self::Pictures => {}
        }
    }

    /// Takes the sample of a message.
    fn take(
        &mut self,
        wanted: &Wanted<'_>,
        topic: &Topic,
        row_at: usize,
        message: &[u8],
        decoded: &Decoded,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        let (bytes, row, dtype, is_there) = match self {
            Self::Pictures => return Ok(()),
            Self::Texts(texts) => {
                if let (Content::Text { field }, Some(to)) = (wanted.content, texts.get_mut(row_at)) {
                    *to = decoded.text(*field, message).unwrap_or_default();
                }
                return Ok(());
            }
            Self::Numbers { bytes, row, dtype, is_there } => (bytes, *row, *dtype, is_there),
        };
        let Some(to) = bytes.get_mut(row_at * row..(row_at + 1) * row) else { return Ok(()) };
        let from = match (wanted.content, topic.role) {
            (Content::Cloud { points, .. }, Role::Cloud(slots)) => {
                let cloud = CloudLayout::read(&slots, decoded, message)?;
                if cloud.points > *points {
                    return Err(format!("expected at most {points} points, got {}", cloud.points));
                }
                scratch.row.clear();
                cloud.write(decoded.bytes(slots.data, message), dtype, &mut scratch.row);
                fill_with_nan(&mut scratch.row, row, dtype);
                scratch.row.as_slice()
            }
            (_, Role::Transforms { stamps, children, poses, .. }) => {
                let Key::Frame(frame) = wanted.key else { return Ok(()) };
                let time = wanted.entries.get(row_at).map_or(0, |entry| entry.time);
                let stamps = decoded.numbers(stamps).as_chunks::<8>().0;
                let stamp = |at: usize| stamps.get(at).map_or(0, |stamp| i64::from_le_bytes(*stamp));
                let children = decoded.texts(children, message);
                let mut places: Vec<usize> = (0..children.len()).filter(|&at| children[at] == *frame).collect();
                // A message may have a frame several times: first by its stamp, then those without one.
                places.sort_by_key(|&at| (stamp(at) != time, stamp(at) > 0));
                let at = places.get(scratch.again).copied();
                let at = at.ok_or_else(|| format!("expected the frame {frame:?}"))?;
                decoded.numbers(poses).get(at * row..(at + 1) * row).unwrap_or_default()
            }
            (Content::Numbers { field, moved, .. }, role) => {
                let Some(found) = topic.fields().get(*field) else { return Ok(()) };
                if count(found, decoded, *field) == 0 {
                    return Ok(());
                }
                let numbers = match decoded.numbers(*field) {
                    [] => decoded.bytes(*field, message),
                    numbers => numbers,
                };
                match role {
                    Role::Joints { names } if *moved > 0 && numbers.len() == row => {
                        scratch.sort(decoded, names, message);
                        scratch.put_in_order(numbers, dtype.size() * moved)
                    }
                    _ => numbers,
                }
            }
            _ => return Ok(()),
        };
        if from.len() != row {
            return Err(format!(
                "expected {} numbers, a message has {}",
                row / dtype.size(),
                from.len() / dtype.size()
            ));
        }
        to.copy_from_slice(from);
        is_there.iter_mut().skip(row_at).take(1).for_each(|there| *there = true);
        Ok(())
    }
}

impl Scratch {
    /// Notes which sample comes.
    fn note(&mut self, list: usize, entry: Option<&Entry>) {
        let now = entry.map(|entry| (list, *entry));
        self.again = if now == self.last { self.again + 1 } else { 0 };
        self.last = now;
    }

    /// Finds where the joints of a message go; most name them as the message before.
    fn sort(&mut self, decoded: &Decoded, slot: usize, message: &[u8]) {
        if !decoded.names_are(slot, message, &self.names) {
            let names = decoded.texts(slot, message);
            self.order = natural_order(&names).unwrap_or_else(|| (0..names.len()).collect());
            self.names.clear();
            decoded.join_names(slot, message, &mut self.names);
        }
    }

    /// Numbers of joints in the order of their names, `size` bytes for each; once or several times for all joints.
    fn put_in_order<'s>(&'s mut self, numbers: &'s [u8], size: usize) -> &'s [u8] {
        let joints = self.order.len() * size;
        if joints == 0 || !numbers.len().is_multiple_of(joints) || self.order.is_sorted() {
            return numbers;
        }
        self.row.clear();
        for block in numbers.chunks_exact(joints) {
            for &from in &self.order {
                self.row.extend_from_slice(block.get(from * size..(from + 1) * size).unwrap_or_default());
            }
        }
        &self.row
    }
}

/// Clouds have as many points as the largest.
fn fill_with_nan(row: &mut Vec<u8>, bytes: usize, dtype: DType) {
    while row.len() < bytes {
        match dtype {
            DType::F64 => row.extend(f64::NAN.to_le_bytes()),
            _ => row.extend(f32::NAN.to_le_bytes()),
        }
    }
}

/// Little-endian numbers as a tensor.
fn tensor(mut bytes: Vec<u8>, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let mut tensor = Tensor::zeros(shape, dtype)?;
    let size = dtype.size();
    if cfg!(target_endian = "big") && size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    let to = bytes_mut(&mut tensor);
    if to.len() != bytes.len() {
        return Err(Error::invalid("stream", format!("{} bytes for {} of {dtype}", bytes.len(), to.len())));
    }
    to.copy_from_slice(&bytes);
    Ok(tensor)
}

/// A piece, and its records.
type Loaded = Option<(u32, Arc<Vec<u8>>)>;

/// The pictures of an episode, fetched from their messages.
#[derive(Debug)]
struct MessagePictures {
    messages: Arc<Messages>,
    topic: usize,
    entries: Arc<[Entry]>,
    shape: PictureShape,
    /// The piece that was read last: neighbours are in one.
    last: Mutex<Loaded>,
}

impl MessagePictures {
    fn piece(&self, piece: u32) -> Result<Arc<Vec<u8>>> {
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*lock()
            && *known == piece
        {
            return Ok(Arc::clone(bytes));
        }
        let bytes = Arc::new(self.messages.load(piece)?);
        *lock() = Some((piece, Arc::clone(&bytes)));
        Ok(bytes)
    }
}

impl StoredPictures for MessagePictures {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn path(&self) -> &Path {
        self.messages.files.first().map_or(Path::new(""), |file| &file.path)
    }

    fn with(&self, sample: usize, sink: &mut dyn FnMut(Stored<'_>) -> Result<()>) -> Result<()> {
        let entry = self.entries.get(sample).ok_or_else(|| Error::invalid("sample", "there is no such picture"))?;
        let bytes = self.piece(entry.piece)?;
        let message = self.messages.message(&bytes, entry)?;
        let topic = self.messages.topic(self.topic)?;
        let Role::Picture(slots) = topic.role else { return Err(Error::invalid("stream", "it has no pictures")) };
        let mut decoded = Decoded::default();
        topic.decode(message.data, &mut decoded).map_err(|why| self.messages.bad(topic, entry, &why))?;
        let path = self.messages.path(entry.piece);
        picture::give(&slots, &decoded, message.data, &self.shape, &path, &self.messages.limits, sink)
    }
}
