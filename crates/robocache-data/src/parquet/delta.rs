//! The lengths that two encodings of byte arrays keep as packed deltas. They are summed before a
//! decoder sees them: prefixes can make gigabytes of a small page.

use super::levels::unpack;
use super::thrift::{Fault, Parsed};

fn varint(bytes: &mut &[u8]) -> Parsed<u64> {
    let mut value = 0u64;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Fault::End)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Fault::Bad("a number has more than 63 bits"))
}

fn zigzag(bytes: &mut &[u8]) -> Parsed<i64> {
    let value = varint(bytes)?;
    Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

/// Passes over a section of at most `most` lengths and returns their sum.
pub(super) fn sum_lengths(bytes: &mut &[u8], most: u64) -> Parsed<u64> {
    const NEGATIVE: Fault = Fault::Bad("the length of a value is negative or beyond 32 bits");
    let block = varint(bytes)?;
    let parts = varint(bytes)?;
    let mut left = varint(bytes)?;
    let mut last = zigzag(bytes)?;
    if left > most {
        return Err(Fault::Bad("it holds more values than its header says"));
    }
    let per_part = block.checked_div(parts).filter(|count| *count > 0 && count * parts == block && count % 32 == 0);
    let per_part =
        per_part.filter(|_| block % 128 == 0).ok_or(Fault::Bad("the blocks of its lengths make no sense"))?;
    let length = |value: i64| u32::try_from(value).ok().filter(|value| i32::try_from(*value).is_ok()).ok_or(NEGATIVE);
    if left == 0 {
        return Ok(0);
    }
    let mut sum = u64::from(length(last)?);
    left -= 1;
    while left > 0 {
        let least = zigzag(bytes)?;
        let count = usize::try_from(parts).map_err(|_| Fault::End)?;
        let (widths, rest) = bytes.split_at_checked(count).ok_or(Fault::End)?;
        *bytes = rest;
        for width in widths {
            if left == 0 {
                break;
            }
            if *width > 32 {
                return Err(Fault::Bad("a length has more than 32 bits"));
            }
            let width = u32::from(*width);
            let here = left.min(per_part);
            let needed = (here * u64::from(width)).div_ceil(8);
            let full = usize::try_from(per_part.saturating_mul(u64::from(width)) / 8).unwrap_or(usize::MAX);
            let (packed, rest) = bytes.split_at_checked(full.min(bytes.len())).ok_or(Fault::End)?;
            *bytes = rest;
            if usize::try_from(needed).is_ok_and(|needed| packed.len() < needed) {
                return Err(Fault::End);
            }
            unpack(packed, width, 0, usize::try_from(here).unwrap_or(0), |deltas| {
                for delta in deltas {
                    last = last.wrapping_add(least).wrapping_add(i64::from(*delta));
                    sum = sum.saturating_add(u64::from(length(last)?));
                }
                Ok::<_, Fault>(())
            })?;
            left -= here;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_summed_to_the_end_of_their_section() {
        // Blocks of 128 in 4 parts, 5 lengths: 3, then deltas of 1 (least 1, width 0).
        let bytes = [0x80, 0x01, 4, 5, 6, 2, 0, 0, 0, 0, 0xaa];
        let mut rest = bytes.as_slice();
        assert_eq!(sum_lengths(&mut rest, 5), Ok(3 + 4 + 5 + 6 + 7));
        assert_eq!(rest, [0xaa]);
        assert!(sum_lengths(&mut bytes.as_slice(), 4).is_err());
        assert_eq!(sum_lengths(&mut &bytes[..6], 5), Err(Fault::End));
        // A first length of -1.
        assert!(sum_lengths(&mut [0x80, 0x01, 4, 1, 1].as_slice(), 5).is_err());
    }
}
