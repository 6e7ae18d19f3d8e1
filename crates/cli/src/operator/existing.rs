//! Every flag of the existing operator's controller: it works here, or it is refused with a sentence that says what to use
//! instead. None is ignored. Its default value is always accepted, so that its argument lists run unchanged.
//!
//! `FLAGS` is the source of the page in `docs/reference`, and tests hold it against the flags of that operator's binary.

use crate::exit::BadInput;
use crate::operator::flags::{Duration, Toggle};

/// Which values of a flag ask for nothing that does not exist here.
#[derive(Debug, Clone, Copy)]
enum Nothing {
    False,
    Text(&'static str),
    /// A duration, however it is written.
    Lasting(&'static str),
}

impl Nothing {
    fn is(self, value: &str) -> bool {
        match self {
            Nothing::False => matches!(value.parse(), Ok(Toggle(false))),
            Nothing::Text(nothing) => value.is_empty() || value == nothing,
            Nothing::Lasting(nothing) => {
                matches!((value.parse::<Duration>(), nothing.parse::<Duration>()), (Ok(value), Ok(nothing)) if value == nothing)
            }
        }
    }
}

macro_rules! refused {
    ($($field:ident = $flag:literal, $nothing:expr, $instead:expr;)+) => {
        /// Flags for what does not exist here.
        #[derive(Debug, Default, clap::Args)]
        pub(crate) struct Refused {
            $(
                #[arg(long = $flag, hide = true, num_args = 0..=1, default_missing_value = "true", value_name = "VALUE")]
                $field: Option<String>,
            )+
        }

        impl Refused {
            /// Refuses the first flag whose value asks for something.
            pub(crate) fn check(&self) -> Result<(), BadInput> {
                $(
                    if let Some(value) = self.$field.as_deref().filter(|value| !$nothing.is(value)) {
                        return Err(BadInput(format!("--{}={value}: {}", $flag, $instead)));
                    }
                )+
                Ok(())
            }
        }
    };
}

const NO_PROFILER: &str =
    "there is no Go profiler to serve; remove it, watch --metrics-bind-address, and profile the process with perf";
const NO_SUBMITTER: &str = "the operator creates drivers itself and calls no submission service; remove it";

refused! {
    pprof = "pprof-bind-address", Nothing::Text("0"), NO_PROFILER;
    submitter_url = "submitter-service-url", Nothing::Text(""), NO_SUBMITTER;
    submitter_startup = "submitter-startup-timeout", Nothing::Lasting("5m"), NO_SUBMITTER;
    submitter_request = "submitter-request-timeout", Nothing::Lasting("2m"), NO_SUBMITTER;
    submitter_retries = "submitter-max-retries", Nothing::Text("3"), NO_SUBMITTER;
    submitter_backoff = "submitter-initial-backoff", Nothing::Lasting("2s"), NO_SUBMITTER;
    submitter_tls = "submitter-tls-enabled", Nothing::False, NO_SUBMITTER;
    submitter_cert = "submitter-tls-cert-file", Nothing::Text(""), NO_SUBMITTER;
    submitter_key = "submitter-tls-key-file", Nothing::Text(""), NO_SUBMITTER;
    submitter_ca = "submitter-tls-ca-file", Nothing::Text(""), NO_SUBMITTER;
}

/// One flag of the existing operator, and what happens with it here.
#[cfg(test)]
pub(crate) struct Existing {
    pub(crate) flag: &'static str,
    pub(crate) here: &'static str,
    /// Arguments that are accepted, each alone.
    works: &'static [&'static str],
    /// Arguments that are refused, each alone.
    refused: &'static [&'static str],
}

#[cfg(test)]
const fn row(
    flag: &'static str,
    here: &'static str,
    works: &'static [&'static str],
    refused: &'static [&'static str],
) -> Existing {
    Existing { flag, here, works, refused }
}

#[cfg(test)]
const WORKS: &str = "works";
#[cfg(test)]
const SUBMITTER: &str =
    "accepted at its default; anything else is refused: the operator creates drivers itself, so remove it";

/// Every flag of its controller, except those for metrics.
#[cfg(test)]
#[rustfmt::skip]
pub(crate) const FLAGS: &[Existing] = &[
    row("cache-sync-timeout", "the operator ends with exit code 1 if its caches are not filled within this time; 0 means two minutes; without the flag it keeps trying, and /readyz tells", &["30s", "0"], &["soon", ""]),
    row("controller-threads", WORKS, &["10"], &["many"]),
    row("default-batch-scheduler", "applications without `spec.batchScheduler` end in FAILED with a sentence that names this flag; needs `--enable-batch-scheduler` and a known name", &["volcano --enable-batch-scheduler", "mine --kube-scheduler-names=mine --enable-batch-scheduler", ""], &["volcano", "mine --enable-batch-scheduler"]),
    row("default-time-to-live-seconds", WORKS, &["60", "60 --feature-gates=DefaultTimeToLive=true"], &["x", "60 --feature-gates=DefaultTimeToLive=false"]),
    row("driver-pod-creation-grace-period", WORKS, &["1m30s"], &["soon"]),
    row("enable-batch-scheduler", "accepted; pod groups and queues are not created yet, so an application with `spec.batchScheduler` ends in FAILED with a sentence that says what to use instead, with and without this flag", &["true", "false"], &["maybe"]),
    row("enable-driver-pdb", "works; on by default here: `spec.driverPodDisruptionBudget` asks for a budget", &["true", "false"], &["maybe"]),
    row("enable-http2", "works for metrics that are served over TLS (`--secure-metrics`)", &["false", "true --secure-metrics --metrics-bind-address=:8080"], &["maybe"]),
    row("enable-ui-service", WORKS, &["true", "false"], &["maybe"]),
    row("feature-gates", "`PartialRestart` and `DefaultTimeToLive` work; `LoadSparkDefaults`, `RestSubmitter` and `AllAlpha` are refused if true; `AllBeta` names no gate; unknown gates are refused", &["PartialRestart=true", "LoadSparkDefaults=false,RestSubmitter=false", "AllBeta=true", ""], &["LoadSparkDefaults=true", "RestSubmitter=true", "AllAlpha=true", "Magic=true"]),
    row("health-probe-bind-address", WORKS, &[":8081", "0"], &["nowhere"]),
    row("ingress-annotations", WORKS, &["{\"a\":\"b\"}", ""], &["{"]),
    row("ingress-class-name", WORKS, &["nginx", ""], &[]),
    row("ingress-tls", WORKS, &["[{\"hosts\":[\"h\"],\"secretName\":\"s\"}]", ""], &["{"]),
    row("ingress-url-format", WORKS, &["{{$appName}}.example", ""], &[]),
    row("kube-api-burst", "with `--kube-api-qps`: requests that may be sent at once (30 if not given; 0 means 10)", &["30", "0"], &["-1", "x"]),
    row("kube-api-qps", "limits requests to the API server, except for leases, in addition to the limit that adapts to it; 0 means 5, a negative number means no limit; without both flags there is no fixed limit", &["20", "0.5", "0", "-1"], &["fast"]),
    row("kube-scheduler-names", "names of schedulers that `spec.batchScheduler` and `--default-batch-scheduler` may name; needs `--enable-batch-scheduler`", &["a,b --enable-batch-scheduler", ""], &["a"]),
    row("kubeconfig", WORKS, &["/k"], &[]),
    row("leader-election", WORKS, &["true", "false"], &["maybe"]),
    row("leader-election-lease-duration", WORKS, &["15s"], &["soon"]),
    row("leader-election-lock-name", WORKS, &["l"], &[]),
    row("leader-election-lock-namespace", WORKS, &["n"], &[]),
    row("leader-election-renew-deadline", WORKS, &["10s"], &["soon"]),
    row("leader-election-retry-period", WORKS, &["2s"], &["soon"]),
    row("max-tracked-executor-per-app", WORKS, &["1000"], &["x"]),
    row("namespace-selector", WORKS, &["a=b", ""], &[]),
    row("namespaces", WORKS, &["a,b", "\"\"", ""], &["a,"]),
    row("pprof-bind-address", "`0` is accepted; an address is refused: there is no Go profiler, so remove it, watch `--metrics-bind-address`, and profile the process with perf", &["0", ""], &[":6060"]),
    row("scheduled-spark-application-timestamp-precision", WORKS, &["minutes"], &["hours"]),
    row("submitter-initial-backoff", SUBMITTER, &["2s"], &["5s"]),
    row("submitter-max-retries", SUBMITTER, &["3"], &["5"]),
    row("submitter-request-timeout", SUBMITTER, &["2m", "120s"], &["5m"]),
    row("submitter-service-url", SUBMITTER, &[""], &["http://submitter"]),
    row("submitter-startup-timeout", SUBMITTER, &["5m0s"], &["1s"]),
    row("submitter-tls-ca-file", SUBMITTER, &[""], &["/f"]),
    row("submitter-tls-cert-file", SUBMITTER, &[""], &["/f"]),
    row("submitter-tls-enabled", SUBMITTER, &["false"], &["true"]),
    row("submitter-tls-key-file", SUBMITTER, &[""], &["/f"]),
    row("workqueue-ratelimiter-bucket-qps", "reconciliations started per second, of applications, schedules and Connect servers together; without these flags there is no such limit", &["50"], &["0", "x"]),
    row("workqueue-ratelimiter-bucket-size", "reconciliations that may start at once, with the rate above (10 per second if not given)", &["500"], &["0", "x"]),
    row("workqueue-ratelimiter-max-delay", "the longest delay of a reconciliation: for its turn in that rate, and after failures, where it is 30 s at most", &["6h", "2562047h47m16.854775807s"], &["long"]),
    row("zap-devel", "`true`: console format and level debug; `false`: JSON and level info; the other `zap` flags come first", &["true", "false"], &["maybe"]),
    row("zap-encoder", "`json` or `console`", &["json", "console"], &["xml", "console --log-json"]),
    row("zap-log-level", "works, and comes before `RUST_LOG`: debug (1), info, error, panic (as error), numbers from 2 on for everything", &["debug", "info", "error", "3"], &["loud", "0"]),
    row("zap-stacktrace-level", "log lines from this level on carry a stack trace: info, error, or panic for none; none without the flag", &["error", "panic"], &["debug"]),
    row("zap-time-encoding", "epoch, millis, nano, iso8601, rfc3339, rfc3339nano; RFC 3339 with microseconds without the flag", &["epoch", "iso8601", "rfc3339nano"], &["stardate"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::operator::tests::Only;
    use crate::operator::{flags, settings};
    use clap::Parser;

    const LIST: &str = include_str!("existing-flags.tsv");

    /// Flag and default of each flag of the existing operator.
    fn listed() -> BTreeMap<&'static str, &'static str> {
        let rows = LIST.lines().filter(|line| !line.starts_with('#'));
        rows.filter_map(|line| line.split_once('\t'))
            .map(|(flag, rest)| (flag, rest.split('\t').next().unwrap()))
            .collect()
    }

    /// What the operator would do with one flag, whose value may be followed by other flags.
    fn start(flag: &str, value: &str) -> Result<Vec<String>, String> {
        let mut line = vec!["operator".to_owned()];
        let (value, others) = value.split_once(" --").map_or((value, None), |(value, others)| (value, Some(others)));
        line.push(format!("--{flag}={value}"));
        line.extend(others.into_iter().flat_map(|others| others.split(" --")).map(|other| format!("--{other}")));
        let args = Only::try_parse_from(line).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })?;
        match settings(&args.args) {
            Ok(_) => Ok(args.args.retired.lines()),
            Err(error) => {
                assert!(error.is::<BadInput>(), "exit code 2: {error}");
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn every_flag_of_the_existing_operator_works_or_is_refused() {
        for Existing { flag, works, refused, .. } in FLAGS {
            for value in *works {
                assert_eq!(start(flag, value), Ok(vec![]), "--{flag}={value} is accepted silently");
            }
            for value in *refused {
                let said = start(flag, value).unwrap_err();
                assert!(said.contains(&format!("--{flag}")), "--{flag}={value}: {said}");
                assert_eq!(
                    said.trim().lines().next().map(|line| line.contains("has no effect")),
                    Some(false),
                    "{said}"
                );
            }
        }
    }

    /// Flags for metrics and their server.
    fn is_for_metrics(flag: &str) -> bool {
        flag.starts_with("metric") || matches!(flag, "enable-metrics" | "secure-metrics")
    }

    #[test]
    fn the_table_has_every_flag_of_the_existing_operator() {
        let listed = listed();
        assert!(listed.len() > 50, "{listed:?}");
        let known: Vec<&str> = FLAGS.iter().map(|row| row.flag).collect();
        let wanted: Vec<&str> = listed.keys().copied().filter(|flag| !is_for_metrics(flag)).collect();
        assert_eq!(known, wanted);
        // Flags for metrics are described with the others of this operator.
        let command = <Only as clap::CommandFactory>::command();
        for flag in listed.keys() {
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(flag)), "--{flag}");
        }
    }

    #[test]
    fn defaults_of_the_existing_operator_are_accepted_silently() {
        for (flag, default) in listed() {
            // Without a value, these flags are not given at all.
            if default.is_empty() && flag.starts_with("zap-") || flag == "kubeconfig" || is_for_metrics(flag) {
                continue;
            }
            assert_eq!(start(flag, default), Ok(vec![]), "--{flag}={default}");
        }
    }

    #[test]
    fn the_list_is_what_the_existing_operators_binary_says() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testenv/kubeflow-flags");
        let printed = std::process::Command::new("python3").args([script, "--built"]).output().unwrap();
        // Not built on this machine.
        if printed.status.code() == Some(77) {
            return;
        }
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        assert_eq!(String::from_utf8_lossy(&printed.stdout), LIST, "run testenv/kubeflow-flags again");
    }

    #[test]
    fn a_refusal_is_one_sentence_that_says_what_to_do() {
        let said = start("pprof-bind-address", ":6060").unwrap_err();
        assert_eq!(said, format!("--pprof-bind-address=:6060: {NO_PROFILER}"));
        let said = start("default-batch-scheduler", "volcano").unwrap_err();
        assert_eq!(
            said,
            "--default-batch-scheduler=volcano: batch schedulers are off; add --enable-batch-scheduler, or remove it"
        );
        let without_effect: Vec<&str> = flags::RETIRED.iter().map(|(flag, _)| *flag).collect();
        assert_eq!(
            without_effect,
            ["mutating-webhook-name", "label-selector-filter"],
            "of its webhook, not its controller"
        );
    }
}
