//! Kubernetes quantities, compared by value: `0.5` is `500m`, `1024Mi` is `1Gi`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i128 = 1_000_000_000;
/// The API server's largest value; anything above counts as this.
const MAX_UNITS: i128 = i64::MAX as i128;

/// A quantity, exact to a billionth (the API server rounds up what is finer), with the text it was written as.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    text: String,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a Kubernetes quantity; write 500m, 2 or 1Gi")]
pub struct QuantityError(pub String);

impl Quantity {
    /// Billionths of the unit.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let nanos = parse(text).ok_or_else(|| QuantityError(text.to_owned()))?;
        Ok(Quantity { nanos, text: text.to_owned() })
    }
}

/// Multiplier of a suffix as powers of ten and of two.
fn multiplier(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // Far outside what a quantity can hold either way; the caller's arithmetic saturates.
            let limit: i32 = digits.parse().unwrap_or(10_000).min(10_000);
            (if exponent.starts_with('-') { -limit } else { limit }, 0)
        }
    })
}

fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (tens, twos) = multiplier(suffix)?;

    // value = digits × 10^(tens − fraction digits) × 2^twos, in billionths, rounded away from zero.
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let scale = i64::from(tens) - fraction.len() as i64 + 9;
    // Digits beyond what i128 holds only matter below a billionth or above the maximum.
    let magnitude = digits.len() as i64 + scale;
    let cap = MAX_UNITS * NANO;
    let nanos = if magnitude > 30 {
        cap
    } else if magnitude < -20 {
        1
    } else {
        let keep = digits.len().min(19);
        let mut value: i128 = digits[..keep].parse().ok()?;
        let mut sticky = digits[keep..].bytes().any(|b| b != b'0');
        let scale = scale + (digits.len() - keep) as i64;
        // Binary suffixes first, so that a fraction such as 0.1Ki is rounded once, at the end.
        value = value.checked_mul(1i128 << twos).unwrap_or(i128::MAX);
        if scale >= 0 {
            value = u32::try_from(scale)
                .ok()
                .and_then(|s| 10i128.checked_pow(s))
                .map_or(i128::MAX, |p| value.saturating_mul(p));
        } else {
            match u32::try_from(-scale).ok().and_then(|s| 10i128.checked_pow(s)) {
                Some(p) => {
                    sticky |= value % p != 0;
                    value /= p;
                }
                None => {
                    sticky = true;
                    value = 0;
                }
            }
        }
        (if sticky { value.saturating_add(1) } else { value }).min(cap)
    };
    Some(if negative { -nanos } else { nanos })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        for (a, b) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1", "1000m"),
            ("1k", "1000"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("1E", "1000000000000000000"),
            ("1.5Gi", "1536Mi"),
            (".5", "5e-1"),
            ("+5.", "5"),
            ("0", "-0m"),
            ("1n", "0.000000001"),
        ] {
            assert_eq!(q(a), q(b), "{a} {b}");
        }
    }

    #[test]
    fn order_is_by_value() {
        assert!(q("100m") < q("1"));
        assert!(q("-1") < q("0"));
        assert!(q("999Mi") < q("1Gi"));
    }

    #[test]
    fn extremes_are_capped_and_rounded_as_the_api_server_does() {
        assert_eq!(q("100E"), q("9223372036854775807"));
        assert_eq!(q("1e99999999999999"), q("9223372036854775807"));
        assert_eq!(q("0.1n").nanos(), 1);
        assert_eq!(q("1e-99999").nanos(), 1);
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        for bad in ["", "abc", "1x", "1 ", " 1", ".", "-", "1..5", "1.2.3", "1mi", "1e", "1e+", "1Kib", "1m5", "１"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn quantities_never_panic(text in "[+-]?[0-9.]{0,60}[a-zA-Z]{0,3}[+-]?[0-9]{0,6}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn millis_are_exact(n in 0i64..i64::MAX / 1000) {
            prop_assert_eq!(q(&format!("{n}m")).nanos(), i128::from(n) * 1_000_000);
        }

        #[test]
        fn a_thousand_of_a_unit_is_one_of_the_next(n in 0u32..1_000_000) {
            prop_assert_eq!(q(&format!("{n}000k")), q(&format!("{n}M")));
            prop_assert_eq!(q(&format!("{}Ki", u64::from(n) * 1024)), q(&format!("{n}Mi")));
        }
    }
}
