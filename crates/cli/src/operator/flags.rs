//! Flag values in the existing operator's formats, and its flags that have no effect here.

use std::str::FromStr;

use firesteel_operator::Listen;

/// A duration in Go's format: `15s`, `1m30s`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duration(pub(crate) std::time::Duration);

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not a duration; write 15s, 2m or 1h30m");
        if text == "0" {
            return Ok(Duration(std::time::Duration::ZERO));
        }
        let mut total = 0.0;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
            let number: f64 = rest[..digits].parse().map_err(|_| refuse())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let unit = match &rest[..letters] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(refuse()),
            };
            total += number * unit;
            rest = &rest[letters..];
        }
        if text.is_empty() {
            Err(refuse())
        } else {
            std::time::Duration::try_from_secs_f64(total).map(Duration).map_err(|_| refuse())
        }
    }
}

/// An address to listen on, or `0` for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind(pub(crate) Option<Listen>);

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text == "0" {
            return Ok(Bind(None));
        }
        text.parse().map(|listen| Bind(Some(listen))).map_err(|refused: String| format!("{refused}, or 0 for none"))
    }
}

/// `--flag`, `--flag=true` or `--flag=false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Toggle(pub(crate) bool);

impl FromStr for Toggle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => Ok(Toggle(true)),
            "false" | "f" | "0" => Ok(Toggle(false)),
            _ => Err(format!("`{text}` is neither true nor false")),
        }
    }
}

macro_rules! retired {
    ($($field:ident = $flag:literal: $instead:literal;)+) => {
        /// Flags of the existing operator that have no effect here.
        #[derive(Debug, Default, clap::Args)]
        pub(crate) struct Retired {
            $(
                #[arg(long = $flag, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "VALUE")]
                $field: Option<String>,
            )+
        }

        /// Each flag with its replacement.
        #[cfg(test)]
        pub(crate) const RETIRED: &[(&str, &str)] = &[$(($flag, $instead)),+];

        impl Retired {
            /// One line for each flag given.
            pub(crate) fn lines(&self) -> Vec<String> {
                let mut lines = Vec::new();
                $(
                    if self.$field.is_some() {
                        lines.push(format!("--{} has no effect: {}", $flag, $instead));
                    }
                )+
                lines
            }
        }
    };
}

retired! {
    mutating = "mutating-webhook-name": "there is no mutating webhook; pods are complete when they are created";
    filter = "label-selector-filter": "the webhook asks about whole namespaces; use --namespaces or --namespace-selector";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let millis = |text: &str| text.parse::<Duration>().map(|d| d.0.as_millis());
        assert_eq!(millis("15s"), Ok(15_000));
        assert_eq!(millis("1h30m"), Ok(5_400_000));
        assert_eq!(millis("1.5s250ms"), Ok(1750));
        assert_eq!(millis("0"), Ok(0));
        for bad in ["", "5", "s", "5 s", "1d"] {
            assert!(millis(bad).is_err(), "{bad}");
        }
    }
}
