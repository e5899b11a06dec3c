//! What one read may still reserve.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use robocache::Result;

use super::source::Reads;
use crate::Limits;
use crate::limits::exceeds;

/// Memory that one read may still reserve: `max_alloc` beyond what the file really holds.
pub(super) struct Budget {
    left: Mutex<u64>,
    allowed: u64,
}

impl Budget {
    pub(super) fn new(limits: &Limits, reads: &Reads) -> Self {
        let allowed = limits.max_alloc.saturating_add(reads.bytes());
        Self { left: Mutex::new(allowed), allowed }
    }

    pub(super) fn take(&self, bytes: u64, column: &str, path: &Path) -> Result<()> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.checked_sub(bytes).ok_or_else(|| {
            let text = format!(
                "reading column {column:?} needs {bytes} bytes more than the {} that a file of this size may use (max_alloc)",
                self.allowed
            );
            exceeds(path, text)
        })?;
        Ok(())
    }
}
