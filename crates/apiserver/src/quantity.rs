//! Resource quantities (`500m`, `1Gi`, `2e3`): parsing, comparing and the canonical text the API answers with.

use std::fmt;

const NANO: i128 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// An exact number of billionths, and the family of suffixes it was written with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    nanos: i128,
    form: Form,
}

pub(crate) const SYNTAX_COMPLAINT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
pub(crate) const SUFFIX_COMPLAINT: &str = "unable to parse quantity's suffix";
const NUMBER_COMPLAINT: &str = "unable to parse numeric part of quantity";

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(SYNTAX_COMPLAINT),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        if number.is_empty() || !suffix.chars().all(|c| "eEinumkKMGTP+-0123456789".contains(c)) {
            return Err(SYNTAX_COMPLAINT);
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(NUMBER_COMPLAINT);
        }
        let (numerator, denominator, form) = scale(suffix)?;
        let digits: String = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        // Anything this long is far above the largest quantity, which is where it ends up.
        let mantissa: i128 = if digits.is_empty() {
            0
        } else if digits.len() > 30 {
            i128::MAX / NANO / NANO
        } else {
            digits.parse().map_err(|_| NUMBER_COMPLAINT)?
        };
        let below = 10_i128.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX)).unwrap_or(i128::MAX / NANO);
        let limit = i128::from(i64::MAX) * NANO;
        let scaled = mantissa.checked_mul(numerator).and_then(|v| v.checked_mul(NANO));
        let nanos = match scaled {
            Some(value) => {
                let divisor = below.saturating_mul(denominator);
                // Never rounds down: a request that needs a little more gets the next step.
                (value / divisor + i128::from(value % divisor != 0)).min(limit)
            }
            None => limit,
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, form })
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        // Nothing has no form of its own.
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    pub(crate) fn zero() -> Self {
        Self { nanos: 0, form: Form::Decimal }
    }
}

fn scale(suffix: &str) -> Result<(i128, i128, Form), &'static str> {
    let found = match suffix {
        "" => (1, 1, Form::Decimal),
        "n" => (1, NANO, Form::Decimal),
        "u" => (1, 1_000_000, Form::Decimal),
        "m" => (1, 1000, Form::Decimal),
        "k" => (1000, 1, Form::Decimal),
        "M" => (10_i128.pow(6), 1, Form::Decimal),
        "G" => (10_i128.pow(9), 1, Form::Decimal),
        "T" => (10_i128.pow(12), 1, Form::Decimal),
        "P" => (10_i128.pow(15), 1, Form::Decimal),
        "E" => (10_i128.pow(18), 1, Form::Decimal),
        "Ki" => (1 << 10, 1, Form::Binary),
        "Mi" => (1 << 20, 1, Form::Binary),
        "Gi" => (1 << 30, 1, Form::Binary),
        "Ti" => (1 << 40, 1, Form::Binary),
        "Pi" => (1 << 50, 1, Form::Binary),
        "Ei" => (1 << 60, 1, Form::Binary),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E']).and_then(|e| e.parse().ok()).ok_or(SUFFIX_COMPLAINT)?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs()).unwrap_or(i128::MAX / NANO / NANO);
            if exponent < 0 { (1, power, Form::Exponent) } else { (power, 1, Form::Exponent) }
        }
    };
    Ok(found)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let sign = if self.nanos < 0 { "-" } else { "" };
        let size = self.nanos.abs();
        if self.form == Form::Binary && size >= 1024 * NANO {
            let mut whole = size / NANO + i128::from(size % NANO != 0);
            let mut step = 0;
            while whole % 1024 == 0 && step < 6 {
                whole /= 1024;
                step += 1;
            }
            return write!(f, "{sign}{whole}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let mut mantissa = size;
        let mut exponent = -9;
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        if self.form == Form::Exponent {
            return if exponent == 0 {
                write!(f, "{sign}{mantissa}")
            } else {
                write!(f, "{sign}{mantissa}e{exponent}")
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{sign}{mantissa}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_is_the_one_of_upstream() {
        for (given, canonical) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1", "1"),
            ("100", "100"),
            ("1000", "1k"),
            ("2e3", "2e3"),
            ("0", "0"),
            ("512Ki", "512Ki"),
            ("0.1m", "100u"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
        ] {
            assert_eq!(Quantity::parse(given).expect(given).to_string(), canonical, "{given}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["", "abc", "1x", "1KiB", "--1", "1.2.3", "Gi"] {
            assert!(Quantity::parse(bad).is_err(), "{bad}");
        }
    }
}
