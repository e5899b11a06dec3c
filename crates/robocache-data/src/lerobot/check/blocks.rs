//! Cuts the data into tasks: neighbouring episodes of one file, so that pages are decoded once
//! however short the episodes are.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::LeRobot;
use super::super::info::Version;
use crate::model::Kind;

/// Bytes of a stream that one task holds, unless one episode alone has more.
const BLOCK_BYTES: usize = 8 << 20;

/// Episodes of one file that are read together.
#[derive(Debug)]
pub(super) struct Block {
    /// By their places, in the order of their rows; not empty.
    pub(super) episodes: Vec<usize>,
    /// In the first block of a file, where the file itself is looked at: all its episodes.
    pub(super) of_file: Option<Vec<usize>>,
}

impl LeRobot {
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut files: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (at, &file) in self.episodes.file.iter().enumerate() {
            files.entry(file).or_default().push(at);
        }
        let most = self.rows_per_block();
        let mut blocks = Vec::new();
        for mut episodes in files.into_values() {
            episodes.sort_by_key(|&at| (self.claimed_rows(at).start, at));
            let mut rest = episodes.as_slice();
            let mut of_file = Some(episodes.clone());
            while let Some(&first) = rest.first() {
                let start = self.claimed_rows(first).start;
                let fits = |at: &usize| self.claimed_rows(*at).end.saturating_sub(start) <= most;
                let count = rest.iter().take_while(|at| fits(at)).count().max(1);
                let (block, after) = rest.split_at(count);
                blocks.push(Block { episodes: block.to_vec(), of_file: of_file.take() });
                rest = after;
            }
        }
        blocks
    }

    fn rows_per_block(&self) -> u64 {
        let numbers = self.streams.iter().filter(|stream| matches!(stream.kind, Kind::Scalar | Kind::Vector));
        let row = numbers.map(|stream| stream.width() * stream.dtype.map_or(1, |dtype| dtype.size())).max();
        (BLOCK_BYTES / row.unwrap_or(1).max(8)).max(1) as u64
    }

    /// The rows of its file that the metadata gives to an episode.
    pub(super) fn claimed_rows(&self, at: usize) -> Range<u64> {
        let first = self.episodes.first_row.get(at).copied().unwrap_or(0);
        first..first.saturating_add(self.episodes.length.get(at).copied().unwrap_or(0))
    }

    /// The row of the whole dataset that each episode starts with; version 2 only counts.
    pub(super) fn first_indices(&self) -> Vec<u64> {
        if !self.has_one_file_per_episode() {
            return self.episodes.range.iter().map(|range| range.0).collect();
        }
        let mut next = 0u64;
        let count = |&length: &u64| {
            let first = next;
            next = next.saturating_add(length);
            first
        };
        self.episodes.length.iter().map(count).collect()
    }

    pub(super) fn has_one_file_per_episode(&self) -> bool {
        self.info.version != Version::V30
    }
}
