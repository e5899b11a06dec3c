//! What one read may still reserve.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robocache::Result;

use super::cache::Cache;
use crate::Limits;
use crate::limits::exceeds;

/// Memory that one read may still reserve: `max_alloc` beyond what the file really holds. Pages
/// that are kept for later reads of the dataset count, and go before a read is refused because of
/// them.
pub(super) struct Budget {
    left: Mutex<Left>,
    allowed: u64,
    cache: Arc<Cache>,
}

struct Left {
    bytes: u64,
    /// Of what is gone, what the caches have.
    kept: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits, file_bytes: u64, cache: &Arc<Cache>) -> Self {
        let allowed = limits.max_alloc.saturating_add(file_bytes);
        let kept = cache.bytes_of_all().min(allowed);
        Self { left: Mutex::new(Left { bytes: allowed - kept, kept }), allowed, cache: Arc::clone(cache) }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes that the read cannot do without.
    pub(super) fn take(&self, bytes: u64, column: &str, path: &Path) -> Result<()> {
        let mut left = self.left();
        if bytes > left.bytes && left.kept > 0 {
            self.cache.clear_all();
            left.bytes = left.bytes.saturating_add(std::mem::take(&mut left.kept));
        }
        left.bytes = left.bytes.checked_sub(bytes).ok_or_else(|| {
            let text = format!(
                "reading column {column:?} needs {bytes} bytes more than the {} that a file of this size may use (max_alloc)",
                self.allowed
            );
            exceeds(path, text)
        })?;
        Ok(())
    }

    /// Takes bytes for the cache, if there are so many.
    pub(super) fn keep(&self, bytes: u64) -> bool {
        let mut left = self.left();
        let rest = left.bytes.checked_sub(bytes);
        if let Some(rest) = rest {
            *left = Left { bytes: rest, kept: left.kept.saturating_add(bytes) };
        }
        rest.is_some()
    }
}
