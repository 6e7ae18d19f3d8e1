//! The existing operator's flags for its log (`--zap-…`), as settings of ours.

use crate::exit::BadInput;
use crate::logging::{Clock, Log};
use crate::operator::flags::Toggle;

/// What is logged by default. The client libraries report what the operator reports itself.
const USUAL: &str = "info,kube_client=warn,kube_runtime=error";
/// More, without what the network libraries say about every frame.
const DEBUG: &str = "debug,hyper=info,hyper_util=info,h2=info,rustls=info,tower=info";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Zap {
    /// Log level: debug, info, error, panic, or a number: 1 is debug, more is everything
    #[arg(long, value_name = "LEVEL", hide = true)]
    zap_log_level: Option<String>,
    /// Log format: json or console
    #[arg(long, value_name = "FORMAT", hide = true)]
    zap_encoder: Option<String>,
    /// true: console and debug; false: json and info, unless set otherwise
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<Toggle>,
    /// Log a stack trace with lines of this level and above: info, error or panic
    #[arg(long, value_name = "LEVEL", hide = true)]
    zap_stacktrace_level: Option<String>,
    /// Format of timestamps: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano
    #[arg(long, value_name = "FORMAT", hide = true)]
    zap_time_encoding: Option<String>,
}

impl Zap {
    /// The settings of the log; `json` is our own flag.
    pub(crate) fn log(&self, json: bool) -> Result<Log, BadInput> {
        let devel = self.zap_devel.map(|devel| devel.0);
        let refuse = |flag: &str, value: &str, instead: &str| BadInput(format!("--{flag}={value}: write {instead}"));
        let level = self.zap_log_level.as_deref().map(|level| {
            match (level.to_ascii_lowercase().as_str(), level.parse::<u8>()) {
                ("debug", _) | (_, Ok(1)) => Ok(DEBUG),
                ("info", _) => Ok(USUAL),
                ("error" | "panic", _) => Ok("error"),
                (_, Ok(2..)) => Ok("trace"),
                _ => Err(refuse("zap-log-level", level, "debug, info, error, panic or a number above 0")),
            }
        });
        let encoder = match self.zap_encoder.as_deref() {
            None => None,
            Some("json") => Some(true),
            Some("console") if json => {
                return Err(BadInput("--zap-encoder=console contradicts --log-json; remove one of them".to_owned()));
            }
            Some("console") => Some(false),
            Some(other) => return Err(refuse("zap-encoder", other, "json or console")),
        };
        let traces = match self.zap_stacktrace_level.as_deref() {
            // Errors that end the process are reported by themselves, with or without a trace.
            None | Some("panic") => None,
            Some("error") => Some(tracing::Level::ERROR),
            Some("info") => Some(tracing::Level::INFO),
            Some(other) => return Err(refuse("zap-stacktrace-level", other, "info, error or panic")),
        };
        let clock = match self.zap_time_encoding.as_deref() {
            None => Clock::Usual,
            Some(text) => text.parse().map_err(|()| {
                refuse("zap-time-encoding", text, "epoch, millis, nano, iso8601, rfc3339 or rfc3339nano")
            })?,
        };
        let level = level.transpose()?.or(devel.filter(|devel| *devel).map(|_| DEBUG));
        Ok(Log {
            filter: level.map(str::to_owned),
            usual: USUAL,
            json: json || encoder.unwrap_or(devel == Some(false)),
            clock,
            traces,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        zap: Zap,
    }

    fn log(line: &str, json: bool) -> Result<Log, String> {
        let only = Only::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        only.zap.log(json).map_err(|BadInput(said)| said)
    }

    #[test]
    fn levels_and_formats_are_those_of_zap() {
        let usual = log("x", false).unwrap();
        assert_eq!((usual.filter, usual.json, usual.traces), (None, false, None), "RUST_LOG decides");
        let level = |value: &str| log(&format!("x --zap-log-level={value}"), false).unwrap().filter.unwrap();
        assert_eq!((level("info").as_str(), level("error").as_str(), level("5").as_str()), (USUAL, "error", "trace"));
        assert_eq!((level("debug"), level("1")), (DEBUG.to_owned(), DEBUG.to_owned()));
        assert!(
            log("x --zap-encoder=json", false).unwrap().json && !log("x --zap-encoder=console", false).unwrap().json
        );
        let devel = log("x --zap-devel", false).unwrap();
        assert_eq!((devel.filter.as_deref(), devel.json), (Some(DEBUG), false));
        assert!(log("x --zap-devel=false", false).unwrap().json);
        assert!(!log("x --zap-devel=false --zap-encoder=console", false).unwrap().json);
        assert_eq!(log("x --zap-stacktrace-level=error", false).unwrap().traces, Some(tracing::Level::ERROR));
        assert_eq!(log("x --zap-time-encoding=millis", false).unwrap().clock, Clock::Millis);
    }

    #[test]
    fn values_that_zap_refuses_are_refused() {
        for bad in [
            "--zap-log-level=0",
            "--zap-log-level=loud",
            "--zap-encoder=xml",
            "--zap-stacktrace-level=debug",
            "--zap-time-encoding=stardate",
        ] {
            let said = log(&format!("x {bad}"), false).unwrap_err();
            assert!(said.starts_with(bad), "{said}");
        }
        assert!(log("x --zap-encoder=console", true).unwrap_err().contains("--log-json"));
    }
}
