//! Kubernetes quantities as thousandths, the finest grain a scheduler compares.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by resource name, in thousandths.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// Thousandths of a quantity, rounded up. What is no quantity counts as zero: the API server refuses it anyway.
pub(crate) fn milli(quantity: &Quantity) -> i128 {
    parse(&quantity.0).unwrap_or(0)
}

/// The amounts of a resource list.
pub(crate) fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    list.into_iter().flatten().map(|(name, quantity)| (name.clone(), milli(quantity))).collect()
}

/// Adds `more` to `sum`.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

/// Takes `less` from `sum`.
pub(crate) fn subtract(sum: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        *sum.entry(name.clone()).or_default() -= amount;
    }
}

/// Raises each amount of `sum` to at least that of `other`.
pub(crate) fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let digits = format!("{}{fraction}", whole.trim_start_matches(['-', '+']));
    let mantissa: i128 = digits.parse().ok()?;
    let (multiplier, exponent) = scale(suffix)?;
    // thousandths = mantissa * multiplier * 10^(exponent + 3 - digits behind the point)
    let power = exponent + 3 - i32::try_from(fraction.len()).ok()?;
    let scaled = mantissa.checked_mul(multiplier)?;
    let value = if power >= 0 {
        scaled.checked_mul(10i128.checked_pow(power.unsigned_abs())?)?
    } else {
        let divisor = 10i128.checked_pow(power.unsigned_abs())?;
        scaled.checked_add(divisor - 1)? / divisor
    };
    Some(if negative { -value } else { value })
}

/// A suffix as (binary multiplier, decimal exponent).
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        other => (1, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_become_thousandths() {
        for (text, want) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("1408Mi", 1_476_395_008_000),
            ("2e3", 2_000_000),
            ("1E3", 1_000_000),
            ("2E", 2_000_000_000_000_000_000_000),
            ("1n", 1),
            ("-2", -2000),
            ("110", 110_000),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), want, "{text}");
        }
    }

    #[test]
    fn nonsense_counts_as_zero() {
        for text in ["", "Gi", "1.2.3", "abc", "1Zi", "9e999"] {
            assert_eq!(milli(&Quantity(text.to_owned())), 0, "{text}");
        }
    }
}
