//! The last few unpacked pages of a file: episodes are shorter than pages, and the next one
//! starts in the page where the last one ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use robocache::Result;

use super::budget::Budget;

/// Data pages that are kept of one leaf; each dictionary is kept beside them.
const PAGES_PER_LEAF: usize = 2;
/// Bytes that are kept of one file, which is also bounded by a share of `max_alloc`.
const MOST: u64 = 32 << 20;
const SHARE: u64 = 8;
/// The share of `max_alloc` that is kept of all files of a dataset.
const SHARE_OF_ALL: u64 = 2;

/// Which page: row group, leaf, and page or dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) group: usize,
    pub(super) leaf: usize,
    pub(super) page: Option<usize>,
}

/// The body of a page.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub(super) bytes: Bytes,
    /// The shape that its levels were found to be of.
    pub(super) shape: OnceLock<Box<[usize]>>,
}

impl Unpacked {
    fn new(body: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: Bytes::from(body), shape: OnceLock::new() })
    }
}

/// A page that is kept. Who wants it while it is being unpacked waits for this lock only.
type Slot = Arc<Mutex<Option<Arc<Unpacked>>>>;

#[derive(Debug)]
struct Entry {
    key: Key,
    bytes: u64,
    slot: Slot,
}

impl Entry {
    /// A reusable page buffer; allocating one costs more than a page.
    fn into_memory(self) -> Option<Vec<u8>> {
        let page = Arc::try_unwrap(self.slot).ok()?.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Arc::try_unwrap(page).ok()?.bytes.try_into_mut().ok().map(Vec::from)
    }
}

/// The pages, the last used at the end.
#[derive(Debug, Default)]
struct Kept {
    entries: Vec<Entry>,
    bytes: u64,
    /// What the others know of `bytes`.
    told: u64,
}

impl Kept {
    fn find(&mut self, key: Key) -> Option<Slot> {
        let place = self.entries.iter().rposition(|entry| entry.key == key)?;
        if place + 1 < self.entries.len() {
            let entry = self.entries.remove(place);
            self.entries.push(entry);
        }
        self.entries.last().map(|entry| Arc::clone(&entry.slot))
    }

    fn remove(&mut self, place: usize) -> Entry {
        let entry = self.entries.remove(place);
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        entry
    }

    /// A place for a page, and an entry that had to go for it.
    fn insert(&mut self, key: Key, bytes: u64, most: u64) -> (Slot, Option<Entry>) {
        let mut gone = None;
        let alike = |entry: &Entry| entry.key.leaf == key.leaf && entry.key.page.is_some() == key.page.is_some();
        let most_alike = if key.page.is_some() { PAGES_PER_LEAF } else { 1 };
        if self.entries.iter().filter(|entry| alike(entry)).count() >= most_alike
            && let Some(place) = self.entries.iter().position(alike)
        {
            gone = Some(self.remove(place));
        }
        while self.bytes.saturating_add(bytes) > most && !self.entries.is_empty() {
            gone = Some(self.remove(0));
        }
        let slot = Slot::default();
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries.push(Entry { key, bytes, slot: Arc::clone(&slot) });
        (slot, gone)
    }
}

/// What the files of a dataset keep together. Where it is too much, the file that was not read for
/// the longest time loses its pages, so that threads in different files do not disturb each other.
///
/// Every read looks at this and few change it: threads that did would wait for each other's caches.
#[derive(Debug)]
pub(crate) struct Shared {
    most: u64,
    /// The most that each file kept since it lost its pages, all together.
    bytes: AtomicU64,
    /// Goes on when a file keeps more than before.
    clock: AtomicU64,
    caches: Mutex<Vec<Weak<Cache>>>,
}

impl Shared {
    pub(crate) fn new(max_alloc: u64) -> Arc<Self> {
        let (bytes, clock) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { most: max_alloc / SHARE_OF_ALL, bytes, clock, caches: Mutex::default() })
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All caches that are still there.
    fn alive(&self) -> Vec<Arc<Cache>> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let alive: Vec<Arc<Cache>> = caches.iter().filter_map(Weak::upgrade).collect();
        caches.retain(|cache| cache.strong_count() > 0);
        alive
    }

    /// Makes room for so many bytes, but not at the cost of `own`.
    fn make_room(&self, bytes: u64, own: &Cache) {
        while self.bytes().saturating_add(bytes) > self.most {
            let others = self.alive().into_iter().filter(|cache| !std::ptr::eq(&**cache, own) && cache.bytes() > 0);
            match others.min_by_key(|cache| cache.used.load(Ordering::Relaxed)) {
                Some(oldest) => oldest.clear(),
                None => break,
            }
        }
    }
}

/// The pages that are kept of one file.
#[derive(Debug)]
pub(super) struct Cache {
    most: u64,
    shared: Arc<Shared>,
    /// When it was used last, by the clock of all.
    used: AtomicU64,
    kept: Mutex<Kept>,
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Cache {
    pub(super) fn new(max_alloc: u64, shared: &Arc<Shared>) -> Arc<Self> {
        let cache = Arc::new(Self {
            most: MOST.min(max_alloc / SHARE),
            shared: Arc::clone(shared),
            used: AtomicU64::new(0),
            kept: Mutex::default(),
        });
        shared.caches.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&cache));
        cache
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept, and tells the others where it is more than ever.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let mut kept = self.lock();
        let result = change(&mut kept);
        if let Some(more @ 1..) = kept.bytes.checked_sub(kept.told) {
            kept.told = kept.bytes;
            self.shared.bytes.fetch_add(more, Ordering::Relaxed);
            self.used.store(self.shared.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        result
    }

    /// How many bytes are kept of this file.
    fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// How many bytes are kept of all files of the dataset.
    pub(super) fn bytes_of_all(&self) -> u64 {
        self.shared.bytes()
    }

    fn clear(&self) {
        let kept = std::mem::take(&mut *self.lock());
        self.shared.bytes.fetch_sub(kept.told, Ordering::Relaxed);
        drop(kept);
    }

    /// Forgets everything, of all files of the dataset.
    pub(super) fn clear_all(&self) {
        self.clear();
        self.shared.alive().iter().for_each(|cache| cache.clear());
    }

    /// A page of so many bytes: the one that is kept, else what `unpack` makes, which is then kept
    /// if there is room for it. Threads that want the same page unpack it once. `unpack` is given
    /// memory to use.
    pub(super) fn get(
        &self,
        key: Key,
        bytes: u64,
        budget: &Budget,
        unpack: impl FnOnce(Vec<u8>) -> Result<Vec<u8>>,
    ) -> Result<Arc<Unpacked>> {
        let now = self.shared.clock.load(Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) < now {
            self.used.store(now, Ordering::Relaxed);
        }
        let found = self.lock().find(key);
        let (slot, gone) = match found {
            Some(slot) => (slot, None),
            None if bytes <= self.most && budget.keep(bytes) => {
                self.shared.make_room(bytes, self);
                // Another thread may have been first.
                self.change(|kept| match kept.find(key) {
                    Some(slot) => (slot, None),
                    None => kept.insert(key, bytes, self.most),
                })
            }
            None => return unpack(Vec::new()).map(Unpacked::new),
        };
        let mut page = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = &*page {
            return Ok(Arc::clone(page));
        }
        // Memory that is much too large would not be counted.
        let fits = |memory: &Vec<u8>| u64::try_from(memory.capacity()).is_ok_and(|size| size / 2 <= bytes);
        let memory = gone.and_then(Entry::into_memory).filter(fits).unwrap_or_default();
        let unpacked = unpack(memory).map(Unpacked::new).inspect_err(|_| {
            self.change(|kept| {
                if let Some(place) = kept.entries.iter().position(|entry| entry.key == key) {
                    kept.remove(place);
                }
            });
        })?;
        *page = Some(Arc::clone(&unpacked));
        Ok(unpacked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn key(group: usize, leaf: usize, page: Option<usize>) -> Key {
        Key { group, leaf, page }
    }

    #[test]
    fn the_last_two_pages_and_the_dictionary_of_a_leaf_stay() {
        let cache = Cache::new(1 << 20, &Shared::new(1 << 20));
        let budget = Budget::new(&Limits { max_alloc: 1 << 20, ..Limits::default() }, 0, &cache);
        let unpacks = |key: Key| {
            let mut count = 0;
            let page = cache.get(key, 100, &budget, |_| {
                count += 1;
                Ok(vec![7; 100])
            });
            assert_eq!(page.unwrap().bytes.len(), 100);
            count
        };
        let pages = [key(0, 3, None), key(0, 3, Some(0)), key(0, 3, Some(1)), key(0, 4, Some(0))];
        assert_eq!(pages.map(unpacks), [1; 4]);
        assert_eq!(pages.map(unpacks), [0; 4]);
        assert_eq!(cache.bytes(), 400);
        assert_eq!([0, 2, 0, 1].map(|page| unpacks(key(0, 3, Some(page)))), [0, 1, 0, 1]);
        assert_eq!([unpacks(pages[0]), unpacks(pages[3]), unpacks(key(1, 3, None)), unpacks(pages[0])], [0, 0, 1, 1]);
        assert_eq!(cache.bytes(), 400);
    }

    #[test]
    fn what_is_kept_is_bounded_and_counts() {
        let limits = Limits { max_alloc: 1 << 20, ..Limits::default() };
        let cache = Cache::new(limits.max_alloc, &Shared::new(limits.max_alloc));
        let budget = Budget::new(&limits, 0, &cache);
        let path = std::path::Path::new("x");
        let put = |leaf: usize, bytes: usize| {
            cache.get(key(0, leaf, Some(0)), bytes as u64, &budget, |_| Ok(vec![0; bytes])).map(drop)
        };
        (0..10).for_each(|leaf| put(leaf, 50_000).unwrap());
        assert_eq!(cache.bytes(), 100_000);
        put(11, 1 << 18).unwrap();
        assert_eq!(cache.bytes(), 100_000, "a page that is too large is not kept");
        // A read that needs all there is gets it.
        let next = Budget::new(&limits, 0, &cache);
        next.take((1 << 20) - 100_000, "x", path).unwrap();
        assert_eq!(cache.bytes(), 100_000);
        next.take(100_000, "x", path).unwrap();
        assert_eq!(cache.bytes(), 0);
        assert!(next.take(1, "x", path).is_err() && !next.keep(1));
        // What fails is not kept.
        let failed = cache.get(key(0, 0, None), 10, &budget, |_| Err(robocache::Error::invalid("x", "y")));
        assert!(failed.is_err() && cache.bytes() == 0);
    }

    #[test]
    fn files_share_what_is_kept_and_the_last_used_keep_theirs() {
        let limits = Limits { max_alloc: 1 << 20, ..Limits::default() };
        let shared = Shared::new(limits.max_alloc);
        let mut files: Vec<Arc<Cache>> = (0..24).map(|_| Cache::new(limits.max_alloc, &shared)).collect();
        let put = |file: &Arc<Cache>, page: usize| {
            let mut unpacked = false;
            let budget = Budget::new(&limits, 0, file);
            file.get(key(0, 0, Some(page)), 60_000, &budget, |_| {
                unpacked = true;
                Ok(vec![0; 60_000])
            })
            .unwrap();
            unpacked
        };
        for busy in &files[..2] {
            assert_eq!([put(busy, 0), put(busy, 1)], [true, true]);
        }
        for file in &files[2..] {
            // Two files that are read all the while, as two threads do, keep their pages.
            for busy in &files[..2] {
                assert_eq!([put(busy, 0), put(busy, 1)], [false, false]);
            }
            put(file, 0);
            put(file, 1);
            assert!(shared.bytes() <= shared.most, "{}", shared.bytes());
        }
        assert_eq!(shared.bytes(), files.iter().map(|file| file.bytes()).sum::<u64>());
        assert_eq!((files[0].bytes(), files[1].bytes(), files[5].bytes()), (120_000, 120_000, 0));
        files.pop();
        assert_eq!(shared.bytes(), files.iter().map(|file| file.bytes()).sum::<u64>());
        files[0].clear_all();
        assert_eq!((shared.bytes(), shared.alive().len()), (0, 23));
    }
}
