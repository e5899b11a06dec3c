//! Sizes and budgets: what calls take, before they run.

mod bandwidth;
mod sizes;

pub use sizes::{OPS, Plan, plan};

use crate::{Error, Result};

/// Bytes that a call takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Of its inputs.
    pub input: u64,
    /// Of its results.
    pub output: u64,
    /// Of the memory that it works in.
    pub temporary: u64,
}

impl Footprint {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.temporary)
    }
}

/// Bytes for people: `512 B`, `1.5 KiB`, `40 GiB`.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut size = bytes as f64;
    while size >= 1000.0 && unit < UNITS.len() - 1 {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    let digits = if unit == 0 || size >= 99.95 { 0 } else { 1 };
    format!("{size:.digits$} {}", UNITS[unit])
}

/// Where and in what parts a call runs.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// Whether it runs on the CPU since no GPU can be used.
    pub fallback: bool,
    /// GPUs that data on the host is streamed through; without any, a call runs where its data lives.
    pub devices: Vec<u32>,
    /// What the parts in flight may take.
    pub budget: Option<Budget>,
    /// Rows of a part, or items where a call has one row.
    pub chunk: Option<usize>,
}

/// What the chunks in flight may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Chosen from the free memory of the device.
    Auto,
    /// A number of bytes.
    Bytes(u64),
}

impl std::str::FromStr for Budget {
    type Err = Error;

    /// Reads `auto`, `1500000`, `512MiB`, `2 GiB`, `1.5GB`.
    fn from_str(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let bad =
            || Error::invalid("max_memory", format!("expected bytes, a size like \"2GiB\" or \"auto\", got {text:?}"));
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "kib" | "k" => 1024.0,
            "mib" | "m" => 1_048_576.0,
            "gib" | "g" => 1_073_741_824.0,
            "tib" | "t" => 1_099_511_627_776.0,
            _ => return Err(bad()),
        };
        let bytes = number.parse::<f64>().map_err(|_| bad())? * unit;
        if !(1.0..1.8e19).contains(&bytes) {
            return Err(bad());
        }
        Ok(Self::Bytes(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (40 << 30, "40.0 GiB"),
        ] {
            assert_eq!(shown(bytes), text);
        }
        assert_eq!(shown(u64::MAX), "16384 PiB");
    }

    #[test]
    fn budgets_are_read_with_their_units() {
        let read = |text: &str| text.parse::<Budget>().unwrap();
        assert_eq!(read("auto"), Budget::Auto);
        assert_eq!(read("4096"), Budget::Bytes(4096));
        assert_eq!(read(" 2GiB "), Budget::Bytes(2 << 30));
        assert_eq!(read("1.5 kb"), Budget::Bytes(1500));
        for bad in ["", "GiB", "-1", "0", "2 parsecs", "1e300", "nan", "1.2.3"] {
            let error = bad.parse::<Budget>().unwrap_err();
            assert_eq!(error.argument_name(), Some("max_memory"), "{bad}");
        }
    }
}
