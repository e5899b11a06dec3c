//! Gathers findings in any order and gives them in one order, without thousands that are alike.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::codes;
use crate::findings::{Checked, Finding, Level};

/// How many findings of one kind in one stream are told one by one.
pub(crate) const TOLD: usize = 20;

/// What a finding is told together with.
type Kind = (Level, &'static str, Option<String>);

/// Findings so far. Holds a bounded number of each kind, and one error per episode and stream.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    errors: BTreeMap<(u64, Option<String>), Finding>,
    groups: BTreeMap<Kind, Group>,
    /// The same text about several files, which is told once: the first file and their number.
    files: BTreeMap<(Kind, String), (Option<PathBuf>, usize)>,
}

#[derive(Debug, Default)]
struct Group {
    count: usize,
    /// The first in order.
    told: Vec<Finding>,
}

impl Collector {
    pub(crate) fn add(&mut self, finding: Finding) {
        // What cannot be read now may be read later.
        if let (Level::Error, Some(episode)) = (finding.level, finding.episode)
            && finding.code != codes::UNREADABLE_NOW.name
        {
            let known = self.errors.entry((episode, finding.stream.clone())).or_insert_with(|| finding.clone());
            if order(&finding) < order(known) {
                *known = finding.clone();
            }
        }
        let group = self.groups.entry(kind(&finding)).or_default();
        group.count += 1;
        let place = group.told.partition_point(|known| order(known) <= order(&finding));
        if place < TOLD {
            group.told.insert(place, finding);
            group.told.truncate(TOLD);
        }
    }

    /// Adds what may be said of many files in the same words.
    pub(crate) fn add_for_file(&mut self, finding: Finding) {
        let key = (kind(&finding), finding.message.clone());
        let (first, count) = self.files.entry(key).or_insert_with(|| (finding.path.clone(), 0));
        if finding.path < *first {
            *first = finding.path;
        }
        *count += 1;
    }

    /// All of them by episode, stream and code; those of the whole dataset first.
    pub(crate) fn finish(mut self) -> Checked {
        for (((level, code, stream), message), (path, count)) in std::mem::take(&mut self.files) {
            let message = if count > 1 { format!("{message} (in {count} files, this one first)") } else { message };
            self.add(Finding { level, code, episode: None, stream, path, message });
        }
        let mut all = Vec::new();
        for ((level, code, stream), group) in self.groups {
            let more = group.count - group.told.len();
            let last = group.told.last().and_then(|finding| finding.episode);
            all.extend(group.told.into_iter().map(|finding| (finding.episode, 0, finding)));
            if more > 0 {
                let message = format!("and {more} more of these");
                all.push((last, 1, Finding { level, code, episode: None, stream, path: None, message }));
            }
        }
        all.sort_by(|(episode, more, finding), (other_episode, other_more, other)| {
            let key = |episode, more, finding: &Finding| (episode, finding.stream.clone(), finding.code, more);
            key(*episode, *more, finding)
                .cmp(&key(*other_episode, *other_more, other))
                .then_with(|| order(finding).cmp(&order(other)))
        });
        let findings = all.into_iter().map(|(_, _, finding)| finding).collect();
        Checked { findings, errors: self.errors.into_values().collect() }
    }
}

impl Extend<Finding> for Collector {
    fn extend<T: IntoIterator<Item = Finding>>(&mut self, findings: T) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }
}

fn kind(finding: &Finding) -> Kind {
    (finding.level, finding.code, finding.stream.clone())
}

fn order(finding: &Finding) -> (Option<u64>, &Option<PathBuf>, &str) {
    (finding.episode, &finding.path, &finding.message)
}

#[cfg(test)]
mod tests {
    use super::super::codes;
    use super::*;

    fn finding(episode: u64) -> Finding {
        Finding::error(&codes::NOT_FINITE, "x").episode(episode).stream("state")
    }

    #[test]
    fn many_alike_are_folded_and_the_order_is_one() {
        let gather = |episodes: &mut dyn Iterator<Item = u64>| {
            let mut all = Collector::default();
            episodes.for_each(|episode| all.add(finding(episode)));
            all.add(Finding::warning(&codes::CONSTANT, "y").stream("state"));
            all.add(finding(3).stream("action"));
            all.add(Finding::warning(&codes::EPISODE_GAP, "z").episode(2000));
            all.finish()
        };
        let Checked { mut findings, errors } = gather(&mut (0..1000));
        let backwards = gather(&mut (0..1000).rev());
        assert_eq!((&findings, &errors), (&backwards.findings, &backwards.errors));
        assert_eq!(findings.pop().unwrap().code, "episode_gap");
        // Not one is lost of those that say which episodes are bad.
        assert_eq!(errors.len(), 1001);
        assert_eq!(errors.last().unwrap().episode, Some(999));
        let found = findings;
        assert_eq!(found.len(), 1 + TOLD + 1 + 1);
        assert_eq!((found[0].code, found[0].episode), ("constant", None));
        let streams: Vec<_> = found.iter().filter(|f| f.episode == Some(3)).map(|f| f.stream.as_deref()).collect();
        assert_eq!(streams, [Some("action"), Some("state")]);
        let last = found.last().unwrap();
        assert_eq!((last.level, last.code), (Level::Error, "not_finite"));
        assert_eq!(last.message, "and 980 more of these");
        assert_eq!(found[found.len() - 2].episode, Some(19));
    }

    #[test]
    fn what_cannot_be_read_now_does_not_cost_the_episode() {
        let mut all = Collector::default();
        all.add(Finding::error(&codes::UNREADABLE_NOW, "too many open files").episode(7));
        let Checked { findings, errors } = all.finish();
        assert_eq!((findings.len(), errors.len()), (1, 0));
    }

    #[test]
    fn the_same_of_many_files_is_told_once() {
        let mut all = Collector::default();
        for path in ["b", "a", "c"] {
            let found = Finding::warning(&codes::CODEC_DIFFERS, "expected h264, got av1").path(path.as_ref());
            all.add_for_file(found.stream("top"));
        }
        let found = all.finish().findings;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "expected h264, got av1 (in 3 files, this one first)");
        assert_eq!(found[0].path, Some(PathBuf::from("a")));
    }
}
