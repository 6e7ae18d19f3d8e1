//! Resource lists in thousandths, the finest unit the scheduler compares.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts by resource name, in thousandths.
pub(crate) type ResourceList = BTreeMap<String, i128>;

/// A quantity in thousandths, rounded up. An invalid quantity counts as zero; the API server rejects it anyway.
pub(crate) fn milli(quantity: &Quantity) -> i128 {
    firesteel_quantity::Quantity::try_from(quantity).map_or(0, firesteel_quantity::Quantity::milli)
}

/// The amounts of a resource list.
pub(crate) fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> ResourceList {
    list.into_iter().flatten().map(|(name, quantity)| (name.clone(), milli(quantity))).collect()
}

/// Adds `more` to `sum`.
pub(crate) fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

/// Subtracts `less` from `sum`.
pub(crate) fn subtract(sum: &mut ResourceList, less: &ResourceList) {
    for (name, amount) in less {
        *sum.entry(name.clone()).or_default() -= amount;
    }
}

/// Raises each amount of `sum` to at least that of `other`.
pub(crate) fn raise(sum: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_counts_as_zero() {
        for text in ["", "Gi", "1.2.3", "abc", "1Zi", "1e99999999999999999999"] {
            assert_eq!(milli(&Quantity(text.to_owned())), 0, "{text}");
        }
        assert_eq!(milli(&Quantity("0.5".to_owned())), 500);
    }
}
