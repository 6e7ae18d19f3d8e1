//! Typed values: one parser for each kind of value a Spark setting can have.
//!
//! The rules are Spark's (`JavaUtils`, `ConfigBuilder`) or Kubernetes' (`resource.Quantity`), so that a value means the
//! same here as there. Errors are clauses that can follow a key: "`1x` is not a size; write 512m or 2g".

mod size;
mod substitution;
mod time;

pub use firesteel_quantity::{Quantity, QuantityError};
pub use size::{ByteUnit, SizeError, check_suffix, memory_mib, size, size_bytes};
pub use substitution::substitute;
pub use time::{TimeError, TimeUnit, time};

/// Why a text is not a simple value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScalarError {
    #[error("`{0}` is neither `true` nor `false`")]
    Boolean(String),
    #[error("`{0}` is not a whole number that fits 32 bits; write digits such as 4")]
    Int(String),
    #[error("`{0}` is not a whole number that fits 64 bits; write digits such as 1000")]
    Long(String),
    #[error("`{0}` is not a number; write one such as 0.1")]
    Double(String),
}

/// A boolean setting: `true` or `false` in any case, blanks around it allowed.
pub fn boolean(text: &str) -> Result<bool, ScalarError> {
    let t = java_trim(text);
    if t.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if t.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(ScalarError::Boolean(text.to_owned()))
    }
}

/// An `Int` setting.
pub fn int(text: &str) -> Result<i32, ScalarError> {
    java_trim(text).parse().map_err(|_| ScalarError::Int(text.to_owned()))
}

/// A `Long` setting.
pub fn long(text: &str) -> Result<i64, ScalarError> {
    java_trim(text).parse().map_err(|_| ScalarError::Long(text.to_owned()))
}

/// A `Double` setting, in the decimal notation of Java: `1`, `0.1`, `1e-3`, `.5d`, `NaN`, `-Infinity`.
pub fn double(text: &str) -> Result<f64, ScalarError> {
    let error = || ScalarError::Double(text.to_owned());
    let t = java_trim(text);
    let unsigned = t.strip_prefix(['+', '-']).unwrap_or(t);
    let sign = if t.starts_with('-') { -1.0 } else { 1.0 };
    match unsigned {
        "NaN" => return Ok(f64::NAN),
        "Infinity" => return Ok(sign * f64::INFINITY),
        _ => {}
    }
    let digits = unsigned.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(unsigned);
    // Rust would also read "inf" and "nan" here, which Java does not.
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(error());
    }
    digits.parse::<f64>().map(|v| sign * v).map_err(|_| error())
}

/// A comma-separated list: blanks around entries and empty entries are dropped.
pub fn list(text: &str) -> Vec<&str> {
    text.split(',').map(java_trim).filter(|s| !s.is_empty()).collect()
}

/// Java's `String.trim`: everything up to U+0020 goes, other white space stays.
pub fn java_trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn booleans_are_true_or_false_in_any_case() {
        assert_eq!(boolean(" TRUE "), Ok(true));
        assert_eq!(boolean("false"), Ok(false));
        for bad in ["", "1", "yes", "t rue"] {
            assert!(boolean(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ints_fit_32_bits() {
        assert_eq!(int(" 7 "), Ok(7));
        assert_eq!(int("+7"), Ok(7));
        assert_eq!(int("-2147483648"), Ok(i32::MIN));
        for bad in ["", "2147483648", "1.0", "0x10", "abc", "1 0"] {
            assert!(int(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn doubles_are_read_as_java_reads_them() {
        assert_eq!(double("0.1"), Ok(0.1));
        assert_eq!(double(" 1e-3 "), Ok(0.001));
        assert_eq!(double(".5d"), Ok(0.5));
        assert_eq!(double("-2F"), Ok(-2.0));
        assert_eq!(double("-Infinity"), Ok(f64::NEG_INFINITY));
        for bad in ["", "inf", "nan", "1,5", "ten", ".", "d", "+-1"] {
            assert!(double(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_empty_entries() {
        assert_eq!(list(" a, b,,c ,"), ["a", "b", "c"]);
        assert!(list(" , ").is_empty());
    }

    proptest! {
        #[test]
        fn scalars_never_panic(text in ".*") {
            let _ = (boolean(&text), int(&text), long(&text), double(&text), list(&text));
        }

        #[test]
        fn numbers_read_back_what_was_printed(i: i32, l: i64, d in proptest::num::f64::NORMAL) {
            prop_assert_eq!(int(&i.to_string()), Ok(i));
            prop_assert_eq!(long(&l.to_string()), Ok(l));
            prop_assert_eq!(double(&format!("{d:e}")), Ok(d));
        }
    }
}
