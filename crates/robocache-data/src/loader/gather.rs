//! One step of a window: where a target lies among the samples, and which of them it is.

use robocache::DType;
use robocache::ops::resample::Method;
use robocache::tensor::{F8E4M3, F8E5M2};

use super::spec::Key;

/// Where a target lies among stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a stamp, or so near that it counts as such.
    At(usize),
    /// After this sample and before the next.
    After(usize),
    /// Before the first or after the last: the nearest of them.
    Outside(usize),
}

/// Finds a target, starting at a guess: on a regular clock the guess is right.
pub(crate) fn find(times: &[i64], target: i64, tolerance: u64, guess: usize) -> Option<Place> {
    let distance = |at: usize| times.get(at).map_or(u64::MAX, |&time| time.abs_diff(target));
    let near = |at: usize| at < times.len() && distance(at) <= tolerance;
    // Where no neighbour is near too, which the search below decides.
    let alone = |at: usize| !near(at + 1) && at.checked_sub(1).is_none_or(|before| !near(before));
    if near(guess) && alone(guess) {
        return Some(Place::At(guess));
    }
    let last = times.len().checked_sub(1)?;
    let after = times.partition_point(|&time| time <= target);
    let before = after.checked_sub(1);
    let nearest = match before {
        Some(before) if distance(before) <= distance(after.min(last)) => before,
        _ => after.min(last),
    };
    if distance(nearest) <= tolerance {
        // Duplicates of the stamp that come earlier count as absent.
        let stamp = times.get(nearest).copied()?;
        return Some(Place::At(times.partition_point(|&time| time <= stamp) - 1));
    }
    Some(match before {
        None => Place::Outside(after_equals(times, 0) - 1),
        Some(before) if before == last => Place::Outside(last),
        Some(before) => Place::After(before),
    })
}

/// The sample that a method without blending takes between two.
pub(crate) fn pick(times: &[i64], target: i64, before: usize, method: Method) -> usize {
    // Duplicates of the stamp that come earlier count as absent.
    let after = || after_equals(times, before + 1) - 1;
    match method {
        Method::Nearest => {
            let distance = |at: usize| times.get(at).map_or(u64::MAX, |&time| time.abs_diff(target));
            if distance(before + 1) < distance(before) { after() } else { before }
        }
        Method::Next => after(),
        _ => before,
    }
}

/// The samples, from and to, that targets need which lie between sample `first` and the one after `last`. Of equal stamps
/// the last one counts; curves need another stamp on either side.
pub(crate) fn needed(times: &[i64], first: usize, last: usize, curved: bool) -> (usize, usize) {
    let end = after_equals(times, last + 1);
    if !curved {
        return (first, end);
    }
    let stamp = times.get(first).copied().unwrap_or(i64::MIN);
    (times.partition_point(|&time| time < stamp).saturating_sub(1), after_equals(times, end))
}

/// The place after a sample and all later ones of the same stamp.
fn after_equals(times: &[i64], at: usize) -> usize {
    let rest = times.get(at..).unwrap_or_default();
    times.len() - rest.len() + rest.iter().take_while(|&time| Some(time) == rest.first()).count()
}

/// Numbers as the batch wants them: scaled, in its type.
pub(crate) fn write_numbers(key: &Key, row: &[u8], out: &mut [u8]) {
    let Some(scale) = &key.scale else {
        out.copy_from_slice(row);
        return;
    };
    let (Some(from), Some(to)) = (key.meta.number_type(), key.dtype) else {
        return;
    };
    let ends = scale.shift.iter().zip(&scale.factor);
    for ((from_bytes, to_bytes), (shift, factor)) in
        row.chunks_exact(from.size()).zip(out.chunks_exact_mut(to.size())).zip(ends)
    {
        let number = (read(from, from_bytes) - shift) * factor;
        match to {
            DType::F64 => to_bytes.copy_from_slice(&number.to_le_bytes()),
            _ => to_bytes.copy_from_slice(&(number as f32).to_le_bytes()),
        }
    }
}

fn read(dtype: DType, bytes: &[u8]) -> f64 {
    macro_rules! number {
        ($type:ty) => {
            bytes.try_into().map_or(f64::NAN, |bytes| <$type>::from_le_bytes(bytes) as f64)
        };
    }
    match dtype {
        DType::F64 => number!(f64),
        DType::F32 => number!(f32),
        DType::F16 => bytes.try_into().map_or(f64::NAN, |bytes| half::f16::from_le_bytes(bytes).to_f64()),
        DType::BF16 => bytes.try_into().map_or(f64::NAN, |bytes| half::bf16::from_le_bytes(bytes).to_f64()),
        DType::I64 => number!(i64),
        DType::I32 => number!(i32),
        DType::I16 => number!(i16),
        DType::I8 => number!(i8),
        DType::U64 => number!(u64),
        DType::U32 => number!(u32),
        DType::U16 => number!(u16),
        DType::U8 | DType::Bool => number!(u8),
        DType::F8E4M3 => bytes.first().map_or(f64::NAN, |&bits| F8E4M3(bits).into()),
        DType::F8E5M2 => bytes.first().map_or(f64::NAN, |&bits| F8E5M2(bits).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_from_any_guess() {
        let times = [0, 10, 20, 20, 30];
        for guess in [0, 1, 2, 3, 4, 99] {
            let find = |target| find(&times, target, 1, guess).unwrap();
            assert_eq!(find(0), Place::At(0));
            assert_eq!(find(11), Place::At(1));
            assert_eq!(find(20), Place::At(3), "the last of equal stamps, guess {guess}");
            assert_eq!(find(19), Place::At(3));
            assert_eq!(find(15), Place::After(1));
            assert_eq!(find(25), Place::After(3));
            assert_eq!(find(-1), Place::At(0));
            assert_eq!(find(-2), Place::Outside(0));
            assert_eq!(find(32), Place::Outside(4));
        }
        assert_eq!(find(&[], 0, 1, 0), None);
        // Also of those at either end.
        for guess in [0, 3, 99] {
            assert_eq!(find(&[10, 10, 10, 20, 20], 5, 1, guess), Some(Place::Outside(2)));
            assert_eq!(find(&[10, 10, 10, 20, 20], 25, 1, guess), Some(Place::Outside(4)));
        }
    }

    #[test]
    fn the_ends_of_time_are_no_trouble() {
        let times = [i64::MIN, 0, i64::MAX];
        for target in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            for tolerance in [0, 1, u64::MAX] {
                assert!(find(&times, target, tolerance, 1).is_some());
            }
        }
        assert_eq!(find(&times, i64::MAX - 2, 1, 0), Some(Place::After(1)));
    }

    #[test]
    fn the_nearer_sample_and_the_earlier_of_two() {
        let times = [0, 10];
        assert_eq!(pick(&times, 5, 0, Method::Nearest), 0);
        assert_eq!(pick(&times, 6, 0, Method::Nearest), 1);
        assert_eq!(pick(&times, 9, 0, Method::Previous), 0);
    }

    #[test]
    fn of_equal_stamps_the_last_counts() {
        let times = [0, 0, 10, 10, 10, 20, 20, 30];
        assert_eq!(pick(&times, 6, 1, Method::Nearest), 4);
        assert_eq!(pick(&times, 5, 1, Method::Nearest), 1);
        assert_eq!(pick(&times, 5, 1, Method::Next), 4);
        // Between 0 and 10, between 10 and 20, between 0 and 30.
        assert_eq!(needed(&times, 1, 1, false), (1, 5));
        assert_eq!(needed(&times, 4, 4, false), (4, 7));
        assert_eq!(needed(&times, 1, 6, false), (1, 8));
        // The curve between 10 and 20 bends by 0 and 30, that between 0 and 10 by 20.
        assert_eq!(needed(&times, 4, 4, true), (1, 8));
        assert_eq!(needed(&times, 1, 1, true), (0, 7));
        assert_eq!(needed(&times, 6, 6, true), (4, 8));
    }
}
