//! Kubernetes quantities as whole numbers: bytes, or thousandths.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value in thousandths (`500m` → 500, `2` → 2000), rounded up; `None` if it is not a quantity.
pub(crate) fn milli(quantity: &Quantity) -> Option<u64> {
    parse(&quantity.0, 1000)
}

/// The value as a whole number (`1Gi` → 1073741824), rounded up.
pub(crate) fn whole(quantity: &Quantity) -> Option<u64> {
    parse(&quantity.0, 1)
}

fn parse(text: &str, times: u128) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let (multiply, divide): (u128, u128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let ten = 10_u128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, ten) } else { (ten, 1) }
        }
    };
    let top = digits.checked_mul(multiply)?.checked_mul(times)?;
    u64::try_from(top.div_ceil(scale.checked_mul(divide)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        let q = |s: &str| Quantity(s.to_owned());
        assert_eq!(milli(&q("500m")), Some(500));
        assert_eq!(milli(&q("1.5")), Some(1500));
        assert_eq!(whole(&q("1408Mi")), Some(1408 << 20));
        assert_eq!(whole(&q("0.5Gi")), Some(1 << 29));
        assert_eq!(whole(&q("1e3")), Some(1000));
        assert_eq!(whole(&q("100m")), Some(1));
        assert_eq!(whole(&q("x")), None);
        assert_eq!(whole(&q("-1")), None);
    }
}
