//! Messages of a topic that belong together, and what they are like.

use robocache::DType;

use super::camera::{Changes, Lens};
use super::picture::PictureShape;
use super::topic::Key;

/// Orders of joint names that are told apart.
const MOST_ORDERS: usize = 8;

/// Where a message is, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// By the clock that was asked for.
    pub(super) time: i64,
    pub(super) log: i64,
    pub(super) piece: u32,
    /// Of its record in the piece.
    pub(super) offset: u32,
}

/// How many numbers a field has in the messages of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lengths {
    /// Messages in which it is not empty.
    pub(super) present: u64,
    pub(super) least: usize,
    pub(super) most: usize,
    /// Lists that the numbers of the first message are from, and whether those of all messages are as many and
    /// equally long.
    pub(super) lists: usize,
    pub(super) is_even: bool,
}

impl Lengths {
    pub(super) fn add(&mut self, count: usize, (lists, is_even): (usize, bool)) {
        if count > 0 {
            self.merge(Self { present: 1, least: count, most: count, lists, is_even });
        }
    }

    fn merge(&mut self, other: Self) {
        if self.present == 0 {
            *self = other;
        } else if other.present > 0 {
            self.present += other.present;
            self.least = self.least.min(other.least);
            self.most = self.most.max(other.most);
            self.is_even &= other.is_even && self.lists == other.lists;
        }
    }
}

/// What clouds of a track are like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CloudFacts {
    pub(super) names: Vec<String>,
    pub(super) dtype: DType,
    pub(super) most_points: usize,
    /// Other columns, where a message has others.
    pub(super) others: Option<Vec<String>>,
}

/// Messages of a topic that belong together.
#[derive(Debug, Clone)]
pub(super) struct Track {
    pub(super) topic: usize,
    pub(super) key: Key,
    /// As they were recorded.
    pub(super) entries: Vec<Entry>,
    /// By field of the topic.
    pub(super) lengths: Vec<Lengths>,
    /// The first message's picture, or why it is not read.
    pub(super) picture: Option<Result<PictureShape, String>>,
    pub(super) cloud: Option<CloudFacts>,
    /// Orders in which joints come, and how often.
    pub(super) orders: Vec<(Vec<String>, u64)>,
    /// Messages with a header whose stamp is 0 or no time.
    pub(super) unset: u64,
    pub(super) lenses: Changes<Lens>,
    /// Of a frame that is fixed to its parent.
    pub(super) poses: Changes<[f64; 7]>,
    /// The frame of its first message; of a pose its parent.
    pub(super) frame: Option<String>,
}

impl Track {
    pub(super) fn new(topic: usize, key: Key, fields: usize) -> Self {
        Self {
            topic,
            key,
            entries: Vec::new(),
            lengths: vec![Lengths::default(); fields],
            picture: None,
            cloud: None,
            orders: Vec::new(),
            unset: 0,
            lenses: Changes::default(),
            poses: Changes::default(),
            frame: None,
        }
    }

    /// Adds what a later piece has.
    pub(super) fn merge(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.lengths.iter_mut().zip(later.lengths).for_each(|(ours, theirs)| ours.merge(theirs));
        self.picture = self.picture.take().or(later.picture);
        self.frame = self.frame.take().or(later.frame);
        self.unset += later.unset;
        self.lenses.extend(later.lenses);
        self.poses.extend(later.poses);
        if let Some(theirs) = later.cloud {
            self.add_cloud(theirs);
        }
        for (order, count) in later.orders {
            self.add_order(order, count);
        }
    }

    fn add_order(&mut self, order: Vec<String>, count: u64) {
        if let Some((_, known)) = self.orders.iter_mut().find(|(known, _)| *known == order) {
            *known += count;
        } else if self.orders.len() < MOST_ORDERS {
            self.orders.push((order, count));
        }
    }

    pub(super) fn add_cloud(&mut self, theirs: CloudFacts) {
        let Some(ours) = &mut self.cloud else {
            self.cloud = Some(theirs);
            return;
        };
        ours.most_points = ours.most_points.max(theirs.most_points);
        if ours.names != theirs.names || ours.dtype != theirs.dtype {
            ours.others.get_or_insert(theirs.names);
        } else if let Some(others) = theirs.others {
            ours.others.get_or_insert(others);
        }
    }
}
