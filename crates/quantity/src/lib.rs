//! Kubernetes quantities (`500m`, `1Gi`, `2e3`), parsed as by the API server: compared by value, rounded up to whole numbers, and
//! printed in the API server's canonical form.
//!
//! Values are exact to a billionth. Finer values are rounded away from zero, and values above the API server's maximum are
//! capped.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource;

const NANO: i128 = 1_000_000_000;
/// The API server's largest value.
const MAX_UNITS: i128 = i64::MAX as i128;
/// Exponents beyond this are out of range either way.
const FAR: i32 = 10_000;

/// An amount, and the family of suffixes it was written with.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a Kubernetes quantity; write 500m, 2 or 1Gi")]
pub struct QuantityError {
    pub text: String,
    pub fault: Fault,
}

/// The API server has an error message for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not a number with a suffix.
    Syntax,
    /// The number is invalid.
    Number,
    /// The suffix is unknown.
    Suffix,
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { nanos: 0, form: Form::Decimal };

    /// Billionths of the unit.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Thousandths of the unit, rounded up: `500m` is 500.
    pub fn milli(self) -> i128 {
        ceil(self.nanos, NANO / 1000)
    }

    /// A multiple of `unit`, rounded up: `1.5Gi` is 1536 in units of 1024².
    pub fn in_units_of(self, unit: u32) -> i128 {
        ceil(self.nanos, i128::from(unit.max(1)) * NANO)
    }

    /// A whole number, rounded up: `100m` is 1.
    pub fn whole(self) -> i128 {
        self.in_units_of(1)
    }

    /// Whether it is a whole number.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum, in the form of this one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        // Zero has no form of its own.
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    /// The difference, in the form of this one.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: other.nanos.saturating_neg(), form: other.form })
    }

    /// This many times as much.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(count)), form: self.form }
    }
}

impl From<u32> for Quantity {
    fn from(units: u32) -> Self {
        Self { nanos: i128::from(units) * NANO, form: Form::Decimal }
    }
}

fn ceil(value: i128, unit: i128) -> i128 {
    value.div_euclid(unit) + i128::from(value.rem_euclid(unit) != 0)
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

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).map_err(|fault| QuantityError { text: text.to_owned(), fault })
    }
}

impl TryFrom<&resource::Quantity> for Quantity {
    type Error = QuantityError;

    fn try_from(field: &resource::Quantity) -> Result<Self, QuantityError> {
        field.0.parse()
    }
}

/// The value of an object's field in thousandths (`500m` → 500, `2` → 2000), rounded up; `None` if it is invalid or negative.
pub fn milli(field: &resource::Quantity) -> Option<u64> {
    u64::try_from(Quantity::try_from(field).ok()?.milli()).ok()
}

/// The value of an object's field as a whole number (`1Gi` → 1073741824), rounded up; `None` if it is invalid or negative.
pub fn whole(field: &resource::Quantity) -> Option<u64> {
    u64::try_from(Quantity::try_from(field).ok()?.whole()).ok()
}

fn parse(text: &str) -> Result<Quantity, Fault> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
        None => return Err(Fault::Syntax),
    };
    let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    if number.is_empty() || !suffix.chars().all(|c| "eEinumkKMGTP+-0123456789".contains(c)) {
        return Err(Fault::Syntax);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(Fault::Number);
    }
    let suffix = Suffix::of(suffix).ok_or(Fault::Suffix)?;
    let nanos = nanos(whole, fraction, &suffix);
    Ok(Quantity { nanos: if negative { -nanos } else { nanos }, form: suffix.form })
}

/// A multiplier, as powers of ten and of two.
struct Suffix {
    tens: i32,
    twos: u32,
    form: Form,
}

impl Suffix {
    fn of(text: &str) -> Option<Self> {
        let decimal = |tens| Suffix { tens, twos: 0, form: Form::Decimal };
        let binary = |twos| Suffix { tens: 0, twos, form: Form::Binary };
        Some(match text {
            "" => decimal(0),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            other => {
                let exponent: i64 = other.strip_prefix(['e', 'E'])?.parse().ok()?;
                let tens = i32::try_from(exponent.clamp((-FAR).into(), FAR.into())).ok()?;
                Suffix { tens, twos: 0, form: Form::Exponent }
            }
        })
    }
}

/// Billionths, rounded up: digits × 10^(tens − digits of the fraction + 9) × 2^twos.
fn nanos(whole: &str, fraction: &str, suffix: &Suffix) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let most = MAX_UNITS * NANO;
    let scale = i64::from(suffix.tens) - fraction.len() as i64 + 9;
    let magnitude = digits.len() as i64 + scale;
    if magnitude > 30 {
        return most;
    }
    if magnitude < -20 {
        return 1;
    }
    // Keep as many digits as leave room for the power of two; the rest only decide about rounding.
    let room = (127 - suffix.twos as usize) * 30_103 / 100_000;
    let keep = digits.len().min(room);
    let mut more = digits[keep..].bytes().any(|b| b != b'0');
    let scale = scale + (digits.len() - keep) as i64;
    let kept: i128 = digits[..keep].parse().unwrap_or(i128::MAX);
    // Apply the power of two first, so that a fraction such as 0.1Ki is rounded only once.
    let value = kept.checked_mul(1 << suffix.twos).unwrap_or(i128::MAX);
    let power = u32::try_from(scale.unsigned_abs()).ok().and_then(|s| 10_i128.checked_pow(s));
    let value = match power {
        Some(power) if scale >= 0 => value.saturating_mul(power),
        None if scale >= 0 => i128::MAX,
        Some(power) => {
            more |= value % power != 0;
            value / power
        }
        None => {
            more = true;
            0
        }
    };
    value.saturating_add(i128::from(more)).min(most)
}

/// The API server's canonical text: the largest suffix of the family that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let sign = if self.nanos < 0 { "-" } else { "" };
        let size = self.nanos.abs();
        if self.form == Form::Binary && size >= 1024 * NANO {
            let mut whole = ceil(size, NANO);
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
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().expect(text)
    }

    #[test]
    fn amounts_are_added_subtracted_and_multiplied_in_their_own_form() {
        let amount = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(amount("1408Mi").times(10).to_string(), "14080Mi");
        assert_eq!(amount("500m").times(3).to_string(), "1500m");
        assert_eq!(amount("2Gi").minus(amount("512Mi")).to_string(), "1536Mi");
        assert_eq!(amount("1").minus(amount("1500m")).to_string(), "-500m");
        assert_eq!(Quantity::from(3).to_string(), "3");
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
            ("1e+3", "1000"),
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
    fn whole_numbers_are_rounded_up() {
        for (text, milli) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("1408Mi", 1_476_395_008_000),
            ("2e3", 2_000_000),
            ("2E", 2_000_000_000_000_000_000_000),
            ("1n", 1),
            ("-2", -2000),
        ] {
            assert_eq!(q(text).milli(), milli, "{text}");
        }
        assert_eq!((q("100m").whole(), q("-1500m").whole(), q("1Gi").whole()), (1, -1, 1 << 30));
        assert_eq!((q("1.5Gi").in_units_of(1 << 20), q("1").in_units_of(1 << 20)), (1536, 1));
        assert!(q("2").is_whole() && !q("1.5").is_whole() && q("-1").is_negative());
    }

    #[test]
    fn only_amounts_are_amounts() {
        let field = |text: &str| resource::Quantity(text.to_owned());
        assert_eq!((milli(&field("500m")), whole(&field("1408Mi"))), (Some(500), Some(1408 << 20)));
        assert_eq!((milli(&field("x")), whole(&field("-1"))), (None, None));
    }

    #[test]
    fn extremes_are_capped_and_rounded_as_the_api_server_does() {
        assert_eq!(q("100E"), q("9223372036854775807"));
        assert_eq!(q("1e99999999999999"), q("9223372036854775807"));
        assert_eq!(q("9223372036854775807Ei"), q("9223372036854775807"));
        assert_eq!(q("0.1n").nanos(), 1);
        assert_eq!(q("1e-99999").nanos(), 1);
        assert_eq!(q("0.000000000000000000000000000000000000000001Ei").nanos(), 1);
        assert_eq!(q("0.1234567890123456789012345678901234567890").nanos(), 123_456_790);
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        use Fault::{Number, Suffix, Syntax};
        for (bad, fault) in [
            ("", Syntax),
            ("abc", Syntax),
            ("1x", Syntax),
            ("1KiB", Syntax),
            ("--1", Syntax),
            ("Gi", Syntax),
            ("1 ", Syntax),
            (" 1", Syntax),
            ("-", Syntax),
            ("１", Syntax),
            (".", Number),
            ("1..5", Number),
            ("1.2.3", Number),
            ("1mi", Suffix),
            ("1e", Suffix),
            ("1e+", Suffix),
            ("1m5", Suffix),
            ("1e99999999999999999999", Suffix),
        ] {
            assert_eq!(bad.parse::<Quantity>().map_err(|e| e.fault), Err(fault), "{bad}");
        }
    }

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
            assert_eq!(q(given).to_string(), canonical, "{given}");
        }
    }

    proptest! {
        #[test]
        fn quantities_never_panic(text in "[+-]?[0-9.]{0,60}[a-zA-Z]{0,3}[+-]?[0-9]{0,20}") {
            if let Ok(read) = text.parse::<Quantity>() {
                let _ = (read.to_string(), read.milli(), read.whole());
            }
        }

        #[test]
        fn canonical_text_means_the_same(n in -1_000_000_000_000i64..1_000_000_000_000, suffix in "(|n|u|m|k|M|Ki|Mi|Gi|e3|e-3)") {
            let read = q(&format!("{n}{suffix}"));
            prop_assert_eq!(q(&read.to_string()), read);
        }

        #[test]
        fn every_digit_counts(units in 0u64..i64::MAX as u64, nanos in 0u32..1_000_000_000) {
            let exact = i128::from(units) * NANO + i128::from(nanos);
            prop_assert_eq!(q(&format!("{units}.{nanos:09}")).nanos(), exact);
        }

        #[test]
        fn millis_are_exact(n in 0i64..i64::MAX / 1000) {
            prop_assert_eq!(q(&format!("{n}m")).milli(), i128::from(n));
        }

        #[test]
        fn a_thousand_of_a_unit_is_one_of_the_next(n in 0u32..1_000_000) {
            prop_assert_eq!(q(&format!("{n}000k")), q(&format!("{n}M")));
            prop_assert_eq!(q(&format!("{}Ki", u64::from(n) * 1024)), q(&format!("{n}Mi")));
        }
    }
}
