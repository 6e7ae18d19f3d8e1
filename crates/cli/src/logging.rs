//! Logging to stderr, coloured only on a terminal.

use std::backtrace::Backtrace;
use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;

use k8s_openapi::jiff::Timestamp;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// For verbs that end: `RUST_LOG`, else `--verbose`, else no logging. Without either, nothing is set up, which keeps start-up
/// short and an error one line.
pub(crate) fn start(verbose: bool) {
    match wish() {
        Some(wish) => install(&wish, &Log::default()),
        None if verbose => {
            install("firesteel=debug,firesteel_spark=debug,kube_client=info,object_store=info,warn", &Log::default());
        }
        None => {}
    }
}

/// For long-running verbs: `RUST_LOG`, else `usual`.
pub(crate) fn serve(usual: &'static str, json: bool) {
    serve_as(&Log { usual, json, ..Log::default() });
}

/// The same with all settings. A filter that was asked for wins over `RUST_LOG`.
pub(crate) fn serve_as(log: &Log) {
    let filter = log.filter.clone().or_else(wish);
    install(filter.as_deref().unwrap_or(log.usual), log);
}

/// How to log.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) filter: Option<String>,
    pub(crate) usual: &'static str,
    pub(crate) json: bool,
    pub(crate) clock: Clock,
    /// Lines of this level and above carry a stack trace.
    pub(crate) traces: Option<Level>,
}

fn wish() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|wish| !wish.trim().is_empty())
}

fn install(filter: &str, log: &Log) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_timer(log.clock)
        .with_target(false);
    let (json, from) = (log.json, log.traces);
    // Only the first call takes effect: a verb that has set up logging keeps it.
    let _ = if json {
        builder.json().map_event_format(|inner| Traced { inner, from, json }).try_init()
    } else {
        builder.map_event_format(|inner| Traced { inner, from, json }).try_init()
    };
}

/// The format of timestamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Clock {
    /// RFC 3339 with microseconds.
    #[default]
    Usual,
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// Milliseconds since 1970, with a fraction.
    Millis,
    /// Nanoseconds since 1970.
    Nanos,
    Iso8601,
    Rfc3339,
    Rfc3339Nanos,
}

impl FromStr for Clock {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.to_ascii_lowercase().as_str() {
            "epoch" => Ok(Clock::Epoch),
            "millis" => Ok(Clock::Millis),
            "nano" => Ok(Clock::Nanos),
            "iso8601" => Ok(Clock::Iso8601),
            "rfc3339" => Ok(Clock::Rfc3339),
            "rfc3339nano" => Ok(Clock::Rfc3339Nanos),
            _ => Err(()),
        }
    }
}

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        match self {
            Clock::Usual => SystemTime.format_time(w),
            _ => self.write(w, Timestamp::now()),
        }
    }
}

impl Clock {
    fn write(self, w: &mut impl fmt::Write, now: Timestamp) -> fmt::Result {
        match self {
            Clock::Usual => write!(w, "{now}"),
            Clock::Epoch => write!(w, "{}.{:09}", now.as_second(), now.subsec_nanosecond()),
            Clock::Millis => write!(w, "{}.{:06}", now.as_millisecond(), now.subsec_nanosecond() % 1_000_000),
            Clock::Nanos => write!(w, "{}", now.as_nanosecond()),
            Clock::Iso8601 => write!(w, "{}", now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ")),
            Clock::Rfc3339 => write!(w, "{}", now.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Clock::Rfc3339Nanos => write!(w, "{}", now.strftime("%Y-%m-%dT%H:%M:%S.%9fZ")),
        }
    }
}

/// A format that adds a stack trace to lines from a level on.
struct Traced<F> {
    inner: F,
    from: Option<Level>,
    json: bool,
}

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if self.from.is_none_or(|from| *event.metadata().level() > from) {
            return self.inner.format_event(ctx, writer, event);
        }
        let trace = Backtrace::force_capture().to_string();
        if !self.json {
            self.inner.format_event(ctx, writer.by_ref(), event)?;
            return writeln!(writer, "{}", trace.trim_end());
        }
        let mut line = String::new();
        self.inner.format_event(ctx, Writer::new(&mut line), event)?;
        writeln!(writer, "{}", with_trace(&line, &trace))
    }
}

/// A JSON object with a stack trace in addition.
fn with_trace(line: &str, trace: &str) -> String {
    let line = line.trim_end();
    match (line.strip_suffix('}'), serde_json::to_string(trace)) {
        (Some(open), Ok(trace)) => format!("{open},\"stacktrace\":{trace}}}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_as_zap_writes_them() {
        let now: Timestamp = "2026-11-18T12:00:00.123456789Z".parse().unwrap();
        let written = |text: &str| {
            let mut out = String::new();
            text.parse::<Clock>().unwrap().write(&mut out, now).unwrap();
            out
        };
        assert_eq!(written("epoch"), "1795003200.123456789");
        assert_eq!(written("millis"), "1795003200123.456789");
        assert_eq!(written("nano"), "1795003200123456789");
        assert_eq!(written("iso8601"), "2026-11-18T12:00:00.123Z");
        assert_eq!(written("rfc3339"), "2026-11-18T12:00:00Z");
        assert_eq!(written("RFC3339Nano"), "2026-11-18T12:00:00.123456789Z");
    }

    #[test]
    fn a_stack_trace_is_a_field_of_a_json_line() {
        let line: serde_json::Value = serde_json::from_str(&with_trace(
            "{\"level\":\"ERROR\",\"fields\":{\"message\":\"m\"}}\n",
            "0: \"main\"\n1: x",
        ))
        .unwrap();
        assert_eq!((line["level"].as_str(), line["stacktrace"].as_str()), (Some("ERROR"), Some("0: \"main\"\n1: x")));
    }
}
