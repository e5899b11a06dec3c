//! Stamps of streams that do not lie together in the map, copied when asked for.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use robocache::Result;

/// Stamps, wherever they are.
#[derive(Debug, Clone)]
pub(crate) enum Times<'a> {
    Map(&'a [i64]),
    Held(Arc<[i64]>),
}

impl Deref for Times<'_> {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        match self {
            Self::Map(times) => times,
            Self::Held(times) => times,
        }
    }
}

/// Copies that are kept for a while, in a bounded number of bytes.
#[derive(Debug)]
pub(crate) struct Stamps {
    parts: Vec<Mutex<Part>>,
    /// Bytes of each part.
    most: usize,
}

#[derive(Debug, Default)]
struct Part {
    /// By episode and stream.
    held: HashMap<(usize, usize), Arc<[i64]>>,
    bytes: usize,
}

impl Stamps {
    /// Parts, so that threads seldom meet.
    const PARTS: usize = 16;

    /// Keeps at most this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { parts: (0..Self::PARTS).map(|_| Mutex::default()).collect(), most: bytes / Self::PARTS }
    }

    /// The stamps of a stream in an episode.
    ///
    /// Nobody waits here: a process may have forked while another thread held the lock, and then
    /// it is never released in the child.
    pub(crate) fn get(
        &self,
        episode: usize,
        stream: usize,
        read: impl FnOnce() -> Result<Vec<i64>>,
    ) -> Result<Arc<[i64]>> {
        let part = self.parts.get(episode % Self::PARTS);
        let lock = || part.and_then(|part| part.try_lock().ok());
        if let Some(known) = lock().and_then(|part| part.held.get(&(episode, stream)).cloned()) {
            return Ok(known);
        }
        let times: Arc<[i64]> = read()?.into();
        let bytes = std::mem::size_of_val(&*times);
        if let Some(mut part) = lock().filter(|_| bytes <= self.most) {
            if part.bytes + bytes > self.most {
                *part = Part::default();
            }
            if part.held.insert((episode, stream), Arc::clone(&times)).is_none() {
                part.bytes += bytes;
            }
        }
        Ok(times)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap().bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_right() {
        let stamps = Stamps::new(16 * 1000);
        let mut reads = 0;
        for round in 0..3 {
            for episode in 0..500 {
                let times = stamps.get(episode, 1, || {
                    reads += 1;
                    Ok(vec![episode as i64; 10])
                });
                assert_eq!(*times.unwrap(), [episode as i64; 10], "round {round}");
                assert!(stamps.bytes() <= 16 * 1000);
            }
        }
        assert!(reads > 500);
        let again = stamps.get(499, 1, || panic!("it was read a moment ago"));
        assert_eq!(again.unwrap().len(), 10);
        // Too large to be kept.
        stamps.get(0, 2, || Ok(vec![0; 1000])).unwrap();
        assert!(stamps.bytes() <= 16 * 1000);
    }

    #[test]
    fn a_lock_that_is_never_released_does_no_harm_100() {
        let stamps = Stamps::new(1 << 20);
        let _held = stamps.parts[3].lock().unwrap();
        assert_eq!(stamps.get(3, 0, || Ok(vec![1, 2])).unwrap().len(), 2);
    }
}
