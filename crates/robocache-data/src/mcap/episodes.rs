//! Where episodes start and end, by log time, and which messages of each track they have.

use std::ops::Range;

use robocache::Result;

use super::track::{Entry, Track};
use crate::recording::RecordedEpisodes as Wish;

/// Messages that belong to one recording: a file, or all files of a bag.
pub(super) type Group = usize;

/// An episode.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Episode {
    pub(super) group: Group,
    /// The first log time.
    pub(super) start: i64,
    /// The log time after the last.
    pub(super) end: i64,
    pub(super) tasks: Vec<String>,
}

/// A message of the topic that marks episodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mark {
    Start(Option<String>),
    End,
}

/// The episodes of a recording. `groups` has the group of each piece; `marks` gives the messages of a topic: their groups, log times and what they say.
pub(super) fn episodes(
    tracks: &[Track],
    groups: &[Group],
    wish: &Wish,
    marks: impl FnOnce(&str) -> Result<Vec<(Group, i64, Mark)>>,
) -> Result<Vec<Episode>> {
    let group_of = |entry: &Entry| group_of(groups, entry);
    // First and last log time of each group.
    let mut ends: Vec<Option<(i64, i64)>> = vec![None; groups.iter().map(|group| group + 1).max().unwrap_or(0)];
    for entry in tracks.iter().flat_map(|track| &track.entries) {
        if let Some(ends) = ends.get_mut(group_of(entry)) {
            let (first, last) = ends.unwrap_or((entry.log, entry.log));
            *ends = Some((first.min(entry.log), last.max(entry.log)));
        }
    }
    let groups = || ends.iter().enumerate().filter_map(|(group, ends)| Some((group, (*ends)?)));
    let whole = |(group, (start, last)): (Group, (i64, i64))| Episode {
        group,
        start,
        end: last.saturating_add(1),
        tasks: Vec::new(),
    };
    Ok(match wish {
        Wish::Whole => groups().map(whole).collect(),
        Wish::Gap(seconds) => {
            let most = (seconds * 1e9) as i64;
            let mut logs: Vec<(Group, i64)> =
                tracks.iter().flat_map(|track| &track.entries).map(|entry| (group_of(entry), entry.log)).collect();
            logs.sort_unstable();
            let parts = logs.chunk_by(|a, b| a.0 == b.0 && b.1.saturating_sub(a.1) <= most);
            let ends = parts.filter_map(|part| Some((*part.first()?, *part.last()?)));
            ends.map(|((group, start), (_, last))| whole((group, (start, last)))).collect()
        }
        Wish::Ranges(ranges) => {
            let cut = |(group, (first, _)): (Group, (i64, i64))| {
                let at = move |seconds: f64| first.saturating_add((seconds * 1e9).round() as i64);
                ranges.iter().map(move |&(start, end)| Episode {
                    group,
                    start: at(start),
                    end: at(end),
                    tasks: Vec::new(),
                })
            };
            groups().flat_map(cut).collect()
        }
        Wish::Topic(topic) => {
            let mut marks = marks(topic)?;
            marks.sort_by_key(|(group, log, _)| (*group, *log));
            let mut episodes: Vec<Episode> = Vec::new();
            let mut open: Option<Episode> = None;
            for (group, log, mark) in marks {
                if let Some(mut last) = open.take() {
                    if last.group == group {
                        last.end = log;
                    }
                    episodes.push(last);
                }
                if let (Mark::Start(task), Some(Some((_, end)))) = (mark, ends.get(group)) {
                    let tasks = task.into_iter().collect();
                    open = Some(Episode { group, start: log, end: end.saturating_add(1), tasks });
                }
            }
            episodes.extend(open);
            episodes.retain(|episode| episode.start < episode.end);
            episodes
        }
    })
}

fn group_of(groups: &[Group], entry: &Entry) -> Group {
    usize::try_from(entry.piece).ok().and_then(|piece| groups.get(piece)).copied().unwrap_or(0)
}

/// The entries of a track by episode and time, and where those of each episode are. What is in no episode is left
/// out; of equal times the earlier recorded comes first.
pub(super) fn share(groups: &[Group], episodes: &[Episode], entries: Vec<Entry>) -> (Vec<Entry>, Vec<Range<usize>>) {
    let place = |entry: &Entry| {
        let group = group_of(groups, entry);
        let after = episodes.partition_point(|episode| (episode.group, episode.start) <= (group, entry.log));
        let at = after.checked_sub(1)?;
        episodes.get(at).filter(|episode| episode.group == group && entry.log < episode.end).map(|_| at)
    };
    let mut placed: Vec<(usize, Entry)> =
        entries.into_iter().filter_map(|entry| Some((place(&entry)?, entry))).collect();
    placed.sort_by_key(|(at, entry)| (*at, entry.time, entry.piece, entry.offset));
    let mut ranges = Vec::with_capacity(episodes.len());
    let mut start = 0;
    for at in 0..episodes.len() {
        let end = placed.partition_point(|(other, _)| *other <= at);
        ranges.push(start..end);
        start = end;
    }
    (placed.into_iter().map(|(_, entry)| entry).collect(), ranges)
}
