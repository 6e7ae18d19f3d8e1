//! Amounts of a container's resources as the kernel and programs take them: never negative.

use firesteel_quantity::Quantity as Parsed;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value in thousandths (`500m` → 500, `2` → 2000), rounded up; `None` if it is no amount.
pub(crate) fn milli(quantity: &Quantity) -> Option<u64> {
    u64::try_from(quantity.0.parse::<Parsed>().ok()?.milli()).ok()
}

/// The value as a whole number (`1Gi` → 1073741824), rounded up.
pub(crate) fn whole(quantity: &Quantity) -> Option<u64> {
    u64::try_from(quantity.0.parse::<Parsed>().ok()?.whole()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_amounts_are_amounts() {
        let q = |s: &str| Quantity(s.to_owned());
        assert_eq!((milli(&q("500m")), whole(&q("1408Mi"))), (Some(500), Some(1408 << 20)));
        assert_eq!((milli(&q("x")), whole(&q("-1"))), (None, None));
    }
}
