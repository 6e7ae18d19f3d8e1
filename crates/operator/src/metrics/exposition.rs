//! The two formats in which metrics are served: Prometheus' text format, and OpenMetrics for clients that ask for it.
//!
//! OpenMetrics demands that counters end in `_total`. The existing operator's do not, and a name must not depend on the
//! format, so there they have the type `unknown`.

use std::fmt::Write;

use super::families::{Family, Kind};

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    OpenMetrics,
}

impl Format {
    /// The format that a client asks for, by its `Accept` header. Of several, the one with the higher quality wins.
    pub fn accepted(accept: &str) -> Self {
        let mut best = (Format::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next().unwrap_or_default() {
                "application/openmetrics-text" => Format::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Format::Text,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f64);
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The value of one series.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Series {
    Number(f64),
    Summary { sum: f64, count: u64 },
    Histogram { buckets: Vec<f64>, counts: Vec<u64>, sum: f64, count: u64 },
}

/// Writes the lines before a metric's series.
pub(super) fn head(out: &mut String, format: Format, prefix: &str, family: &Family) {
    let (kind, name) = match (format, family.kind) {
        (Format::OpenMetrics, Kind::Counter) => match family.name.strip_suffix("_total") {
            Some(base) => ("counter", base),
            None => ("unknown", family.name),
        },
        (_, kind) => (kind.word(), family.name),
    };
    let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(out, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
}

/// Writes one series.
pub(super) fn series(out: &mut String, prefix: &str, family: &Family, labels: &str, series: &Series) {
    let name = format!("{prefix}{}", family.name);
    let braces = |more: &str| match (labels.is_empty(), more.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{{{labels}}}"),
        (true, false) => format!("{{{more}}}"),
        (false, false) => format!("{{{labels},{more}}}"),
    };
    let _ = match series {
        Series::Number(value) => writeln!(out, "{name}{} {value}", braces("")),
        Series::Summary { sum, count } => {
            writeln!(out, "{name}_sum{} {sum}\n{name}_count{} {count}", braces(""), braces(""))
        }
        Series::Histogram { buckets, counts, sum, count } => {
            for (bound, count) in buckets.iter().zip(counts) {
                let _ = writeln!(out, "{name}_bucket{} {count}", braces(&format!("le=\"{bound}\"")));
            }
            let _ = writeln!(out, "{name}_bucket{} {count}", braces("le=\"+Inf\""));
            writeln!(out, "{name}_sum{} {sum}\n{name}_count{} {count}", braces(""), braces(""))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.5", Format::Text),
            ("application/json", Format::Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
