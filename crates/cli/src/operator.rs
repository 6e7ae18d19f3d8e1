//! `firesteel operator`: runs the controllers.
//!
//! Flags of the existing operator keep their names and meaning, or are refused; see [`existing`].

pub(crate) mod existing;
pub(crate) mod flags;
mod gates;
mod webhook;
mod zap;

use std::path::PathBuf;

use anyhow::Context as _;
use firesteel_api::http_route::ParentRef;
use firesteel_api::validate;
use firesteel_cluster::requests::RequestCounts;
use firesteel_cluster::token_bucket::Rate;
use firesteel_core::allocation::size::Amount;
use firesteel_core::batch_scheduler::{self, BatchSchedulers};
use firesteel_core::lifecycle::Limits;
use firesteel_core::run::RunSettings;
use firesteel_core::schedule::Precision;
use firesteel_core::ui::UiSettings;
use firesteel_operator::{
    Certificate, ExecutorOptions, LabelNames, LeaderOptions, MetricsOptions, MetricsTls, Options, ReconcileOptions,
    ServeMetrics, TlsVersion,
};
use firesteel_spark::value::Quantity;
use k8s_openapi::jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::logging::Log;
use crate::operator::existing::Refused;
use crate::operator::flags::{Bind, Duration, Retired, Toggle};
use crate::operator::gates::Gates;
use crate::operator::webhook::WebhookArgs;
use crate::operator::zap::Zap;

/// What `--cache-sync-timeout=0` means.
const DEFAULT_CACHE_SYNC: std::time::Duration = std::time::Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Comma-separated namespaces to watch; all, if neither this nor --namespace-selector is given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Also watch namespaces whose labels match, such as spark=enabled,env in (prod,staging)
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    namespace_selector: String,
    /// Applications reconciled concurrently
    #[arg(long, value_name = "N", default_value_t = 10)]
    controller_threads: u16,
    /// Maximum rows in status.executorState; counts stay exact beyond it
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_tracked_executor_per_app: usize,
    /// Delete applications without timeToLiveSeconds this long after they end; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    default_time_to_live_seconds: i64,
    /// How long a driver pod may be missing before the driver counts as gone
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    driver_pod_creation_grace_period: Duration,
    /// Give up on a driver that is still pending after this time; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    driver_pending_timeout: Duration,
    /// Force-delete a driver that has been terminating for this long on an unreachable node; 0 for never, because in a
    /// network partition the driver may still be running
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    driver_unreachable_timeout: Duration,
    /// Maximum executors created per second, across all applications with executors outside the driver
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().per_second, value_parser = clap::value_parser!(u32).range(1..))]
    executors_per_second: u32,
    /// Maximum pending executors, across all applications with executors outside the driver
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().most_pending, value_parser = at_least_one)]
    max_pending_executors: usize,
    /// Read the log of a failed driver and put the cause into its status; with false, no log is read
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_driver_log: Toggle,
    /// Maximum executors per application
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().per_application.executors, value_parser = whole)]
    max_executors_per_application: u64,
    /// Maximum executor cores per application
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().per_application.cores, value_parser = whole)]
    max_executor_cores_per_application: u64,
    /// Maximum executor memory per application, such as 500Gi
    #[arg(long, value_name = "QUANTITY", default_value = "80Ti", value_parser = memory)]
    max_executor_memory_per_application: u64,
    /// Maximum executors per namespace
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().per_namespace.executors, value_parser = whole)]
    max_executors_per_namespace: u64,
    /// Maximum executor cores per namespace
    #[arg(long, value_name = "N", default_value_t = ExecutorOptions::default().per_namespace.cores, value_parser = whole)]
    max_executor_cores_per_namespace: u64,
    /// Maximum executor memory per namespace, such as 10Ti
    #[arg(long, value_name = "QUANTITY", default_value = "320Ti", value_parser = memory)]
    max_executor_memory_per_namespace: u64,
    /// Create the first executors together with their driver, for applications with executors outside the driver
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    early_executors: Toggle,
    /// Serve all drivers that share a service account, even if no admission policy keeps them apart
    #[arg(long)]
    drivers_trust_each_other: bool,
    /// API server address for drivers
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    driver_master: String,
    /// Create a Service for each driver's web UI
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_ui_service: Toggle,
    /// Create the PodDisruptionBudgets that applications ask for
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_driver_pdb: Toggle,
    /// URL of each driver's web UI, for an Ingress or HTTPRoute; {{$appName}}, {{$appNamespace}} and {{$appId}} are filled in
    #[arg(long, value_name = "FORMAT", default_value = "", hide_default_value = true)]
    ingress_url_format: String,
    /// Class of ingresses
    #[arg(long, value_name = "NAME")]
    ingress_class_name: Option<String>,
    /// TLS of ingresses, as JSON
    #[arg(long, value_name = "JSON")]
    ingress_tls: Option<String>,
    /// Annotations of ingresses, as JSON
    #[arg(long, value_name = "JSON")]
    ingress_annotations: Option<String>,
    /// Create HTTPRoutes in place of Ingresses, with these parentRefs, as JSON: [{"name": "web", "namespace": "infra",
    /// "sectionName": "https"}]
    #[arg(long, value_name = "JSON")]
    http_route_parent_refs: Option<String>,

    /// Act only while holding the lease
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_election: Toggle,
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "spark-operator-lock")]
    leader_election_lock_name: String,
    /// Namespace of the lease
    #[arg(long, value_name = "NAMESPACE", default_value = "spark-operator")]
    leader_election_lock_namespace: String,
    /// How long a lease is valid; a dead operator is replaced after this time
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    leader_election_lease_duration: Duration,
    /// How long the leader tries to renew its lease before it stops
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    leader_election_renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    leader_election_retry_period: Duration,

    /// End with an error if the caches are not filled within this time; 0 for two minutes [default: keep trying]
    #[arg(long, value_name = "DURATION")]
    cache_sync_timeout: Option<Duration>,
    /// Reconciliations started per second [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workqueue_ratelimiter_bucket_qps: Option<u32>,
    /// Reconciliations that may start at once, with --workqueue-ratelimiter-bucket-qps [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workqueue_ratelimiter_bucket_size: Option<u32>,
    /// Longest delay of a reconciliation, for its turn or after failures [default: 30s after failures]
    #[arg(long, value_name = "DURATION")]
    workqueue_ratelimiter_max_delay: Option<Duration>,
    /// Requests to the API server per second; a negative number for no limit [default: as many as the API server takes]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    kube_api_qps: Option<f64>,
    /// Requests that may be sent at once, with --kube-api-qps [default: 30]
    #[arg(long, value_name = "N")]
    kube_api_burst: Option<u32>,
    /// Accept --default-batch-scheduler and --kube-scheduler-names. Pod groups and queues are not created yet, so
    /// applications that need a batch scheduler end in FAILED
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_batch_scheduler: Toggle,
    /// Batch scheduler of applications that name none
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    default_batch_scheduler: String,
    /// Comma-separated names of schedulers with the coscheduling plugin
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kube_scheduler_names: Vec<String>,
    /// Comma-separated gates: PartialRestart=true lets edits of where executors run take effect without a restart, for
    /// executors outside the driver
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    feature_gates: Gates,

    /// Unit of the timestamp in the names of a schedule's runs: nanos, micros, millis, seconds or minutes
    #[arg(long, value_name = "UNIT", default_value = "nanos")]
    scheduled_spark_application_timestamp_precision: Precision,

    /// Address of /healthz and /readyz; 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    health_probe_bind_address: Bind,
    /// Address of /metrics; 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    metrics_bind_address: Bind,
    /// Export the metrics of applications and executors; without them, only those of the operator and Firesteel's own are served
    #[arg(long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_metrics: Toggle,
    /// Path of metrics, besides /metrics
    #[arg(long, value_name = "PATH", default_value = "/metrics")]
    metrics_endpoint: String,
    /// Prefix of the names of application and executor metrics, as it stands: team_ makes team_spark_application_count
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    metrics_prefix: String,
    /// Comma-separated labels of applications to label metrics with; `namespace` is the application's namespace
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metrics_labels: Vec<String>,
    /// Maximum combinations of label values in metrics; further ones are counted as `other`
    #[arg(long, value_name = "N", default_value_t = MetricsOptions::default().max_label_sets, value_parser = at_least_one)]
    metrics_max_label_sets: usize,
    /// Buckets of the histogram of submit latencies
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "0.5,1,2,4,8,16,32,64,128,256")]
    metrics_job_submit_latency_buckets: Vec<f64>,
    /// Buckets of the histogram of start latencies
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "30,60,90,120,150,180,210,240,270,300")]
    metrics_job_start_latency_buckets: Vec<f64>,
    /// Serve metrics over TLS
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    secure_metrics: Toggle,
    /// Certificate for metrics, in PEM, read again when it changes; without it, one is made and self-signed at each start
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key_file")]
    metrics_tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate for metrics, in PEM
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert_file")]
    metrics_tls_key_file: Option<PathBuf>,
    /// Lowest TLS version for metrics: 1.2 or 1.3
    #[arg(long, value_name = "VERSION", default_value = "1.2", value_parser = tls_version)]
    metric_tls_min_version: TlsVersion,
    /// Comma-separated cipher suites of TLS 1.2 for metrics; all of rustls, if empty
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metric_tls_cipher_suites: Vec<String>,
    /// Offer HTTP/2 where metrics are served over TLS
    #[arg(long = "enable-http2", value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_http2: Toggle,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,

    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    zap: Zap,
    #[command(flatten)]
    refused: Refused,
    #[command(flatten)]
    retired: Retired,
}

pub(crate) fn main(args: OperatorArgs) -> anyhow::Result<ExitStatus> {
    let Settings { options, log, rate } = settings(&args)?;
    crate::logging::serve_as(&log);
    for line in args.retired.lines().into_iter().chain(args.webhook.lines()) {
        eprintln!("firesteel: {line}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_stack_size(8 << 20).enable_all().build()?;
    runtime.block_on(async {
        let client = client(args.kubeconfig, &options.requests, rate).await?;
        let until = CancellationToken::new();
        tokio::spawn(cancel_on_signal(until.clone()));
        firesteel_operator::run(client, options, until).await
    })?;
    Ok(ExitStatus::Success)
}

async fn client(
    kubeconfig: Option<PathBuf>,
    requests: &RequestCounts,
    rate: Option<Rate>,
) -> anyhow::Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let read = kube::config::Kubeconfig::read_from(&path)
                .with_context(|| format!("--kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await.context("no cluster found: use --kubeconfig FILE")?,
    };
    config.connect_timeout = Some(std::time::Duration::from_secs(10));
    Ok(firesteel_cluster::rate_limit::client_with(config, requests, rate)?)
}

async fn cancel_on_signal(until: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    tracing::info!("shutting down");
    until.cancel();
}

/// Everything that the flags decide.
#[derive(Debug)]
struct Settings {
    options: Options,
    log: Log,
    /// The fixed rate of requests.
    rate: Option<Rate>,
}

fn settings(args: &OperatorArgs) -> anyhow::Result<Settings> {
    args.refused.check()?;
    Ok(Settings { options: options(args)?, log: args.zap.log(args.log_json)?, rate: request_rate(args)? })
}

/// As client-go reads both: 0 means its own default, a negative rate means none.
fn request_rate(args: &OperatorArgs) -> Result<Option<Rate>, BadInput> {
    if args.kube_api_qps.is_none() && args.kube_api_burst.is_none() {
        return Ok(None);
    }
    let per_second = args.kube_api_qps.unwrap_or(20.0);
    if !per_second.is_finite() {
        return Err(BadInput(format!("--kube-api-qps={per_second}: write a number such as 20")));
    }
    let per_second = if per_second == 0.0 { 5.0 } else { per_second };
    let burst = match args.kube_api_burst {
        None => 30,
        Some(0) => 10,
        Some(burst) => burst,
    };
    Ok((per_second > 0.0).then_some(Rate { per_second, burst }))
}

fn reconciles(args: &OperatorArgs) -> ReconcileOptions {
    let rate = match (args.workqueue_ratelimiter_bucket_qps, args.workqueue_ratelimiter_bucket_size) {
        (None, None) => None,
        // What is not given is as in the existing operator.
        (qps, size) => Some(Rate { per_second: f64::from(qps.unwrap_or(10)), burst: size.unwrap_or(100) }),
    };
    ReconcileOptions { rate, longest_delay: args.workqueue_ratelimiter_max_delay.map(|delay| delay.0) }
}

fn batch_schedulers(args: &OperatorArgs) -> Result<BatchSchedulers, BadInput> {
    let names = args.kube_scheduler_names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
    let kube_schedulers: Vec<String> = names.map(str::to_owned).collect();
    let default = Some(args.default_batch_scheduler.trim().to_owned()).filter(|name| !name.is_empty());
    let given = match (&default, kube_schedulers.as_slice()) {
        (Some(name), _) => Some(format!("--default-batch-scheduler={name}")),
        (None, []) => None,
        (None, names) => Some(format!("--kube-scheduler-names={}", names.join(","))),
    };
    if let Some(given) = given.filter(|_| !args.enable_batch_scheduler.0) {
        let problem = format!("{given}: batch schedulers are off; add --enable-batch-scheduler, or remove it");
        return Err(BadInput(problem));
    }
    let schedulers = BatchSchedulers { kube_schedulers, default };
    match &schedulers.default {
        Some(name) if !schedulers.knows(name) => Err(BadInput(format!(
            "--default-batch-scheduler={name}: not a known batch scheduler; use {}, or add it to --kube-scheduler-names",
            batch_scheduler::KNOWN.join(" or ")
        ))),
        _ => Ok(schedulers),
    }
}

/// A gate that is off contradicts the flag that it guards.
fn check_gates(args: &OperatorArgs) -> Result<(), BadInput> {
    if args.feature_gates.default_time_to_live == Some(false) && args.default_time_to_live_seconds > 0 {
        let seconds = args.default_time_to_live_seconds;
        return Err(BadInput(format!(
            "--default-time-to-live-seconds={seconds}: the gate DefaultTimeToLive is off; remove one of them"
        )));
    }
    Ok(())
}

fn options(args: &OperatorArgs) -> anyhow::Result<Options> {
    check_gates(args)?;
    fn json<T: serde::de::DeserializeOwned + Default>(flag: &str, text: Option<&str>) -> anyhow::Result<T> {
        let Some(text) = text.filter(|t| !t.trim().is_empty()) else { return Ok(T::default()) };
        serde_json::from_str(text).map_err(|e| BadInput(format!("{flag}: {e}")).into())
    }
    let (namespaces, namespace_selector) = scope(args)?;
    if !args.ingress_url_format.is_empty() {
        validate::url_format(&args.ingress_url_format)
            .map_err(|problem| BadInput(format!("--ingress-url-format: {problem}")))?;
    }
    let gateways: Vec<ParentRef> = json("--http-route-parent-refs", args.http_route_parent_refs.as_deref())?;
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.trim().is_empty());
    if !gateways.is_empty() && (given(&args.ingress_class_name) || given(&args.ingress_tls)) {
        let flag = if given(&args.ingress_tls) { "--ingress-tls" } else { "--ingress-class-name" };
        let problem = format!("{flag}: an HTTPRoute has neither; set class and TLS on the Gateway, and remove it");
        return Err(BadInput(problem).into());
    }
    let leader = args.leader_election.0.then(|| LeaderOptions {
        namespace: args.leader_election_lock_namespace.clone(),
        name: args.leader_election_lock_name.clone(),
        identity: identity(),
        lease: args.leader_election_lease_duration.0,
        renew: args.leader_election_renew_deadline.0,
        retry: args.leader_election_retry_period.0,
    });
    Ok(Options {
        namespaces,
        namespace_selector,
        limits: Limits {
            driver_grace: signed(args.driver_pod_creation_grace_period),
            pending_timeout: Some(signed(args.driver_pending_timeout)).filter(SignedDuration::is_positive),
            unreachable_timeout: Some(signed(args.driver_unreachable_timeout)).filter(SignedDuration::is_positive),
            default_ttl: Some(args.default_time_to_live_seconds).filter(|ttl| *ttl > 0),
            tracked_executors: args.max_tracked_executor_per_app,
        },
        runs: RunSettings {
            master: args.driver_master.clone(),
            ui: UiSettings {
                service: args.enable_ui_service.0,
                url_format: args.ingress_url_format.clone(),
                class_name: args.ingress_class_name.clone().filter(|c| !c.is_empty()),
                tls: json("--ingress-tls", args.ingress_tls.as_deref())?,
                annotations: json("--ingress-annotations", args.ingress_annotations.as_deref())?,
                gateways,
                no_budgets: !args.enable_driver_pdb.0,
            },
            batch_schedulers: batch_schedulers(args)?,
            partial_restart: args.feature_gates.partial_restart,
        },
        workers: args.controller_threads.max(1),
        health: args.health_probe_bind_address.0.clone(),
        metrics: serve_metrics(args)?,
        metrics_options: metrics_options(args)?,
        requests: RequestCounts::default(),
        leader,
        executors: ExecutorOptions {
            per_second: args.executors_per_second,
            most_pending: args.max_pending_executors,
            per_application: Amount {
                executors: args.max_executors_per_application,
                cores: args.max_executor_cores_per_application,
                memory_mib: args.max_executor_memory_per_application,
            },
            per_namespace: Amount {
                executors: args.max_executors_per_namespace,
                cores: args.max_executor_cores_per_namespace,
                memory_mib: args.max_executor_memory_per_namespace,
            },
            early: args.early_executors.0,
            drivers_trust_each_other: args.drivers_trust_each_other,
            ..ExecutorOptions::default()
        },
        driver_log: args.enable_driver_log.0,
        run_names: args.scheduled_spark_application_timestamp_precision,
        webhook: args.webhook.options()?,
        discovery_interval: None,
        cache_sync_timeout: args.cache_sync_timeout.map(|timeout| match timeout.0 {
            std::time::Duration::ZERO => DEFAULT_CACHE_SYNC,
            timeout => timeout,
        }),
        reconciles: reconciles(args),
    })
}

/// Namespaces by name, and a selector for others. As in the existing operator, an empty name, which charts write with its
/// quotes, means all namespaces. Combined with anything that narrows the scope it is refused.
fn scope(args: &OperatorArgs) -> Result<(Vec<String>, Option<String>), BadInput> {
    let selector = Some(args.namespace_selector.trim().to_owned()).filter(|selector| !selector.is_empty());
    let mut names: Vec<&str> = args.namespaces.iter().map(|name| name.trim()).collect();
    if names == [""] {
        names.clear();
    }
    names.iter_mut().for_each(|name| *name = name.trim_matches('"'));
    if names.contains(&"") {
        let narrowed = selector.is_some() || names.iter().any(|name| !name.is_empty());
        let given = args.namespaces.join(",");
        return match narrowed {
            false => Ok((Vec::new(), None)),
            true => Err(BadInput(format!(
                "--namespaces={given}: an empty name means all namespaces; give names, or --namespace-selector alone, or neither"
            ))),
        };
    }
    Ok((names.into_iter().map(str::to_owned).collect(), selector))
}

/// Where metrics are served. Flags that tighten TLS without TLS are refused.
fn serve_metrics(args: &OperatorArgs) -> Result<Option<ServeMetrics>, BadInput> {
    let path = args.metrics_endpoint.clone();
    let is_path = path.starts_with('/') && path.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.".contains(c));
    if !is_path {
        let problem = format!("--metrics-endpoint={path}: not a path; write /metrics, or leave it out");
        return Err(BadInput(problem));
    }
    let Some(at) = args.metrics_bind_address.0.clone() else { return Ok(None) };
    let suites: Vec<String> = args.metric_tls_cipher_suites.iter().map(|name| name.trim().to_owned()).collect();
    let suites: Vec<String> = suites.into_iter().filter(|name| !name.is_empty()).collect();
    if !args.secure_metrics.0 {
        let given = [
            ("--metric-tls-min-version", args.metric_tls_min_version != TlsVersion::Tls12),
            ("--metric-tls-cipher-suites", !suites.is_empty()),
            ("--metrics-tls-cert-file", args.metrics_tls_cert_file.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                Err(BadInput(format!("{flag}: metrics are served without TLS; add --secure-metrics, or leave it out")))
            }
            None => Ok(Some(ServeMetrics { at, path, tls: None })),
        };
    }
    MetricsTls::check_cipher_suites(&suites)
        .map_err(|problem| BadInput(format!("--metric-tls-cipher-suites: {problem}")))?;
    let certificate = match args.metrics_tls_cert_file.clone().zip(args.metrics_tls_key_file.clone()) {
        Some((certificate, key)) => Certificate::Files { certificate, key },
        None => Certificate::SelfSigned,
    };
    let min_version = args.metric_tls_min_version;
    let tls = MetricsTls { certificate, min_version, cipher_suites: suites, http2: args.enable_http2.0 };
    Ok(Some(ServeMetrics { at, path, tls: Some(tls) }))
}

/// Which metrics there are.
fn metrics_options(args: &OperatorArgs) -> Result<MetricsOptions, BadInput> {
    let prefix = &args.metrics_prefix;
    let is_name = prefix.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c));
    if !is_name || prefix.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(BadInput(format!("--metrics-prefix={prefix}: use letters, digits and underscores, such as team_")));
    }
    let labels = LabelNames::new(args.metrics_labels.iter().map(String::as_str));
    let buckets = |flag: &str, bounds: &[f64]| {
        let ascend = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if ascend && !bounds.is_empty() && bounds.iter().all(|bound| bound.is_finite()) {
            return Ok(bounds.to_vec());
        }
        Err(BadInput(format!("{flag}: write ascending numbers of seconds, such as 30,60,120")))
    };
    Ok(MetricsOptions {
        prefix: prefix.clone(),
        labels: labels.map_err(|problem| BadInput(format!("--metrics-labels: {problem}")))?,
        submit_buckets: buckets("--metrics-job-submit-latency-buckets", &args.metrics_job_submit_latency_buckets)?,
        start_buckets: buckets("--metrics-job-start-latency-buckets", &args.metrics_job_start_latency_buckets)?,
        applications: args.enable_metrics.0,
        max_label_sets: args.metrics_max_label_sets,
    })
}

/// A TLS version by the names in use for it.
fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "" | "1.2" | "TLS1.2" | "VersionTLS12" => Ok(TlsVersion::Tls12),
        "1.3" | "TLS1.3" | "VersionTLS13" => Ok(TlsVersion::Tls13),
        _ => Err("not offered; use 1.2 or 1.3".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if number == 0 { Err("must be at least 1".to_owned()) } else { Ok(number) }
}

/// A number of at least 1: 0 would stop everything.
fn whole(text: &str) -> Result<u64, String> {
    at_least_one(text).map(|number| u64::try_from(number).unwrap_or(u64::MAX))
}

/// Memory in MiB.
fn memory(text: &str) -> Result<u64, String> {
    let quantity: Quantity = text.parse().map_err(|_| "not a memory quantity such as 500Gi".to_owned())?;
    match u64::try_from(quantity.in_units_of(1 << 20)) {
        Ok(0) | Err(_) => Err("must be at least 1Mi".to_owned()),
        Ok(mebibytes) => Ok(mebibytes),
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration.0).unwrap_or(SignedDuration::MAX)
}

/// The identity for leader election: the host name and a unique suffix.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "firesteel" } else { host.trim() };
    format!("{host}_{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use firesteel_operator::Listen;

    /// The operator's flags alone.
    #[derive(Debug, clap::Parser)]
    pub(super) struct Only {
        #[command(flatten)]
        pub(super) args: OperatorArgs,
    }

    #[test]
    fn flags_of_the_existing_operator_are_understood() {
        let line = "operator --namespaces=a,b --controller-threads=20 --enable-ui-service=false --leader-election=true \
                    --leader-election-lock-name=x --health-probe-bind-address=:8081 --metrics-bind-address=:8080 \
                    --driver-pod-creation-grace-period=1m30s --workqueue-ratelimiter-bucket-qps=50 --zap-log-level=info \
                    --enable-batch-scheduler=true --enable-metrics=true --metrics-labels=app_type";
        let args = Only::try_parse_from(line.split_whitespace()).unwrap().args;
        let options = options(&args).unwrap();
        assert_eq!(options.namespaces, ["a", "b"]);
        assert_eq!(options.limits.driver_grace, SignedDuration::from_secs(90));
        assert!(!options.runs.ui.service);
        assert_eq!(options.leader.unwrap().name, "x");
        assert_eq!(options.health, Some(Listen::Everywhere(8081)));
        assert_eq!(options.reconciles.rate, Some(Rate { per_second: 50.0, burst: 100 }));
    }

    #[test]
    fn defaults_are_those_of_the_existing_operator() {
        let options = options(&Only::try_parse_from(["operator"]).unwrap().args).unwrap();
        assert_eq!(options.health, Some(Listen::Everywhere(8081)));
        assert_eq!((options.metrics.is_none(), options.workers, options.leader.is_none()), (true, 10, true));
        assert_eq!((options.limits.tracked_executors, options.limits.default_ttl), (1000, None));
        assert_eq!(options.limits.driver_grace, SignedDuration::from_secs(10));
        assert!(options.runs.ui.service && options.runs.ui.url_format.is_empty());
    }

    #[test]
    fn logs_of_drivers_are_read_unless_that_is_switched_off() {
        let reads = |line: &str| {
            let args = Only::try_parse_from(line.split_whitespace()).unwrap().args;
            options(&args).unwrap().driver_log
        };
        assert!(reads("operator") && reads("operator --enable-driver-log"));
        assert!(!reads("operator --enable-driver-log=false"));
    }

    #[test]
    fn executors_are_limited_together() {
        let parse = |line: &str| Only::try_parse_from(line.split_whitespace()).map(|only| only.args);
        let given = parse("operator --executors-per-second=50 --max-pending-executors 300").unwrap();
        let executors = options(&given).unwrap().executors;
        assert_eq!((executors.per_second, executors.most_pending), (50, 300));
        for none in ["operator --executors-per-second=0", "operator --max-pending-executors=0"] {
            assert_eq!(parse(none).unwrap_err().exit_code(), 2, "{none} would stop everything");
        }
    }

    #[test]
    fn what_an_application_and_a_namespace_may_have_is_bounded_with_and_without_flags() {
        let parse = |line: &str| Only::try_parse_from(line.split_whitespace()).map(|only| only.args);
        let usual = options(&parse("operator").unwrap()).unwrap().executors;
        let default = ExecutorOptions::default();
        assert_eq!((usual.per_application, usual.per_namespace), (default.per_application, default.per_namespace));
        assert!(!usual.drivers_trust_each_other && usual.early);
        let line = "operator --max-executors-per-application=10 --max-executor-cores-per-application=40 \
                    --max-executor-memory-per-application=100Gi --max-executors-per-namespace=20 \
                    --max-executor-cores-per-namespace=80 --max-executor-memory-per-namespace=1Ti --drivers-trust-each-other --early-executors=false";
        let given = options(&parse(line).unwrap()).unwrap().executors;
        assert_eq!(given.per_application.to_string(), "10 executors, 40 cores and 100Gi of memory");
        assert_eq!(given.per_namespace.to_string(), "20 executors, 80 cores and 1Ti of memory");
        assert!(given.drivers_trust_each_other && !given.early);
        for none in ["--max-executors-per-namespace=0", "--max-executor-memory-per-application=lots"] {
            let refused = parse(&format!("operator {none}")).unwrap_err().to_string();
            assert!(refused.contains(none.split('=').next().unwrap()), "{refused}");
        }
    }

    /// The arguments of the existing operator's chart with its default values, and with most of what it can switch on.
    #[test]
    fn argument_lists_of_charts_are_taken_unchanged() {
        let chart = "operator --zap-log-level=info --zap-encoder=console --namespaces=default --controller-threads=10 \
                     --enable-ui-service=true --enable-metrics=true --metrics-bind-address=:8080 \
                     --metrics-endpoint=/metrics --metrics-prefix= --leader-election=true \
                     --leader-election-lock-name=spark-operator-controller-lock --leader-election-lock-namespace=spark \
                     --leader-election-lease-duration=15s --leader-election-renew-deadline=10s \
                     --leader-election-retry-period=2s --workqueue-ratelimiter-bucket-qps=50 \
                     --workqueue-ratelimiter-bucket-size=500 --workqueue-ratelimiter-max-delay=6h \
                     --driver-pod-creation-grace-period=10s --max-tracked-executor-per-app=1000 --kube-api-qps=20 \
                     --kube-api-burst=30 --scheduled-spark-application-timestamp-precision=nanos \
                     --feature-gates=PartialRestart=false,LoadSparkDefaults=false";
        let parse = |line: &str| settings(&Only::try_parse_from(line.split_whitespace()).unwrap().args).unwrap();
        let usual = parse(chart);
        assert_eq!(usual.rate, Some(Rate { per_second: 20.0, burst: 30 }));
        assert_eq!(usual.options.reconciles.rate, Some(Rate { per_second: 50.0, burst: 500 }));
        let more = parse(&format!(
            "{chart} --enable-batch-scheduler=true --kube-scheduler-names=a,b --default-batch-scheduler=a"
        ));
        assert_eq!(more.options.runs.batch_schedulers.default.as_deref(), Some("a"));
    }

    #[test]
    fn gateways_take_the_place_of_an_ingress_class() {
        let parse = |line: &[&str]| options(&Only::try_parse_from(line).unwrap().args);
        let refs =
            r#"--http-route-parent-refs=[{"name": "web", "namespace": "infra", "sectionName": "https", "port": 443}]"#;
        let gateways = parse(&["operator", refs]).unwrap().runs.ui.gateways;
        assert_eq!((gateways[0].name.as_str(), gateways[0].port), ("web", Some(443)));
        for (more, start) in [
            ("--ingress-tls=[{}]", "--ingress-tls: an HTTPRoute has neither"),
            ("--ingress-class-name=nginx", "--ingress-class-name: an HTTPRoute has neither"),
            ("--ingress-url-format={{$app}}.example", "--ingress-url-format: {{$app}} in"),
        ] {
            let said = parse(&["operator", refs, more]).unwrap_err().to_string();
            assert!(said.starts_with(start), "{said}");
        }
        for bad in [
            r#"--http-route-parent-refs=[{"namespace": "infra"}]"#,
            r#"--http-route-parent-refs=[{"name": "a", "gateway": "b"}]"#,
        ] {
            assert!(parse(&["operator", bad]).unwrap_err().to_string().starts_with("--http-route-parent-refs: "));
        }
    }

    #[test]
    fn rates_are_read_as_client_go_reads_them() {
        let rate = |line: &str| settings(&Only::try_parse_from(line.split_whitespace()).unwrap().args).unwrap().rate;
        assert_eq!(rate("operator"), None);
        assert_eq!(rate("operator --kube-api-qps=0.5"), Some(Rate { per_second: 0.5, burst: 30 }));
        assert_eq!(rate("operator --kube-api-qps=0 --kube-api-burst=0"), Some(Rate { per_second: 5.0, burst: 10 }));
        assert_eq!(rate("operator --kube-api-burst=7"), Some(Rate { per_second: 20.0, burst: 7 }));
        assert_eq!(rate("operator --kube-api-qps=-1 --kube-api-burst=7"), None);
    }

    #[test]
    fn every_flag_of_the_existing_webhook_is_taken() {
        let flags = "controller-threads=10 namespaces=default label-selector-filter=a=b cache-sync-timeout=30s \
                     kube-api-qps=20 kube-api-burst=30 webhook-cert-dir=/etc/k8s-webhook-server/serving-certs \
                     webhook-cert-name=tls.crt webhook-key-name=tls.key mutating-webhook-name=m \
                     validating-webhook-name=v webhook-port=9443 webhook-secret-name=s webhook-secret-namespace=n \
                     webhook-svc-name=s webhook-svc-namespace=n enable-resource-quota-enforcement=true \
                     enable-cert-manager=true leader-election=true leader-election-lock-name=l enable-metrics=true \
                     metrics-bind-address=:8080 health-probe-bind-address=:8081 \
                     webhook-tls-min-version=VersionTLS12 \
                     webhook-tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 enable-webhook=true";
        let words: Vec<String> = flags.split_whitespace().map(|flag| format!("--{flag}")).collect();
        let line = std::iter::once("operator").chain(words.iter().map(String::as_str));
        let args = Only::try_parse_from(line).unwrap().args;
        let webhook = options(&args).unwrap().webhook.unwrap();
        assert!(webhook.quotas && webhook.configuration == "v");
        let lines = args.retired.lines();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        for flag in ["label-selector-filter", "mutating-webhook-name"] {
            assert!(lines.iter().any(|line| line.starts_with(&format!("--{flag} has no effect: "))), "{lines:#?}");
        }
        assert!(args.webhook.lines().is_empty());
    }

    #[test]
    fn flags_that_narrow_the_namespaces_narrow_them_or_are_refused() {
        let parse = |line: &str| options(&Only::try_parse_from(line.split_whitespace()).unwrap().args);
        let scope = |line: &str| parse(line).map(|o| (o.namespaces, o.namespace_selector)).unwrap();
        assert_eq!(scope("operator"), (vec![], None));
        assert_eq!(scope("operator --namespace-selector=team=a"), (vec![], Some("team=a".to_owned())));
        let both = scope("operator --namespaces=default --namespace-selector=team=a");
        assert_eq!(both, (vec!["default".to_owned()], Some("team=a".to_owned())));
        assert_eq!(scope("operator --namespaces= --namespace-selector=team=a"), (vec![], Some("team=a".to_owned())));
        assert_eq!(scope("operator --namespaces=\"\""), (vec![], None), "as charts write all namespaces");
        for both in ["operator --namespaces=a,", "operator --namespaces=\"\" --namespace-selector=team=a"] {
            assert!(parse(both).unwrap_err().to_string().contains("means all namespaces"), "{both}");
        }
    }

    #[test]
    fn flags_that_narrow_what_is_made_or_shown_work_or_are_refused() {
        let parse = |line: &str| options(&Only::try_parse_from(line.split_whitespace()).unwrap().args);
        assert!(!parse("operator").unwrap().runs.ui.no_budgets);
        assert!(parse("operator --enable-driver-pdb=false").unwrap().runs.ui.no_budgets);
    }

    #[test]
    fn every_metrics_flag_works() {
        let parse = |line: &str| options(&Only::try_parse_from(line.split_whitespace()).unwrap().args).unwrap();
        let plain = parse("operator --metrics-bind-address=:8080");
        assert!(plain.metrics.is_some_and(|how| how.tls.is_none() && how.path == "/metrics"));
        assert_eq!(plain.metrics_options.labels, LabelNames::default(), "as the existing operator's default");
        assert_eq!(plain.metrics_options.submit_buckets, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
        assert!(plain.metrics_options.applications && plain.metrics_options.start_buckets.starts_with(&[30.0, 60.0]));
        let line = "operator --metrics-bind-address=:8080 --secure-metrics --metrics-endpoint=/m --metrics-prefix=p \
                    --metrics-labels=app-type,namespace --metrics-job-submit-latency-buckets=1,2 --enable-metrics=false \
                    --metrics-job-start-latency-buckets=3.5 --metric-tls-min-version=VersionTLS13 --enable-http2=true \
                    --metrics-tls-cert-file=/c --metrics-tls-key-file=/k --metrics-max-label-sets=7 \
                    --metric-tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let set = parse(line);
        let how = set.metrics.unwrap();
        let files = Certificate::Files { certificate: "/c".into(), key: "/k".into() };
        let cipher_suites = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()];
        let tls = MetricsTls { certificate: files, min_version: TlsVersion::Tls13, cipher_suites, http2: true };
        assert_eq!((how.path.as_str(), how.tls), ("/m", Some(tls)));
        let metrics = set.metrics_options;
        assert_eq!((metrics.prefix.as_str(), metrics.max_label_sets, metrics.applications), ("p", 7, false));
        assert_eq!((metrics.submit_buckets, metrics.start_buckets), (vec![1.0, 2.0], vec![3.5]));
        assert_eq!(metrics.labels, LabelNames::new(["app-type", "namespace"]).unwrap());
    }

    #[test]
    fn metrics_flags_that_cannot_work_are_refused_with_what_to_use() {
        for (flags, sentence) in [
            (
                "--metric-tls-min-version=1.3",
                "--metric-tls-min-version: metrics are served without TLS; add --secure-metrics",
            ),
            (
                "--metric-tls-cipher-suites=A",
                "--metric-tls-cipher-suites: metrics are served without TLS; add --secure-metrics",
            ),
            (
                "--secure-metrics --metric-tls-cipher-suites=A",
                "--metric-tls-cipher-suites: `A` is not offered; use TLS_",
            ),
            ("--metrics-endpoint=metrics", "--metrics-endpoint=metrics: not a path; write /metrics"),
            ("--metrics-prefix=a.b", "--metrics-prefix=a.b: use letters, digits and underscores"),
            ("--metrics-labels=a-b,a_b", "--metrics-labels: `a_b` is `a_b` in metrics, and that is given twice"),
            ("--metrics-job-start-latency-buckets=2,1", "--metrics-job-start-latency-buckets: write ascending numbers"),
        ] {
            let line = format!("operator --metrics-bind-address=:8080 {flags}");
            let refused = options(&Only::try_parse_from(line.split_whitespace()).unwrap().args).unwrap_err();
            assert!(refused.downcast_ref::<BadInput>().is_some(), "{flags}");
            assert!(refused.to_string().starts_with(sentence), "{refused}");
        }
        for flag in
            ["--metric-tls-min-version=1.1", "--metrics-tls-cert-file=/c", "--metrics-job-submit-latency-buckets=a"]
        {
            assert_eq!(Only::try_parse_from(["operator", flag]).unwrap_err().exit_code(), 2, "{flag}");
        }
        // Nothing is served, so there is nothing to tighten.
        let quiet = Only::try_parse_from(["operator", "--metric-tls-min-version=1.3"]).unwrap().args;
        assert!(options(&quiet).unwrap().metrics.is_none());
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let refused = |flag: &str| Only::try_parse_from(["operator", flag]).unwrap_err().to_string();
        assert!(refused("--leader-election-retry-period=soon").contains("--leader-election-retry-period"));
        assert!(refused("--metrics-bind-address=nowhere").contains("--metrics-bind-address"));
        let args = Only::try_parse_from(["operator", "--ingress-tls={"]).unwrap().args;
        assert!(options(&args).unwrap_err().to_string().starts_with("--ingress-tls: "));
    }
}
