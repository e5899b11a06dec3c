//! The numbers of blocks as bits.

use super::tables::{CHROMA_FIRST, CHROMA_REST, LUMA_FIRST, LUMA_REST, Words, ZIGZAG};
use super::transform::Block;

/// Where the numbers of a [`Block`], which lie column by column, come in the order of writing.
const ORDER: [u8; 64] = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < 64 {
        let place = ZIGZAG[at];
        order[(place % 8 * 8 + place / 8) as usize] = at as u8;
        at += 1;
    }
    order
};

/// And back.
const PLACES: [u8; 64] = {
    let mut places = [0; 64];
    let mut at = 0;
    while at < 64 {
        places[ORDER[at] as usize] = at as u8;
        at += 1;
    }
    places
};

/// For each column of a block and each set of numbers in it: their bits in the order of writing.
static SPREAD: [[u64; 256]; 8] = {
    let mut spread = [[0; 256]; 8];
    let mut place = 0;
    while place < 64 {
        let mut set = 0;
        while set < 256 {
            if set >> (place % 8) & 1 == 1 {
                spread[place / 8][set] |= 1 << ORDER[place];
            }
            set += 1;
        }
        place += 1;
    }
    spread
};

/// A word of a code, and its length in bits.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    bits: u32,
    length: u32,
}

/// The words for the blocks of a component.
#[derive(Debug)]
pub(super) struct Coder {
    /// For the first number of a block, by its length in bits.
    first: [Word; 16],
    /// For the others: zeros before it (4 bits) and its length in bits.
    rest: [Word; 256],
    /// The same with the number's own bits, for most of them: zeros before it, and the number plus 16.
    small: [[Word; 32]; 16],
}

impl Coder {
    pub(super) fn luma() -> Self {
        Self::new(&LUMA_FIRST, &LUMA_REST)
    }

    pub(super) fn chroma() -> Self {
        Self::new(&CHROMA_FIRST, &CHROMA_REST)
    }

    fn new(first: &Words, rest: &Words) -> Self {
        let rest: [Word; 256] = words(rest);
        let small = |zeros: usize, place: usize| {
            let (size, tail) = bits_of(i32::try_from(place).unwrap_or(0) - 16);
            let word = rest[(zeros * 16 + size as usize) % 256];
            Word { bits: word.bits << size | tail, length: word.length + size }
        };
        let small = std::array::from_fn(|zeros| std::array::from_fn(|place| small(zeros, place)));
        Self { first: words(first), rest, small }
    }

    /// Writes a block; the first number as its distance from that of the block before.
    #[inline(always)]
    pub(super) fn put(&self, block: &Block, before: &mut i32, bits: &mut Bits) {
        let first = i32::from(block[0]);
        let (size, tail) = bits_of(first - std::mem::replace(before, first));
        bits.put(self.first[size as usize % 16], size, tail);
        let columns = (present(block) & !1).to_le_bytes();
        let mut left =
            columns.iter().zip(&SPREAD).fold(0, |left, (&column, spread)| left | spread[usize::from(column)]);
        let mut last = 0;
        while left != 0 {
            let at = left.trailing_zeros();
            left &= left - 1;
            let mut zeros = at - last - 1;
            last = at;
            while zeros > 15 {
                bits.put(self.rest[0xf0], 0, 0);
                zeros -= 16;
            }
            let number = i32::from(block[usize::from(PLACES[at as usize % 64] % 64)]);
            if let Some(&word) = self.small[zeros as usize % 16].get((number + 16) as usize) {
                bits.put(word, 0, 0);
                continue;
            }
            let (size, tail) = bits_of(number);
            bits.put(self.rest[(zeros * 16 + size) as usize % 256], size, tail);
        }
        if last < 63 {
            bits.put(self.rest[0], 0, 0);
        }
    }
}

/// How many bits a number has, and those bits: of a negative one, those of the number below it.
#[inline(always)]
fn bits_of(number: i32) -> (u32, u32) {
    let size = 32 - number.unsigned_abs().leading_zeros();
    let bits = number.wrapping_add(number >> 31) as u32;
    (size, bits & ((1 << size) - 1))
}

fn words<const N: usize>(words: &Words) -> [Word; N] {
    let mut out = [Word::default(); N];
    let mut bits = 0;
    let mut symbols = words.symbols.iter();
    for (length, &count) in (1..).zip(&words.lengths) {
        for symbol in symbols.by_ref().take(usize::from(count)) {
            if let Some(word) = out.get_mut(usize::from(*symbol)) {
                *word = Word { bits, length };
            }
            bits += 1;
        }
        bits <<= 1;
    }
    out
}

/// A bit for every number that is not 0.
#[inline(always)]
fn present(block: &Block) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the architecture.
    unsafe {
        present_sse2(block)
    }
    #[cfg(not(target_arch = "x86_64"))]
    block.iter().rev().fold(0, |mask, &number| mask << 1 | u64::from(number != 0))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn present_sse2(block: &Block) -> u64 {
    use std::arch::x86_64::*;
    // SAFETY: eight vectors of eight numbers each, the same bytes.
    let rows: [__m128i; 8] = unsafe { std::mem::transmute(*block) };
    let mut mask = 0;
    for (place, pair) in rows.as_chunks::<2>().0.iter().enumerate() {
        // Numbers that are not 0 stay so, since packing saturates.
        let bytes = _mm_packs_epi16(pair[0], pair[1]);
        let zeros = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        mask |= u64::from(!zeros as u16) << (16 * place);
    }
    mask
}

/// Bits on their way into bytes.
pub(super) struct Bits {
    out: Vec<u8>,
    /// Bytes of `out` that are written.
    written: usize,
    /// Bits of the next byte, from the top.
    waiting: u64,
    /// Less than 8 of them.
    count: u32,
}

impl Bits {
    /// With room for about so many bytes.
    pub(super) fn new(room: usize) -> Self {
        Self { out: vec![0; room], written: 0, waiting: 0, count: 0 }
    }

    /// Makes sure that so many bytes can be written.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.out.len() - self.written < bytes {
            self.out.resize(self.out.len() * 3 / 2 + bytes, 0);
        }
    }

    /// A word, and `size` bits after it: 27 bits at most. Without a branch: whether a byte is full cannot
    /// be foreseen.
    #[inline(always)]
    fn put(&mut self, word: Word, size: u32, tail: u32) {
        let count = self.count + word.length + size;
        let waiting = self.waiting | (u64::from(word.bits << size | tail) << (63 - count) << 1);
        if let Some(place) = self.out.get_mut(self.written..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *place = waiting.to_be_bytes();
        }
        self.written += count as usize / 8;
        self.waiting = waiting << (count & !7);
        self.count = count & 7;
    }

    /// Fills the last byte with ones and appends all to `head`; a byte of ones is followed by one of zeros.
    pub(super) fn finish(mut self, mut head: Vec<u8>) -> Vec<u8> {
        if self.count > 0 {
            let open = 8 - self.count;
            self.reserve(8);
            self.put(Word { bits: (1 << open) - 1, length: open }, 0, 0);
        }
        let bytes = self.out.get(..self.written).unwrap_or_default();
        head.reserve(bytes.len() + bytes.len() / 64 + 2);
        for piece in bytes.split_inclusive(|&byte| byte == 0xff) {
            head.extend_from_slice(piece);
            if piece.ends_with(&[0xff]) {
                head.push(0);
            }
        }
        head.extend([0xff, 0xd9]);
        head
    }
}
