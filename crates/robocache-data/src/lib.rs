//! Readers, checks, cache and loader.
