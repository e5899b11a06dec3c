//! Movie fragments: recorders that survive a crash write these instead of one index.

use robocache::Result;

use super::boxes::{Fields, bad, children, find, need};
use super::index::TrackDefaults;
use super::samples::{Sample, check_count, reserve};

/// Flag of a sample that needs others: not a keyframe.
const NOT_SYNC: u32 = 1 << 16;

/// Appends the samples of one `moof` at byte `start` of the file. `clock` is the decoding time
/// where the previous fragment ended.
pub(super) fn read(
    moof: &[u8],
    start: u64,
    len: u64,
    max_frames: u64,
    defaults: &TrackDefaults,
    clock: &mut Option<i64>,
    samples: &mut Vec<Sample>,
) -> Result<()> {
    for child in children(moof, "moof") {
        let (kind, traf) = child?;
        if kind != *b"traf" {
            continue;
        }
        let (mut tfhd, _, flags) = Fields::full(need(traf, "traf", b"tfhd")?, "tfhd")?;
        if tfhd.u32()? != defaults.track {
            continue;
        }
        let base = if flags & 0x01 != 0 { tfhd.u64()? } else { start };
        if flags & 0x02 != 0 {
            tfhd.u32()?;
        }
        let duration = if flags & 0x08 != 0 { tfhd.u32()? } else { defaults.duration };
        let size = if flags & 0x10 != 0 { tfhd.u32()? } else { defaults.size };
        let sample_flags = if flags & 0x20 != 0 { tfhd.u32()? } else { defaults.flags };
        let mut time = match find(traf, "traf", b"tfdt")? {
            Some(tfdt) => {
                let (mut tfdt, version, _) = Fields::full(tfdt, "tfdt")?;
                let time = tfdt.wide(version)?;
                i64::try_from(time).map_err(|_| bad(format!("a fragment starts at {time} units")))?
            }
            None => clock.unwrap_or(0),
        };
        let mut at = base;
        for child in children(traf, "traf") {
            let (kind, trun) = child?;
            if kind == *b"trun" {
                let run = Run { base, len, max_frames, duration, size, flags: sample_flags };
                run.read(trun, &mut at, &mut time, samples)?;
            }
        }
        *clock = Some(time);
    }
    Ok(())
}

/// What a run of samples takes from its fragment.
struct Run {
    base: u64,
    len: u64,
    max_frames: u64,
    duration: u32,
    size: u32,
    flags: u32,
}

impl Run {
    fn read(&self, trun: &[u8], at: &mut u64, time: &mut i64, samples: &mut Vec<Sample>) -> Result<()> {
        let (mut trun, _, flags) = Fields::full(trun, "trun")?;
        let count = trun.u32()?;
        check_count((samples.len() as u64).saturating_add(u64::from(count)), self.len, self.max_frames)?;
        let count = usize::try_from(count).map_err(|_| bad("too many frames"))?;
        if flags & 0x01 != 0 {
            let offset = i64::from(trun.i32()?);
            *at = self.base.checked_add_signed(offset).ok_or_else(|| bad(format!("fragment data at {offset}")))?;
        }
        let first_flags = if flags & 0x04 != 0 { Some(trun.u32()?) } else { None };
        reserve(samples, count)?;
        for index in 0..count {
            let duration = if flags & 0x100 != 0 { trun.u32()? } else { self.duration };
            let size = if flags & 0x200 != 0 { trun.u32()? } else { self.size };
            let own = if flags & 0x400 != 0 { trun.u32()? } else { self.flags };
            let sample_flags = first_flags.filter(|_| index == 0).unwrap_or(own);
            let offset = if flags & 0x800 != 0 { trun.i32()? } else { 0 };
            *at = at.saturating_add(u64::from(size));
            let overflow = || bad("the frames' times overflow");
            let shown = time.checked_add(i64::from(offset)).ok_or_else(overflow)?;
            samples.push(Sample { time: shown, key: sample_flags & NOT_SYNC == 0, whole: *at <= self.len });
            *time = time.checked_add(i64::from(duration)).ok_or_else(overflow)?;
        }
        Ok(())
    }
}
