//! What is wanted of an ingest, from what was typed.

use std::path::PathBuf;

use robocache::{DType, Error, Result, ensure};
use robocache_data::cache::{Choice, Images, IngestOptions};
use robocache_data::{Interpolation, Span};

use crate::flags;

/// Short names that are in use.
const ALIASES: [(&str, DType); 4] =
    [("f16", DType::F16), ("bf16", DType::BF16), ("f32", DType::F32), ("f64", DType::F64)];

/// What to do, and whether to show a bar.
#[derive(Debug)]
pub(crate) struct Options {
    pub(super) out: PathBuf,
    pub(super) work: Work,
    pub(super) bar: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Everything.
    All {
        source: PathBuf,
        options: IngestOptions,
    },
    Plan {
        source: PathBuf,
        options: IngestOptions,
    },
    Unit {
        unit: usize,
        strict: bool,
    },
    Merge,
}

impl Options {
    pub(crate) fn resolve(raw: &flags::Ingest) -> Result<Self> {
        let work = work(raw).map_err(|error| error.op("ingest"))?;
        Ok(Self { out: raw.out.clone(), work, bar: !raw.format.json })
    }
}

fn work(raw: &flags::Ingest) -> Result<Work> {
    if let Some(unit) = raw.unit {
        return Ok(Work::Unit { unit, strict: raw.strict });
    }
    if raw.merge {
        return Ok(Work::Merge);
    }
    let source = raw.source.clone().ok_or_else(|| Error::invalid("SRC", "expected a dataset"))?;
    let quality = u8::try_from(raw.quality).ok().filter(|quality| (1..=100).contains(quality));
    let quality =
        quality.ok_or_else(|| Error::invalid("--quality", format!("expected 1 to 100, got {}", raw.quality)))?;
    ensure!(raw.workers != Some(0), "--workers", "expected 1 or more, got 0");
    let options = IngestOptions {
        streams: raw.streams.as_ref().map(|streams| streams.iter().map(|text| choice(text)).collect()).transpose()?,
        methods: raw.methods.iter().map(|text| method(text)).collect::<Result<_>>()?,
        images: match raw.images {
            flags::Images::Jpeg => Images::Jpeg,
            flags::Images::Raw => Images::Raw,
            flags::Images::Skip => Images::Skip,
        },
        image_size: raw.image_size.as_deref().map(image_size).transpose()?,
        quality,
        strict: raw.strict,
        workers: raw.workers,
        tag: raw.tag.clone(),
        unit_frames: raw.unit_frames,
        recording: raw.recording.resolve()?,
    };
    Ok(if raw.plan { Work::Plan { source, options } } else { Work::All { source, options } })
}

/// `NAME[=NEW][:TYPE]`.
fn choice(text: &str) -> Result<Choice> {
    let (names, dtype) = match text.rsplit_once(':') {
        Some((names, dtype)) => (names, Some(float(dtype)?)),
        None => (text, None),
    };
    let (from, to) = match names.split_once('=') {
        Some((from, to)) => (from, Some(to)),
        None => (names, None),
    };
    ensure!(!from.is_empty() && to != Some(""), "--streams", "expected NAME, NAME=NEW or NAME:TYPE, got {text:?}");
    Ok(Choice { from: from.to_owned(), to: to.map(str::to_owned), dtype })
}

fn float(name: &str) -> Result<DType> {
    let floats = || ALIASES.iter().map(|&(_, dtype)| dtype);
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, dtype)| dtype);
    alias.or_else(|| floats().find(|dtype| dtype.name() == name)).ok_or_else(|| {
        let known: Vec<_> = floats().map(DType::name).collect();
        Error::invalid("--streams", format!("expected a type out of {}, got {name:?}", known.join(", ")))
    })
}

/// `KEY=NAME`, or `KEY=NAME:FIRST-LAST,NAME:FIRST-LAST`.
fn method(text: &str) -> Result<(String, Vec<Span>)> {
    let parts = text.rsplit_once('=').filter(|(key, _)| !key.is_empty());
    let (key, spans) = parts.ok_or_else(|| Error::invalid("--method", format!("expected KEY=NAME, got {text:?}")))?;
    if !spans.contains(':') {
        let all = Span { method: Interpolation::from_name("--method", spans)?, start: 0, end: usize::MAX };
        return Ok((key.to_owned(), vec![all]));
    }
    Ok((key.to_owned(), spans.split(',').map(span).collect::<Result<_>>()?))
}

/// `NAME:FIRST-LAST` or `NAME:COLUMN`, as `inspect` prints it.
fn span(text: &str) -> Result<Span> {
    let parse = || {
        let (name, columns) = text.split_once(':')?;
        let (first, last) = columns.split_once('-').unwrap_or((columns, columns));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((name, first, last.checked_add(1)?))
    };
    let (name, start, end) =
        parse().ok_or_else(|| Error::invalid("--method", format!("expected NAME:FIRST-LAST, got {text:?}")))?;
    Ok(Span { method: Interpolation::from_name("--method", name)?, start, end })
}

/// Height and width.
fn image_size(text: &str) -> Result<(usize, usize)> {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    let parse = |size: &str| size.parse::<usize>().ok().filter(|size| (1..=16384).contains(size));
    parse(height)
        .zip(parse(width))
        .ok_or_else(|| Error::invalid("--image-size", format!("expected N or HxW, each 1 to 16384, got {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_names_and_types() {
        let parsed = |text: &str| choice(text).map(|choice| (choice.from, choice.to, choice.dtype)).unwrap();
        assert_eq!(parsed("a.b"), ("a.b".to_owned(), None, None));
        assert_eq!(parsed("a=c:bfloat16"), ("a".to_owned(), Some("c".to_owned()), Some(DType::BF16)));
        assert_eq!(parsed("/joints/position:f16"), ("/joints/position".to_owned(), None, Some(DType::F16)));
        for bad in ["", "=b", "a=", ":f16"] {
            assert!(choice(bad).unwrap_err().to_string().starts_with("--streams: expected NAME"), "{bad:?}");
        }
        let error = choice("a:int32").unwrap_err().to_string();
        assert_eq!(error, "--streams: expected a type out of float16, bfloat16, float32, float64, got \"int32\"");
    }

    #[test]
    fn methods_are_for_all_columns_or_some() {
        let all = Span { method: Interpolation::Previous, start: 0, end: usize::MAX };
        assert_eq!(method("a=previous").unwrap(), ("a".to_owned(), vec![all]));
        let spans = [(Interpolation::Linear, 0, 3), (Interpolation::Slerp, 3, 7), (Interpolation::Previous, 7, 8)];
        let spans = spans.map(|(method, start, end)| Span { method, start, end });
        assert_eq!(method("p=linear:0-2,slerp:3-6,previous:7").unwrap(), ("p".to_owned(), spans.to_vec()));
        for bad in ["a", "=linear", "a=spline", "a=linear:x", "a=linear:0-2,slerp", "a=linear:0-18446744073709551615"] {
            assert!(method(bad).unwrap_err().to_string().starts_with("--method: expected "), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_one_or_two_numbers() {
        assert_eq!([image_size("224").unwrap(), image_size("48x64").unwrap()], [(224, 224), (48, 64)]);
        for bad in ["", "0", "x", "48x", "48x64x3", "-1", "16385"] {
            assert!(image_size(bad).unwrap_err().to_string().contains("expected N or HxW"), "{bad:?}");
        }
    }
}
