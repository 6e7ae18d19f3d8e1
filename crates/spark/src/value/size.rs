//! Spark's byte sizes: digits and a suffix, binary multiples, no fractions.

use super::java_trim;
use crate::version::Line;

/// A unit of size, a power of 1024 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByteUnit {
    Byte,
    KiB,
    MiB,
    GiB,
    TiB,
    PiB,
}

impl ByteUnit {
    fn bytes(self) -> i64 {
        1 << (10 * self as u32)
    }

    fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "b" => ByteUnit::Byte,
            "k" | "kb" | "ki" | "kib" => ByteUnit::KiB,
            "m" | "mb" | "mi" | "mib" => ByteUnit::MiB,
            "g" | "gb" | "gi" | "gib" => ByteUnit::GiB,
            "t" | "tb" | "ti" | "tib" => ByteUnit::TiB,
            "p" | "pb" | "pi" | "pib" => ByteUnit::PiB,
            _ => return None,
        })
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("`{0}` is not a size; write 512m or 2g")]
    Malformed(String),
    #[error(
        "`{0}` has a fraction, which Spark refuses; write a whole number of a smaller unit, such as 1536m for 1.5g"
    )]
    Fraction(String),
    #[error("`{0}` has a suffix that Spark only accepts since 4.2; leave out the i, as in 512m or 2g")]
    KubernetesSuffix(String),
    #[error("`{0}` is too large for a size; write a smaller number or a larger unit")]
    TooLarge(String),
}

/// Refuses Kubernetes suffixes (`1Gi`, `1GiB`) for lines of Spark that do not support them. [`size`] checks everything else.
pub fn check_suffix(text: &str, line: Line) -> Result<(), SizeError> {
    let number = java_trim(text).trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
    let suffix = number.to_ascii_lowercase();
    let kubernetes = suffix.contains('i') && ByteUnit::from_suffix(&suffix).is_some();
    if kubernetes && line < Line::V4_2 { Err(SizeError::KubernetesSuffix(text.to_owned())) } else { Ok(()) }
}

/// Reads a size in `unit`, which is also the unit of a bare number. The result is truncated: `1500k` in MiB is 1. A
/// leading minus sign is allowed, as everywhere in Spark's settings. The suffixes are those of the newest Spark;
/// [`check_suffix`] refuses those that older lines do not support.
pub fn size(text: &str, unit: ByteUnit) -> Result<i64, SizeError> {
    match text.strip_prefix('-') {
        Some(rest) => unsigned(rest, text, unit).map(|v| -v),
        None => unsigned(text, text, unit),
    }
}

/// Reads a size in bytes; a bare number is in bytes. No sign is allowed: this is `spark-submit`'s check of
/// `--driver-memory` and `--executor-memory`.
pub fn size_bytes(text: &str) -> Result<i64, SizeError> {
    unsigned(text, text, ByteUnit::Byte)
}

/// A memory setting such as `spark.driver.memory`, in MiB; a bare number is MiB.
pub fn memory_mib(text: &str) -> Result<i64, SizeError> {
    size(text, ByteUnit::MiB)
}

fn unsigned(text: &str, written: &str, unit: ByteUnit) -> Result<i64, SizeError> {
    let malformed = || SizeError::Malformed(written.to_owned());
    let too_large = || SizeError::TooLarge(written.to_owned());
    let lower = java_trim(text).to_lowercase();
    let lower = java_trim(&lower);
    let digits_end = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, suffix) = lower.split_at(digits_end);
    if digits.is_empty() {
        return Err(malformed());
    }
    if let Some(fraction) = suffix.strip_prefix('.') {
        let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_fraction = rest.len() < fraction.len() && rest.chars().all(|c| c.is_ascii_lowercase());
        return Err(if is_fraction { SizeError::Fraction(written.to_owned()) } else { malformed() });
    }
    let from = if suffix.is_empty() { unit } else { ByteUnit::from_suffix(suffix).ok_or_else(malformed)? };
    let number: i64 = digits.parse().map_err(|_| too_large())?;
    if from > unit {
        number.checked_mul(from.bytes() / unit.bytes()).ok_or_else(too_large)
    } else {
        Ok(number / (unit.bytes() / from.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [
            ("5", 5),
            ("5b", 5),
            ("5k", 5 << 10),
            ("5kb", 5 << 10),
            ("5M", 5 << 20),
            ("5mB", 5 << 20),
            (" 5g ", 5 << 30),
            ("5tb", 5 << 40),
            ("5p", 5 << 50),
        ] {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_in_the_default_unit() {
        assert_eq!(memory_mib("512"), Ok(512));
        assert_eq!(memory_mib("2g"), Ok(2048));
        assert_eq!(memory_mib("1500k"), Ok(1));
        assert_eq!(memory_mib("-1g"), Ok(-1024));
    }

    #[test]
    fn kubernetes_suffixes_count_from_4_2_on() {
        for text in ["2Gi", "2gib", "2048Mi", " 2GiB "] {
            assert_eq!(memory_mib(text), Ok(2048), "{text}");
            assert_eq!(check_suffix(text, Line::V4_2), Ok(()));
            assert_eq!(check_suffix(text, Line::V4_1), Err(SizeError::KubernetesSuffix(text.into())));
        }
        for text in ["2g", "512", "-1m", "nonsense", ""] {
            assert_eq!(check_suffix(text, Line::V3_5), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_spark_refuses_is_refused() {
        assert_eq!(size_bytes("1x"), Err(SizeError::Malformed("1x".into())));
        assert_eq!(size_bytes("0.5g"), Err(SizeError::Fraction("0.5g".into())));
        assert_eq!(size_bytes("9000p"), Err(SizeError::TooLarge("9000p".into())));
        assert_eq!(size_bytes("99999999999999999999"), Err(SizeError::TooLarge("99999999999999999999".into())));
        for bad in ["", " ", "g", "-1g", "1 g", "1.g", "1gii", "1bi", "1.5.5g", "１g"] {
            assert!(size_bytes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn sizes_never_panic(text in ".*", unit in 0usize..6) {
            let units = [ByteUnit::Byte, ByteUnit::KiB, ByteUnit::MiB, ByteUnit::GiB, ByteUnit::TiB, ByteUnit::PiB];
            let _ = (size(&text, units[unit]), size_bytes(&text), memory_mib(&text));
        }

        #[test]
        fn mebibytes_survive(n in 0i64..1 << 40) {
            prop_assert_eq!(memory_mib(&format!("{n}m")), Ok(n));
            prop_assert_eq!(memory_mib(&format!("{}k", n * 1024)), Ok(n));
        }
    }
}
