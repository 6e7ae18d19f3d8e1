//! Resource quantities (`500m`, `1Gi`, `2e3`), with the complaints of a real API server.

use firesteel_quantity::Fault;
pub(crate) use firesteel_quantity::Quantity;

pub(crate) const SYNTAX_COMPLAINT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_COMPLAINT: &str = "unable to parse quantity's suffix";
const NUMBER_COMPLAINT: &str = "unable to parse numeric part of quantity";

/// Blanks around a quantity are nothing, as in a real API server's JSON.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    text.trim().parse::<Quantity>().map_err(|error| match error.fault {
        Fault::Syntax => SYNTAX_COMPLAINT,
        Fault::Number => NUMBER_COMPLAINT,
        Fault::Suffix => SUFFIX_COMPLAINT,
    })
}
