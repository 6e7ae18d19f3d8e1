//! Resource quantities (`500m`, `1Gi`, `2e3`), with the real API server's error messages.

use firesteel_quantity::Fault;
pub(crate) use firesteel_quantity::Quantity;

pub(crate) const SYNTAX_COMPLAINT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_COMPLAINT: &str = "unable to parse quantity's suffix";
const NUMBER_COMPLAINT: &str = "unable to parse numeric part of quantity";

/// Whitespace around a quantity is ignored, as in the real API server's JSON.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    text.trim().parse::<Quantity>().map_err(|error| match error.fault {
        Fault::Syntax => SYNTAX_COMPLAINT,
        Fault::Number => NUMBER_COMPLAINT,
        Fault::Suffix => SUFFIX_COMPLAINT,
    })
}
