//! Checksums of a file's blocks: made while it is written, verified when a block is first touched.

use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a block; the last one of a file may be shorter.
pub(crate) const BLOCK: usize = 4 << 20;

/// Passes bytes on and sums them up, block by block (CRC-32C).
pub(crate) struct Summed<W> {
    inner: W,
    sums: Vec<u32>,
    current: u32,
    filled: usize,
}

impl<W: Write> Summed<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, sums: Vec::new(), current: 0, filled: 0 }
    }

    /// The writer, the number of bytes and the sums.
    pub(crate) fn finish(mut self) -> (W, u64, Vec<u32>) {
        let bytes = (self.sums.len() * BLOCK + self.filled) as u64;
        if self.filled > 0 {
            self.sums.push(self.current);
        }
        (self.inner, bytes, self.sums)
    }

    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.current = crc32c::crc32c_append(self.current, now);
            self.filled += now.len();
            if self.filled == BLOCK {
                self.sums.push(self.current);
                (self.current, self.filled) = (0, 0);
            }
            bytes = later;
        }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.add(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// What is known of the blocks of a mapped file.
#[derive(Debug)]
pub(crate) struct Verified {
    sums: Vec<u32>,
    states: Vec<AtomicU8>,
}

const UNKNOWN: u8 = 0;
const GOOD: u8 = 1;
const BAD: u8 = 2;

impl Verified {
    pub(crate) fn new(sums: Vec<u32>) -> Self {
        let states = sums.iter().map(|_| AtomicU8::new(UNKNOWN)).collect();
        Self { sums, states }
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    /// Makes sure of the blocks that hold these bytes of `file`; else the number of a bad one.
    pub(crate) fn ensure(&self, file: &[u8], start: usize, end: usize) -> Result<(), usize> {
        let last = end.saturating_sub(1).max(start) / BLOCK;
        for block in start / BLOCK..=last {
            match self.states.get(block).map(|state| state.load(Ordering::Acquire)) {
                Some(GOOD) => {}
                Some(UNKNOWN) => self.verify(file, block)?,
                _ => return Err(block),
            }
        }
        Ok(())
    }

    /// Looks at a block's bytes, whatever is known of it.
    pub(crate) fn verify(&self, file: &[u8], block: usize) -> Result<(), usize> {
        let start = block.saturating_mul(BLOCK);
        let bytes = file.get(start..file.len().min(start.saturating_add(BLOCK))).filter(|bytes| !bytes.is_empty());
        let good = bytes.is_some_and(|bytes| Some(&crc32c::crc32c(bytes)) == self.sums.get(block));
        if let Some(state) = self.states.get(block) {
            state.store(if good { GOOD } else { BAD }, Ordering::Release);
        }
        if good { Ok(()) } else { Err(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_caught_76() {
        let bytes: Vec<u8> = (0..4096u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut writer = Summed::new(Vec::new());
        writer.write_all(&bytes).unwrap();
        let (written, length, sums) = writer.finish();
        assert_eq!((written, length, sums.len()), (bytes.clone(), 4096, 1));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Verified::new(sums.clone()).ensure(&flipped, 5, 6), Err(0), "bit {bit}");
        }
        assert_eq!(Verified::new(sums).ensure(&bytes, 0, 4096), Ok(()));
    }

    #[test]
    fn blocks_are_verified_when_touched_and_once() {
        let mut bytes = vec![7u8; BLOCK + 100];
        let mut writer = Summed::new(Vec::new());
        // In odd pieces, so that one crosses the edge.
        bytes.chunks(1_000_003).for_each(|piece| writer.write_all(piece).unwrap());
        let (_, length, sums) = writer.finish();
        assert_eq!((length as usize, sums.len()), (bytes.len(), 2));
        bytes[BLOCK + 50] = 0;
        let verified = Verified::new(sums);
        assert_eq!(verified.ensure(&bytes, 0, BLOCK), Ok(()));
        assert_eq!(verified.ensure(&bytes, BLOCK - 1, BLOCK + 1), Err(1));
        bytes[BLOCK + 50] = 7;
        assert_eq!(verified.ensure(&bytes, BLOCK, BLOCK + 1), Err(1), "a bad block stays bad");
        bytes[3] = 0;
        assert_eq!(verified.ensure(&bytes, 0, 10), Ok(()), "what was verified is not read again");
    }
}
