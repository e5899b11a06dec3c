//! Streams in words, the same in all commands.

use robocache_data::Span;

use crate::output::shorten;

/// Letters of a stream's name that are shown in any case.
pub(crate) const LEAST_NAME: usize = 16;
/// Letters of its methods.
const METHOD_SHOWN: usize = 40;

/// Names of streams differ at their ends.
pub(crate) fn shorten_middle(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(3);
    let (head, tail) = letters.split_at(kept / 3);
    let tail = tail.get(tail.len().saturating_sub(kept - kept / 3)..).unwrap_or_default();
    head.iter().chain("...".chars().collect::<Vec<_>>().iter()).chain(tail).collect()
}

/// `480x640x3`; nothing for a single number.
pub(crate) fn shape(shape: &[usize]) -> String {
    match shape {
        [] | [1] => "-".to_owned(),
        shape => shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x"),
    }
}

/// One name, or one for each range of columns.
pub(crate) fn method(spans: &[Span]) -> String {
    match spans {
        [one] => one.method.name().to_owned(),
        spans => {
            let span = |Span { method, start, end }: &Span| match end.saturating_sub(*start) {
                0 | 1 => format!("{} {start}", method.name()),
                _ => format!("{} {start}-{}", method.name(), end - 1),
            };
            shorten(&spans.iter().map(span).collect::<Vec<_>>().join(", "), METHOD_SHOWN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_short() {
        assert_eq!([shape(&[]), shape(&[1]), shape(&[480, 640, 3])], ["-", "-", "480x640x3"]);
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(shorten_middle("observation.state", 17), "observation.state");
        assert_eq!(shorten_middle("observation.state", 12), "obs....state");
        assert_eq!(shorten_middle("observation.state", 2), "...");
    }
}
