//! Spark's time strings: digits and a suffix, whole numbers only.

use super::java_trim;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeUnit {
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
    Days,
}

impl TimeUnit {
    fn micros(self) -> i128 {
        match self {
            TimeUnit::Microseconds => 1,
            TimeUnit::Milliseconds => 1_000,
            TimeUnit::Seconds => 1_000_000,
            TimeUnit::Minutes => 60_000_000,
            TimeUnit::Hours => 3_600_000_000,
            TimeUnit::Days => 86_400_000_000,
        }
    }

    fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "us" => TimeUnit::Microseconds,
            "ms" => TimeUnit::Milliseconds,
            "s" => TimeUnit::Seconds,
            "m" | "min" => TimeUnit::Minutes,
            "h" => TimeUnit::Hours,
            "d" => TimeUnit::Days,
            _ => return None,
        })
    }
}

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("`{0}` is not a time; write 500ms, 30s or 5m")]
    Malformed(String),
    #[error(
        "`{0}` has a fraction, which Spark refuses; write a whole number of a smaller unit, such as 1500ms for 1.5s"
    )]
    Fraction(String),
}

/// Reads a time in `unit`, which is also the unit of a bare number. The result is truncated, and saturates on overflow,
/// as with Java's `TimeUnit`.
pub fn time(text: &str, unit: TimeUnit) -> Result<i64, TimeError> {
    let malformed = || TimeError::Malformed(text.to_owned());
    let lower = java_trim(text).to_lowercase();
    let lower = java_trim(&lower);
    let unsigned = lower.strip_prefix('-').unwrap_or(lower);
    let digits_end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let (digits, suffix) = unsigned.split_at(digits_end);
    if digits.is_empty() {
        return Err(malformed());
    }
    if suffix.strip_prefix('.').is_some_and(|f| f.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(TimeError::Fraction(text.to_owned()));
    }
    let from = if suffix.is_empty() { unit } else { TimeUnit::from_suffix(suffix).ok_or_else(malformed)? };
    // Java reads the digits as a 64-bit number first.
    let number: i64 = lower[..lower.len() - suffix.len()].parse().map_err(|_| malformed())?;
    let converted = i128::from(number) * from.micros() / unit.micros();
    Ok(i64::try_from(converted).unwrap_or(if converted < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_and_default_units() {
        for (text, ms) in [
            ("10", 10),
            ("10ms", 10),
            ("10s", 10_000),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1H", 3_600_000),
            ("1d", 86_400_000),
            ("-5s", -5_000),
            ("1999us", 1),
            ("9223372036854775807d", i64::MAX),
        ] {
            assert_eq!(time(text, TimeUnit::Milliseconds), Ok(ms), "{text}");
        }
        assert_eq!(time("90", TimeUnit::Seconds), Ok(90));
        assert_eq!(time("1500ms", TimeUnit::Seconds), Ok(1));
    }

    #[test]
    fn what_spark_refuses_is_refused() {
        assert_eq!(time("1.5s", TimeUnit::Seconds), Err(TimeError::Fraction("1.5s".into())));
        for bad in ["", "s", "1 s", "1sec", "1w", "--1s", "99999999999999999999s"] {
            assert!(time(bad, TimeUnit::Seconds).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn times_never_panic(text in ".*") {
            let _ = time(&text, TimeUnit::Milliseconds);
        }

        #[test]
        fn milliseconds_survive(n: i64) {
            prop_assert_eq!(time(&format!("{n}ms"), TimeUnit::Milliseconds), Ok(n));
        }
    }
}
