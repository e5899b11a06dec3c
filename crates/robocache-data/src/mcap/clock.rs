//! What the stamps of a track are like as they were recorded: their order, and how they go with the log times.

use super::track::Entry;

/// Delays between a stamp and its log time that change by more from one message to the next are jumps.
const JUMP: u64 = 500_000_000;

/// What was seen of a track's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ClockFacts {
    pub(super) messages: u64,
    /// Messages that were recorded after one with a later stamp.
    pub(super) unsorted: u64,
    /// Times at which one clock jumped against the other, and the largest jump.
    pub(super) jumps: u64,
    pub(super) largest_jump: i64,
    /// The log time of the first jump.
    pub(super) first_jump: i64,
    /// The delay in the middle of all, from the stamp to the log time.
    pub(super) usual_delay: i64,
}

impl ClockFacts {
    /// Of messages in the order of their recording.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut facts = Self { messages: entries.len() as u64, ..Self::default() };
        let delay = |entry: &Entry| entry.log.saturating_sub(entry.time);
        let mut latest = i64::MIN;
        for (at, entry) in entries.iter().enumerate() {
            facts.unsorted += u64::from(entry.time < latest);
            latest = latest.max(entry.time);
            let Some(before) = at.checked_sub(1).and_then(|before| entries.get(before)) else { continue };
            let jump = delay(entry).saturating_sub(delay(before));
            if jump.unsigned_abs() > JUMP {
                if facts.jumps == 0 {
                    facts.first_jump = entry.log;
                }
                facts.jumps += 1;
                if jump.unsigned_abs() > facts.largest_jump.unsigned_abs() {
                    facts.largest_jump = jump;
                }
            }
        }
        let mut delays: Vec<i64> = entries.iter().map(delay).collect();
        let middle = delays.len() / 2;
        if middle < delays.len() {
            facts.usual_delay = *delays.select_nth_unstable(middle).1;
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_disorder_are_counted() {
        let entry = |time, log| Entry { time, log, piece: 0, offset: 0 };
        let second = 1_000_000_000;
        let entries = [entry(10, 12), entry(5, 14), entry(20, 22), entry(30, second + 32), entry(40, second + 42)];
        let facts = ClockFacts::of(&entries);
        assert_eq!((facts.messages, facts.unsorted, facts.jumps), (5, 1, 1));
        assert_eq!((facts.largest_jump, facts.first_jump, facts.usual_delay), (second, second + 32, 9));
        assert_eq!(ClockFacts::of(&[]), ClockFacts::default());
    }
}
