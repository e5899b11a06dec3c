//! The last few of many opened things.

use std::sync::{Arc, Mutex, PoisonError};

use robocache::Result;

/// Keeps what was opened last, up to a number.
#[derive(Debug)]
pub(super) struct Recent<K, T> {
    most: usize,
    /// The last used at the end.
    kept: Mutex<Vec<(K, Arc<T>)>>,
}

impl<K: PartialEq + Clone, T> Recent<K, T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// What is kept for `key`, else what `open` gives. Threads that want the same at once may open
    /// it twice, which is cheaper than to wait.
    pub(super) fn get_or_open(&self, key: &K, open: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = lock();
            if let Some(place) = kept.iter().position(|(known, _)| known == key) {
                let entry = kept.remove(place);
                let found = Arc::clone(&entry.1);
                kept.push(entry);
                return Ok(found);
            }
        }
        let opened = Arc::new(open()?);
        let mut kept = lock();
        if kept.len() >= self.most {
            kept.remove(0);
        }
        kept.push((key.clone(), Arc::clone(&opened)));
        Ok(opened)
    }
}
