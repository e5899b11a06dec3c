//! Environment variables that change what RoboCache does.

use serde::Serialize;

const PREFIX: &str = "ROBOCACHE_";
const THREADS: &str = "ROBOCACHE_NUM_THREADS";
const KEEP_BYTES: &str = "ROBOCACHE_KEEP_BYTES";
/// What the engine looks at, in the order of how often people set it.
const KNOWN: [&str; 7] = [
    THREADS,
    KEEP_BYTES,
    "ROBOCACHE_BLOCKING",
    "ROBOCACHE_FFMPEG",
    "ROBOCACHE_CUBIN_DIR",
    "ROBOCACHE_NVRTC",
    "ROBOCACHE_LIBCUDA",
];

#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    /// As set; absent when not set.
    pub(super) value: Option<String>,
    /// What is wrong with it.
    pub(super) note: Option<&'static str>,
}

/// The known settings, then others that look as if they were meant as one.
pub(super) fn all() -> Vec<Setting> {
    let mut settings = KNOWN.map(|name| Setting { name: name.to_owned(), value: None, note: None }).to_vec();
    let mut others = Vec::new();
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
        if let Some(known) = settings.iter_mut().find(|setting| setting.name == name) {
            known.note = match name.as_str() {
                THREADS => bad_threads(&value),
                KEEP_BYTES => bad_bytes(&value),
                _ => None,
            };
            known.value = Some(value);
        } else if name.starts_with(PREFIX) {
            others.push(Setting { name, value: Some(value), note: Some("no setting of the engine") });
        }
    }
    others.sort_by(|a, b| a.name.cmp(&b.name));
    settings.extend(others);
    settings
}

/// The engine takes positive numbers and ignores the rest.
fn bad_threads(value: &str) -> Option<&'static str> {
    let good = value.trim().parse::<usize>().is_ok_and(|threads| threads > 0);
    (!good).then_some("ignored: not a positive number")
}

/// The engine takes numbers and ignores the rest.
fn bad_bytes(value: &str) -> Option<&'static str> {
    let good = value.trim().parse::<usize>().is_ok();
    (!good).then_some("ignored: not a number of bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_by_numbers_of_bytes() {
        assert_eq!(["0", " 1000000000 "].map(bad_bytes), [None; 2]);
        assert!(["", "-1", "1 GiB", "1e9"].iter().all(|value| bad_bytes(value).is_some()));
    }

    #[test]
    fn only_positive_numbers_of_threads_count() {
        assert_eq!([" 4 ", "1"].map(bad_threads), [None; 2]);
        assert!(["", "0", "-1", "four", "1.5"].iter().all(|value| bad_threads(value).is_some()));
    }
}
