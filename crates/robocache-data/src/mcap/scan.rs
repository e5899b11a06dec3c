//! The one pass over all messages: which there are, when they were recorded, and what they are like.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use robocache::{Error, Result};

use super::camera::Lens;
use super::cloud::CloudLayout;
use super::decoded::Decoded;
use super::definitions::{Definitions, Known, defined_twice, path_of, search_definitions};
use super::layout::{Layout, McapFile, Placed};
use super::picture;
use super::piece::load;
use super::records::{Channel, Message, Records, Schema, kind};
use super::topic::{Key, Role, Topic, count, natural};
use super::track::{CloudFacts, Entry, Track};
use crate::Limits;
use crate::check::work::in_order;
use crate::files::is_lasting;
use crate::findings::Progress;
use crate::limits::exceeds;
use crate::recording::RecordedClock;

/// Times are nearer to 0, so that 64 bits also hold the time between any two.
const FARTHEST: u64 = 1 << 62;
/// Messages of a topic that cannot be decoded and are told one by one.
const MOST_BAD: usize = 1024;
const MOST_BAD_IN_ALL: usize = 1 << 16;
/// Fields of all sets of joints, frames and topics in one piece, and in all of them.
const MOST_TRACK_FIELDS: usize = 1 << 18;

/// A message that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadMessage {
    pub(super) topic: usize,
    pub(super) log: i64,
    pub(super) why: String,
}

/// All that a pass over the messages found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) topics: Vec<Arc<Topic>>,
    pub(super) tracks: Vec<Track>,
    pub(super) pieces: Vec<Placed>,
    /// Topics that are not read, each with the reason.
    pub(super) left_out: Vec<(String, String)>,
    pub(super) bad: Vec<BadMessage>,
    /// By topic, how many cannot be used.
    pub(super) bad_counts: BTreeMap<usize, u64>,
    /// Messages of channels that are not defined, by file and channel.
    pub(super) unknown: BTreeMap<(usize, u16), u64>,
    /// Messages, by file.
    pub(super) messages: Vec<u64>,
}

/// What a task of the pass is given.
struct Job<'a> {
    files: &'a [McapFile],
    pieces: &'a [Placed],
    definitions: &'a Definitions,
    clock: RecordedClock,
    limits: &'a Limits,
}

/// What the pass found in one piece; topics are places.
#[derive(Default)]
struct Found {
    tracks: Vec<Track>,
    bad: Vec<BadMessage>,
    bad_counts: BTreeMap<usize, u64>,
    unknown: BTreeMap<u16, u64>,
    messages: u64,
    fault: Option<String>,
}

/// Goes over all messages.
pub(super) fn scan(
    files: &[McapFile],
    layouts: &[Layout],
    clock: RecordedClock,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<Scan> {
    let mut pieces = Vec::new();
    for (file, layout) in layouts.iter().enumerate() {
        pieces.extend(layout.pieces.iter().map(|piece| Placed { file, piece: piece.clone(), fault: None }));
    }
    let mut definitions = Definitions::of(files, layouts, limits)?;
    // A file that ends well lists its channels at the end; else they are where the messages are.
    let mut searched = layouts.iter().any(|layout| layout.cut.is_some() || layout.channels.is_empty());
    if searched {
        search_definitions(files, &pieces, &mut definitions, limits, progress)?;
    }
    loop {
        let mut scan = go_over(files, &pieces, &definitions, clock, limits, progress)?;
        if scan.unknown.is_empty() || searched {
            for (placed, fault) in pieces.iter_mut().zip(std::mem::take(&mut scan.pieces)) {
                placed.fault = fault.fault;
            }
            scan.pieces = pieces;
            scan.topics = definitions.topics;
            scan.left_out = definitions.left_out;
            return Ok(scan);
        }
        searched = true;
        search_definitions(files, &pieces, &mut definitions, limits, progress)?;
    }
}

fn go_over(
    files: &[McapFile],
    pieces: &[Placed],
    definitions: &Definitions,
    clock: RecordedClock,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<Scan> {
    let job = Job { files, pieces, definitions, clock, limits };
    let mut scan = Scan { messages: vec![0; files.len()], ..Scan::default() };
    let mut places: HashMap<(usize, Key), usize> = HashMap::new();
    let (mut entries, mut fields) = (0u64, 0);
    let mut outcome = Ok(());
    in_order(pieces.len(), progress, &|at, _| job.piece(at), &mut |at, found: Result<Found>| {
        let (Some(placed), true) = (pieces.get(at), outcome.is_ok()) else { return };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                outcome = Err(error);
                return;
            }
        };
        scan.messages.iter_mut().skip(placed.file).take(1).for_each(|all| *all += found.messages);
        for (channel, count) in found.unknown {
            *scan.unknown.entry((placed.file, channel)).or_default() += count;
        }
        for (topic, count) in found.bad_counts {
            *scan.bad_counts.entry(topic).or_default() += count;
        }
        if scan.bad.len() < MOST_BAD_IN_ALL {
            scan.bad.extend(found.bad);
        }
        scan.pieces.push(Placed { file: placed.file, piece: placed.piece.clone(), fault: found.fault });
        for track in found.tracks {
            entries += track.entries.len() as u64;
            match places.get(&(track.topic, track.key.clone())).and_then(|&place| scan.tracks.get_mut(place)) {
                Some(known) => known.merge(track),
                None => {
                    fields += track.lengths.len() + 1;
                    places.insert((track.topic, track.key.clone()), scan.tracks.len());
                    scan.tracks.push(track);
                }
            }
        }
        let bytes = entries.saturating_mul(size_of::<Entry>() as u64);
        if bytes > limits.max_alloc || fields > MOST_TRACK_FIELDS {
            let text = format!(
                "the list of {entries} messages exceeds max_alloc ({}), or their topics are too many",
                limits.max_alloc
            );
            outcome = Err(exceeds(&path_of(files, placed.file), text));
        }
    })?;
    outcome.map(|()| scan)
}

/// Nanoseconds of 64 bits, where they are a time.
fn signed(time: u64) -> Option<i64> {
    (time < FARTHEST).then_some(time.cast_signed())
}

impl Job<'_> {
    fn piece(&self, at: usize) -> Result<Found> {
        let mut found = Found::default();
        let Some(placed) = self.pieces.get(at) else { return Ok(found) };
        let (Some(file), Some(known)) = (self.files.get(placed.file), self.definitions.files.get(placed.file)) else {
            return Ok(found);
        };
        let bytes = match load(file, &placed.piece, self.limits) {
            Ok(bytes) => bytes,
            Err(error) if is_lasting(&error) => {
                found.fault = Some(message_of(&error, &file.path));
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        let mut pass =
            Pass { job: self, piece: at, found, locals: HashMap::new(), key: Vec::new(), fields: 0, names: Vec::new() };
        let mut decoded = Decoded::default();
        let mut records = Records::new(&bytes);
        for record in records.by_ref() {
            match record.kind {
                kind::MESSAGE => match Message::parse(record.body) {
                    Some(message) => pass.message(known, message, record.at, &mut decoded),
                    None => {
                        pass.found.fault.get_or_insert(format!("the message at byte {} is cut", record.at));
                    }
                },
                kind::SCHEMA => {
                    let schema = Schema::parse(record.body);
                    if let Some((schema, other)) = schema.and_then(|new| Some((known.schemas.get(&new.id)?, new)))
                        && *schema != other
                    {
                        return Err(defined_twice(&file.path, "schema", other.id, &schema.name, &other.name));
                    }
                }
                kind::CHANNEL => {
                    let channel = Channel::parse(record.body);
                    if let Some(((channel, _), other)) =
                        channel.and_then(|new| Some((known.channels.get(&new.id)?, new)))
                        && *channel != other
                    {
                        return Err(defined_twice(&file.path, "channel", other.id, &channel.topic, &other.topic));
                    }
                }
                _ => {}
            }
        }
        if records.left() > 0 && !placed.piece.is_cut {
            let text = format!("{} bytes at the end of its chunk are no record", records.left());
            pass.found.fault.get_or_insert(text);
        }
        Ok(pass.found)
    }
}

/// An error's text without its path, which findings name themselves.
pub(super) fn message_of(error: &Error, path: &Path) -> String {
    let text = error.to_string();
    text.strip_suffix(&format!(" ({})", robocache::shown_path(path))).unwrap_or(&text).to_owned()
}

/// What is said of messages whose names would fill memory.
const TOO_MANY: &str = "too many different sets of joints, or frames";

struct Pass<'a, 'j> {
    job: &'a Job<'j>,
    piece: usize,
    found: Found,
    /// Tracks of this piece by topic and what tells them apart.
    locals: HashMap<Vec<u8>, usize>,
    key: Vec<u8>,
    /// Of all tracks of this piece.
    fields: usize,
    /// Names of the joints of a message.
    names: Vec<u8>,
}

impl Pass<'_, '_> {
    fn message(&mut self, known: &Known, message: Message<'_>, offset: usize, decoded: &mut Decoded) {
        self.found.messages += 1;
        let log = signed(message.log);
        let Some((_, place)) = known.channels.get(&message.channel) else {
            *self.found.unknown.entry(message.channel).or_default() += 1;
            return;
        };
        let Some((place, topic)) = place.and_then(|place| Some((place, self.job.definitions.topics.get(place)?)))
        else {
            return;
        };
        let Some(log) = log else {
            let why = format!("the log time {} is further from 0 than 146 years", message.log);
            self.bad(place, i64::MAX, why);
            return;
        };
        if let Err(why) = topic.decode(message.data, decoded) {
            self.bad(place, log, why);
            return;
        }
        let (Ok(piece), Ok(offset)) = (u32::try_from(self.piece), u32::try_from(offset)) else {
            self.bad(place, log, "more than 4 GiB in one chunk".to_owned());
            return;
        };
        let entry = |time: i64| Entry { time, log, piece, offset };
        if let Role::Transforms { stamps, children, parents, poses } = topic.role {
            let is_fixed = topic.name.ends_with("tf_static");
            let poses = decoded.numbers(poses).as_chunks::<56>().0;
            let children = decoded.texts(children, message.data);
            let parents = decoded.texts(parents, message.data);
            let stamps = decoded.numbers(stamps).as_chunks::<8>().0;
            for (((child, parent), stamp), pose) in children.into_iter().zip(parents).zip(stamps).zip(poses) {
                let (time, is_unset) = self.time(Some(i64::from_le_bytes(*stamp)), log);
                let track = self.track(place, topic, child.as_bytes(), || Key::Frame(child.clone()));
                let Some(track) = track.and_then(|track| self.found.tracks.get_mut(track)) else {
                    return self.bad(place, log, TOO_MANY.to_owned());
                };
                track.entries.push(entry(time));
                track.unset += u64::from(is_unset);
                track.frame.get_or_insert(parent);
                track.lengths.iter_mut().for_each(|lengths| lengths.add(7, (1, true)));
                if is_fixed {
                    let (numbers, _) = pose.as_chunks::<8>();
                    let number = |at: usize| numbers.get(at).map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
                    track.poses.add(log, std::array::from_fn(number));
                }
            }
            return;
        }
        let (time, is_unset) = self.time(decoded.stamp, log);
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        let mut order = None;
        if let Role::Joints { names: slot } = topic.role {
            decoded.join_names(slot, message.data, &mut names);
            order = Some(slot);
        }
        let joints = || {
            let Some(slot) = order else { return Key::All };
            let mut joints = decoded.texts(slot, message.data);
            joints.sort_by(|a, b| natural(a, b));
            Key::Joints(joints)
        };
        let limits = self.job.limits;
        let track = self.track(place, topic, &names, joints);
        self.names = names;
        let Some(track) = track.and_then(|track| self.found.tracks.get_mut(track)) else {
            return self.bad(place, log, TOO_MANY.to_owned());
        };
        track.entries.push(entry(time));
        track.unset += u64::from(is_unset);
        for (at, (field, lengths)) in topic.fields().iter().zip(&mut track.lengths).enumerate() {
            let count = count(field, decoded, at);
            lengths.add(count, decoded.lists(at, count));
        }
        if track.frame.is_none() {
            track.frame = topic.frame_slot().and_then(|slot| decoded.text(slot, message.data));
        }
        let mut why = None;
        match topic.role {
            Role::Picture(slots) if track.picture.is_none() => {
                track.picture = Some(picture::shape(&slots, decoded, message.data, limits));
            }
            Role::Cloud(slots) => match CloudLayout::read(&slots, decoded, message.data) {
                Ok(cloud) => track.add_cloud(CloudFacts {
                    names: cloud.names(),
                    dtype: cloud.dtype(),
                    most_points: cloud.points,
                    others: None,
                }),
                Err(error) => why = Some(error),
            },
            Role::Camera(slots) => {
                if let Some(lens) = Lens::read(&slots, decoded, message.data) {
                    track.lenses.add(log, lens);
                }
            }
            Role::Joints { names: slot } => {
                if track.orders.is_empty() {
                    track.orders.push((decoded.texts(slot, message.data), 0));
                }
                track.orders.iter_mut().for_each(|(_, count)| *count += 1);
                if let Key::Joints(names) = &track.key
                    && let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1])
                {
                    why = Some(format!("expected each joint once, {:?} is named twice", short(&pair[0])));
                }
            }
            _ => {}
        }
        if let Some(why) = why {
            self.bad(place, log, why);
        }
    }

    fn bad(&mut self, topic: usize, log: i64, why: String) {
        let count = self.found.bad_counts.entry(topic).or_default();
        *count += 1;
        if *count <= MOST_BAD as u64 {
            self.found.bad.push(BadMessage { topic, log, why });
        }
    }

    /// The time of a message, and whether its header has none.
    fn time(&self, stamp: Option<i64>, log: i64) -> (i64, bool) {
        match stamp {
            _ if self.job.clock == RecordedClock::Log => (log, false),
            Some(stamp) if stamp > 0 && stamp.unsigned_abs() < FARTHEST => (stamp, false),
            Some(_) => (log, true),
            None => (log, false),
        }
    }

    /// The place of the track of a topic whose messages have these bytes in common.
    fn track(&mut self, topic: usize, of: &Topic, apart: &[u8], key: impl FnOnce() -> Key) -> Option<usize> {
        self.key.clear();
        self.key.extend(topic.to_le_bytes());
        self.key.extend_from_slice(apart);
        let place = match self.locals.get(&self.key) {
            Some(&place) => place,
            None => {
                self.fields += of.fields().len() + 1;
                if self.fields > MOST_TRACK_FIELDS {
                    return None;
                }
                let place = self.found.tracks.len();
                self.locals.insert(self.key.clone(), place);
                self.found.tracks.push(Track::new(topic, key(), of.fields().len()));
                place
            }
        };
        Some(place)
    }
}

/// The start of a text from a file, for messages.
pub(super) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
