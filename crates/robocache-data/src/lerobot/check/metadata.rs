//! What the metadata says of itself.

use std::collections::{BTreeMap, HashSet};

use super::super::LeRobot;
use crate::check::codes;
use crate::check::collect::Collector;
use crate::findings::{Finding, Level};
use crate::json::Json;

impl LeRobot {
    /// Whether each row belongs to exactly one episode, as far as the metadata tells.
    pub(super) fn check_metadata(&self, found: &mut Collector) -> bool {
        self.check_counts(found);
        let each_once = self.check_numbers(found);
        self.check_tasks(found);
        self.check_ranges(found) && each_once
    }

    fn check_counts(&self, found: &mut Collector) {
        let frames = self.episodes.length.iter().fold(0u64, |sum, &length| sum.saturating_add(length));
        let tasks = self.tasks.iter().filter(|task| !task.is_empty()).count() as u64;
        // An unreadable file is said already.
        let tasks_known = self.findings.iter().all(|finding| finding.code != codes::TASKS_UNREADABLE.name);
        let info = self.root.info();
        let differ =
            |level, text: String| Finding::new(level, &codes::COUNTS_DIFFER, text).path(self.root.shown(&info));
        for (level, key, said, is) in [
            (Level::Error, "total_episodes", self.info.total_episodes, self.episodes.len() as u64),
            (Level::Error, "total_frames", self.info.total_frames, frames),
            // Nothing but the count is wrong.
            (Level::Warning, "total_tasks", self.info.total_tasks.filter(|_| tasks_known), tasks),
        ] {
            if let Some(said) = said.filter(|&said| said != is) {
                let what = key.trim_start_matches("total_");
                found.add(differ(level, format!("expected {said} {what} by {key:?}, the metadata lists {is}")));
            }
        }
        let json = self.root.read(&info).and_then(|bytes| Json::parse(&info, &bytes, &self.root.limits)).ok();
        for (name, range) in json.as_ref().and_then(|json| json.get("splits")?.as_map()).unwrap_or_default() {
            let end = range.as_text().and_then(|text| text.split_once(':')?.1.trim().parse::<u64>().ok());
            let past_the_end = |&end: &u64| end > self.episodes.index.iter().max().map_or(0, |&last| last + 1);
            if let Some(end) = end.filter(past_the_end) {
                let text =
                    format!("expected episodes up to {end} by the split {name:?}, there are {}", self.episodes.len());
                found.add(differ(Level::Note, text));
            }
        }
    }

    /// The numbers of the episodes: from 0 on, each once.
    fn check_numbers(&self, found: &mut Collector) -> bool {
        let mut numbers = self.episodes.index.clone();
        numbers.sort_unstable();
        let (mut next, mut each_once) = (Some(0), true);
        for number in numbers {
            match next {
                Some(next) if number > next => {
                    let text = match number - next {
                        1 => format!("expected episode {next}, got {number}"),
                        count => format!("expected episode {next}, got {number}: {count} are left out"),
                    };
                    found.add(Finding::warning(&codes::EPISODE_GAP, text).episode(number));
                }
                Some(next) if number < next => {
                    each_once = false;
                    let text = format!("expected each episode once, {number} is listed again");
                    found.add(Finding::error(&codes::EPISODE_DUPLICATE, text).episode(number));
                }
                _ => {}
            }
            next = number.checked_add(1);
        }
        for (&number, _) in self.episodes.index.iter().zip(&self.episodes.length).filter(|(_, length)| **length == 0) {
            let text = "expected samples, the length is 0";
            found.add(Finding::warning(&codes::EPISODE_EMPTY, text).episode(number));
        }
        each_once
    }

    /// Version 3: the rows of the dataset, and those of each file, without gap or overlap.
    fn check_ranges(&self, found: &mut Collector) -> bool {
        let mut tiles = true;
        let range = |at: usize| self.episodes.range.get(at).copied().unwrap_or_default();
        let number = |at: usize| self.episodes.index.get(at).copied().unwrap_or_default();
        for ((at, &(from, to)), &length) in self.episodes.range.iter().enumerate().zip(&self.episodes.length) {
            if to.checked_sub(from) != Some(length) {
                tiles = false;
                let text =
                    format!("expected {length} rows as \"length\" says, the range {from} to {to} has {}", to - from);
                found.add(Finding::error(&codes::LENGTH_DIFFERS, text).episode(number(at)));
            }
        }
        let mut all: Vec<usize> = (0..self.episodes.range.len()).collect();
        all.sort_by_key(|&at| (range(at), at));
        if let Some(&first) = all.first()
            && range(first).0 != 0
        {
            tiles = false;
            let text = format!("expected rows from 0 on, the first range starts at {}", range(first).0);
            found.add(Finding::error(&codes::RANGES_DO_NOT_TILE, text).episode(number(first)));
        }
        let mut adjacent = HashSet::new();
        let mut check_pair = |pair: &[usize], found: &mut Collector| {
            let &[before, after] = pair else { return };
            // In a file, episodes that are also neighbours in the dataset were looked at.
            if adjacent.insert((before, after)) && range(before).1 != range(after).0 {
                tiles = false;
                let (end, start) = (range(before).1, range(after).0);
                let what = if start > end { "rows without an episode" } else { "rows of two episodes" };
                let text = format!(
                    "expected it to start at row {end}, where episode {} ends, it starts at {start}: {} {what}",
                    number(before),
                    start.abs_diff(end)
                );
                found.add(Finding::error(&codes::RANGES_DO_NOT_TILE, text).episode(number(after)));
            }
        };
        all.windows(2).for_each(|pair| check_pair(pair, found));
        let mut files: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &at in &all {
            files.entry(self.episodes.file.get(at)).or_default().push(at);
        }
        files.values().flat_map(|episodes| episodes.windows(2)).for_each(|pair| check_pair(pair, found));
        tiles
    }

    /// Episodes whose tasks are not in the list.
    fn check_tasks(&self, found: &mut Collector) {
        for &number in &self.episodes.null_tasks {
            let text = "expected the words of a task, they are missing (null)";
            found.add(Finding::warning(&codes::TEXT_MISSING, text).episode(number));
        }
        if self.tasks.is_empty() {
            return;
        }
        let known: HashSet<&str> = self.tasks.iter().map(String::as_str).collect();
        for (at, &number) in self.episodes.index.iter().enumerate() {
            if let Some(unknown) = self.episodes.tasks(at).iter().find(|task| !known.contains(task.as_str())) {
                let text = format!("expected a task of the list, got {unknown:?}");
                found.add(Finding::warning(&codes::TASK_UNKNOWN, text).episode(number));
            }
        }
    }
}
