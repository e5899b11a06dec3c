//! Declared statistics against those of the data.

use super::channels::Channels;
use super::codes;
use super::values::{component, shown};
use crate::findings::Finding;
use crate::model::StreamInfo;

/// Writers add up numbers of 32 bits, in their own order and in parts: what that costs.
const ROUNDING: f64 = 1e-4;
/// Mean and spread may be off by so much of the spread: also one sample less in the divisor.
const OF_SPREAD: f64 = 0.01;

/// Statistics of a stream as a dataset declares them. Numbers that are missing are not compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Declared {
    pub(crate) min: Vec<Option<f64>>,
    pub(crate) max: Vec<Option<f64>>,
    pub(crate) mean: Vec<Option<f64>>,
    pub(crate) std: Vec<Option<f64>>,
    pub(crate) count: Option<u64>,
}

/// The worst difference, where there is one that matters.
pub(crate) fn compare(stream: &StreamInfo, declared: &Declared, seen: &Channels) -> Option<Finding> {
    let mut texts = Vec::new();
    if let Some(count) = declared.count.filter(|&count| count != seen.rows) {
        texts.push(format!("the count is {count}, the data has {} samples", seen.rows));
    }
    let width = seen.min.len();
    let usable = |&column: &usize| seen.usable(column) > 0 && seen.usable(column) == seen.rows;
    let mut worst: Option<(f64, String)> = None;
    for (what, numbers) in
        [("min", &declared.min), ("max", &declared.max), ("mean", &declared.mean), ("std", &declared.std)]
    {
        if !numbers.is_empty() && numbers.len() != width {
            texts.push(format!("{what} has {} components, the data {width}", numbers.len()));
            continue;
        }
        for column in (0..width).filter(usable) {
            let Some(said) = numbers.get(column).copied().flatten() else { continue };
            let spread = seen.std(column);
            let scale = seen.min[column].abs().max(seen.max[column].abs());
            let (is, allowed) = match what {
                "min" => (seen.min[column], scale * ROUNDING),
                "max" => (seen.max[column], scale * ROUNDING),
                "mean" => (seen.mean[column], spread * OF_SPREAD + scale * ROUNDING),
                _ => (spread, spread * OF_SPREAD + scale * ROUNDING),
            };
            let off = (said - is).abs() / (allowed + 1e-9);
            if off > 1.0 && worst.as_ref().is_none_or(|(worst, _)| off > *worst) {
                let component = component(stream, column).map(|name| format!(" of {name}")).unwrap_or_default();
                worst = Some((off, format!("the {what}{component} is {}, of the data {}", shown(said), shown(is))));
            }
        }
    }
    texts.extend(worst.map(|(_, text)| text));
    let text = format!("expected the statistics of the data: {}", texts.join("; "));
    (!texts.is_empty()).then(|| Finding::warning(&codes::STATS_DIFFER, text).stream(&stream.name))
}

#[cfg(test)]
mod tests {
    use robocache::DType;

    use super::*;
    use crate::model::Kind;

    #[test]
    fn differences_that_matter_are_told() {
        let stream = StreamInfo {
            name: "state".to_owned(),
            kind: Kind::Vector,
            dtype: Some(DType::F32),
            shape: vec![2],
            names: None,
            rate: None,
            method: Vec::new(),
        };
        let values: Vec<f32> = (0..200).map(|n| (n as f32 * 0.1).sin()).collect();
        let seen = Channels::of(&values, 2);
        let some = |numbers: &[f64]| numbers.iter().copied().map(Some).collect::<Vec<_>>();
        let declared = Declared {
            min: some(&seen.min),
            max: some(&seen.max),
            mean: some(&[seen.mean[0] + 1e-6, seen.mean[1]]),
            std: some(&[seen.std(0) * 1.005, seen.std(1)]),
            count: Some(100),
        };
        assert_eq!(compare(&stream, &declared, &seen), None);
        let text = |declared: Declared| compare(&stream, &declared, &seen).unwrap().message;
        let wrong = text(Declared { mean: some(&[seen.mean[0], 0.5]), ..declared.clone() });
        assert!(wrong.starts_with("expected the statistics of the data: the mean of component 1 is 0.5,"), "{wrong}");
        assert!(text(Declared { count: Some(99), ..declared.clone() }).contains("the count is 99, the data has 100"));
        assert!(text(Declared { min: some(&[0.0]), ..declared.clone() }).contains("min has 1 components"));
        assert!(text(Declared { std: some(&[9.0, 0.0]), ..declared }).contains("the std of component 0 is 9"));
        let nothing = Declared { min: vec![None, None], ..Declared::default() };
        assert_eq!(compare(&stream, &nothing, &seen), None);
    }
}
