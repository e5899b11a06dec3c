//! The variables that steer the fakes.

use std::str::FromStr;

/// A variable that is set and not empty.
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn number<T: FromStr>(name: &str, default: T) -> T {
    text(name).and_then(|value| value.trim().parse().ok()).unwrap_or(default)
}

/// The part for `device` of a list; the last part counts for the devices after it.
pub(crate) fn of_device(name: &str, device: usize) -> Option<String> {
    let list = text(name)?;
    let parts: Vec<_> = list.split(',').collect();
    parts.get(device).or(parts.last()).map(|part| part.trim().to_owned())
}

/// `major.minor`.
pub(crate) fn pair(text: &str) -> Option<(i32, i32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(crate) fn numbers<T: FromStr>(text: &str, separator: char) -> Vec<T> {
    text.split(separator).filter_map(|part| part.trim().parse().ok()).collect()
}

/// How many devices there are, and whether `cuInit` says so when there are none.
pub(crate) fn devices() -> (usize, bool) {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES");
    if visible.is_ok_and(|list| list.is_empty() || list == "-1") {
        return (0, true);
    }
    match text("FAKE_CUDA_DEVICES").as_deref() {
        Some("hidden") => (0, false),
        _ => (number("FAKE_CUDA_DEVICES", 1), true),
    }
}

/// The code that this call of a function shall fail with.
pub(crate) fn failure(function: &str, call: u64) -> Option<i32> {
    let list = text("FAKE_CUDA_FAIL")?;
    list.split(',').find_map(|entry| {
        let mut parts = entry.trim().split(':');
        let (name, code) = (parts.next()?, parts.next()?.parse().ok()?);
        let when = parts.next().map(str::parse::<u64>);
        (name == function && when.is_none_or(|when| when == Ok(call))).then_some(code)
    })
}
