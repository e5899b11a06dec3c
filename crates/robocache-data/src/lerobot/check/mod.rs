//! Everything that can be found out about a LeRobot dataset without decoding its pictures.
//!
//! `metadata` needs no data; `blocks` cuts the data into tasks; `rows` looks at the rows of one,
//! `table` at its file, `camera` at videos; `stats` reads the declared statistics.

mod blocks;
mod camera;
mod clock;
mod metadata;
mod rows;
mod stats;
mod table;

use std::path::Path;

use robocache::Result;

use self::blocks::Block;
use self::camera::VideoTask;
use self::rows::BlockOutcome;
use super::LeRobot;
use crate::check::collect::Collector;
use crate::check::values::{Seen, over_all};
use crate::check::work::in_order;
use crate::findings::{Checked, Finding, Progress};

/// What tasks need to know beyond the dataset.
struct Plan {
    blocks: Vec<Block>,
    videos: Vec<VideoTask>,
    /// Cameras that have at least one file, by their place.
    present: Vec<bool>,
    stats: stats::Stats,
    /// The row of the dataset that each episode starts with.
    first_index: Vec<u64>,
    /// Whether the streams' numbers are looked at.
    numbers: bool,
}

/// What was seen over all episodes.
struct Totals {
    /// `None` before the first sample.
    streams: Vec<Option<Seen>>,
    /// Streams whose statistics are not those of the whole dataset.
    partial: Vec<bool>,
    clocks: clock::Clocks,
    shifted: Vec<camera::Shifted>,
}

impl LeRobot {
    pub(super) fn check_all(&self, progress: &Progress<'_>, numbers: bool) -> Result<Checked> {
        let mut found = Collector::default();
        found.extend(self.findings.clone());
        let rows_are_clear = self.check_metadata(&mut found);
        let present = self.check_cameras_exist(&mut found);
        let stats = stats::Stats::read(self, &mut found);
        let plan = Plan {
            blocks: self.blocks(),
            videos: self.video_tasks(&present),
            present,
            stats,
            first_index: self.first_indices(),
            numbers,
        };
        let mut totals = Totals {
            streams: self.streams.iter().map(|_| None).collect(),
            // Rows of two episodes are seen twice, those of none not at all.
            partial: vec![!(rows_are_clear && numbers); self.streams.len()],
            clocks: clock::Clocks::default(),
            shifted: vec![camera::Shifted::default(); self.episodes.cameras.len()],
        };
        let (all, mut done) = (self.episodes.len(), 0);
        let mut take = |task: usize, outcome: BlockOutcome| {
            outcome.add_to(&mut totals, &mut found);
            for _ in plan.blocks.get(task).into_iter().flat_map(|block| &block.episodes) {
                done += 1;
                (progress.step)(done, all);
            }
        };
        in_order(plan.blocks.len(), progress, &|task, stop| self.check_block(&plan, task, stop), &mut take)?;
        let mut take = |_, findings: Vec<Finding>| camera::add_to(findings, &mut found);
        in_order(plan.videos.len(), progress, &|task, _| self.check_video(plan.videos.get(task)), &mut take)?;
        for (stream, seen) in self.streams.iter().zip(&totals.streams) {
            found.extend(seen.iter().flat_map(|seen| over_all(stream, seen)));
        }
        plan.stats.compare_all(self, &totals, &mut found);
        totals.clocks.finish(self, &mut found);
        for (camera, shifted) in self.episodes.cameras.iter().zip(&totals.shifted) {
            found.extend(shifted.finding(&camera.key));
        }
        Ok(found.finish())
    }
}

/// Whether something is there that a path leads to, readable or not. A link that leads nowhere is
/// nothing.
fn exists(path: &Path) -> bool {
    match path.metadata() {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Episodes by their numbers, for people.
fn episodes_text(numbers: &[u64]) -> String {
    match numbers {
        [] => "no episode".to_owned(),
        [one] => format!("episode {one}"),
        [first, .., last] => format!("{} episodes, {first} to {last}", numbers.len()),
    }
}
