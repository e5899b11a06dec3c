//! Sizes and budgets: pure arithmetic, no devices.

use crate::{Error, Result};

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
