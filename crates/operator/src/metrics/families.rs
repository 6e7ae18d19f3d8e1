//! Every metric the operator exports: name, type, labels and meaning. One table for the code and the reference.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Summary,
    Histogram,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }
}

/// Which labels a metric has besides its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those of `--metrics-labels` and no other, as dashboards of the existing operator expect.
    Chosen,
    /// `namespace`, and those of `--metrics-labels`.
    Application,
    /// `namespace`.
    Namespace,
    /// None: it describes the operator itself.
    Process,
}

/// One metric.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    /// Labels of its own.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl Family {
    /// Whether `--metrics-prefix` applies, as it does with the existing operator.
    pub fn has_prefix(&self) -> bool {
        self.scope == Scope::Chosen
    }
}

macro_rules! families {
    ($($kind:ident $scope:ident $const:ident = $name:literal [$($label:literal),*]: $help:literal;)+) => {
        $(pub(super) static $const: Family =
            Family { name: $name, kind: Kind::$kind, scope: Scope::$scope, labels: &[$($label),*], help: $help };)+

        /// Every metric.
        pub static ALL: &[&Family] = &[$(&$const),+];
    };
}

families! {
    Counter Chosen APPLICATIONS = "spark_application_count" []: "Applications seen for the first time.";
    Counter Chosen SUBMITTED = "spark_application_submit_count" []: "Successful submissions, including retries.";
    Counter Chosen SUBMISSIONS_FAILED = "spark_application_failed_submission_count" []: "Applications whose submission failed.";
    Counter Chosen SUCCEEDED = "spark_application_success_count" []: "Applications that completed.";
    Counter Chosen FAILED = "spark_application_failure_count" []: "Applications that failed for good.";
    Gauge Chosen RUNNING = "spark_application_running_count" []: "Applications in state RUNNING.";
    Summary Chosen SUBMIT_LATENCY = "spark_application_submit_latency_seconds" []: "Time from creation of the application to its first submission.";
    Histogram Chosen SUBMIT_LATENCY_HISTOGRAM = "spark_application_submit_latency_seconds_histogram" []: "The same, in the buckets of --metrics-job-submit-latency-buckets.";
    Summary Chosen START_LATENCY = "spark_application_start_latency_seconds" []: "Time from creation of the application to its first running driver.";
    Histogram Chosen START_LATENCY_HISTOGRAM = "spark_application_start_latency_seconds_histogram" []: "The same, in the buckets of --metrics-job-start-latency-buckets.";
    Summary Chosen SUCCESS_TIME = "spark_application_success_execution_time_seconds" []: "Time from the last submission to completion.";
    Summary Chosen FAILURE_TIME = "spark_application_failure_execution_time_seconds" []: "Time from the last submission to failure.";
    Gauge Chosen EXECUTORS_RUNNING = "spark_executor_running_count" []: "Executors whose pods are running.";
    Counter Chosen EXECUTORS_SUCCEEDED = "spark_executor_success_count" []: "Executors that exited with code 0.";
    Counter Chosen EXECUTORS_FAILED = "spark_executor_failure_count" []: "Executors that failed.";

    Gauge Application APPLICATIONS_BY_STATE = "firesteel_applications" ["state"]: "Applications in each state; NEW is the state before the first submission.";
    Counter Application TRANSITIONS = "firesteel_application_transitions_total" ["state"]: "Times that applications entered a state.";
    Histogram Namespace STATE_TIME = "firesteel_application_state_duration_seconds" ["state"]: "Time that applications spent in a state, observed when they leave it.";
    Counter Namespace SUBMISSIONS = "firesteel_submissions_total" ["outcome"]: "Submissions by outcome: created, refused (by the cluster), impossible (the specification cannot be run), hindered (retried later), in_the_way (an older driver has to go first).";
    Histogram Namespace SUBMISSION_TIME = "firesteel_submission_duration_seconds" []: "Time that one submission takes: from the decision to the created driver, or to the error.";
    Counter Application CORE_SECONDS = "firesteel_requested_core_seconds_total" ["role"]: "CPU requests of drivers and executors multiplied by the time their pods existed on a node, in core-seconds.";
    Counter Application GIB_SECONDS = "firesteel_requested_gib_seconds_total" ["role"]: "The same for memory, in GiB-seconds.";

    Counter Namespace EXECUTORS_LOST = "firesteel_executors_lost_total" ["cause"]: "Executors lost, by cause. The application's: application (exit code), out_of_memory. The platform's: evicted, preempted, node (lost, shut down or tainted), platform (deleted, or for no known reason). And withdrawn: pending and no longer wanted, only with executors outside the driver.";
    Counter Namespace EXECUTORS_CREATED = "firesteel_executors_created_total" []: "Executor pods created by the operator.";
    Counter Namespace EXECUTORS_REFUSED = "firesteel_executors_refused_total" []: "Executors that the cluster rejected.";
    Histogram Namespace CREATION_TIME = "firesteel_executor_creation_duration_seconds" []: "Time from the decision to create an executor to the API server's response.";
    Gauge Process CREATIONS_WAITING = "firesteel_executor_creations_waiting" []: "Executors that are waiting to be created by the operator.";

    Counter Namespace RUNS_STARTED = "firesteel_schedule_runs_total" []: "Runs of schedules that were started because they were due.";
    Counter Namespace RUNS_MISSED = "firesteel_schedule_missed_runs_total" []: "Runs of schedules that did not start within startingDeadlineSeconds.";
    Histogram Namespace SCHEDULE_LAG = "firesteel_schedule_lag_seconds" []: "Time from the instant a run was due to its creation, including waits for other runs.";
    Gauge Namespace CONNECT_SERVERS = "firesteel_connect_servers" ["state"]: "SparkConnect objects in each state; New is the state before the first server.";

    Counter Namespace ADMISSIONS = "firesteel_admissions_total" ["outcome"]: "Writes that the webhook allowed or refused.";
    Gauge Process CERTIFICATE_EXPIRES = "firesteel_webhook_certificate_expiry_timestamp_seconds" []: "When the certificate that the webhook serves expires, in seconds since 1970; 0 if it has none.";
    Gauge Process CERTIFICATE_UNUSABLE = "firesteel_webhook_certificate_unusable" []: "1 while the webhook has a certificate that it cannot use, else 0.";

    Gauge Process DEPTH = "workqueue_depth" ["controller", "name"]: "Objects that are waiting for a worker.";
    Counter Process ADDS = "workqueue_adds_total" ["controller", "name"]: "Objects that were queued for a worker.";
    Counter Process RETRIES = "workqueue_retries_total" ["controller", "name"]: "Passes that failed and are tried again.";
    Histogram Process QUEUE_TIME = "workqueue_queue_duration_seconds" ["controller", "name"]: "Time that objects waited for a worker.";
    Histogram Process WORK_TIME = "workqueue_work_duration_seconds" ["controller", "name"]: "Time that workers spent on an object.";
    Gauge Process ACTIVE = "controller_runtime_active_workers" ["controller"]: "Workers that are busy.";
    Gauge Process WORKERS = "controller_runtime_max_concurrent_reconciles" ["controller"]: "Workers; applications, SparkConnect objects and schedules share theirs.";
    Counter Process RECONCILES = "controller_runtime_reconcile_total" ["controller", "result"]: "Passes by result: success, requeue_after, error.";
    Counter Process RECONCILE_ERRORS = "controller_runtime_reconcile_errors_total" ["controller"]: "Passes that failed.";
    Histogram Process RECONCILE_TIME = "controller_runtime_reconcile_time_seconds" ["controller"]: "Time that passes took.";
    Counter Process REST_REQUESTS = "rest_client_requests_total" ["code", "host", "method"]: "Requests to the API server by HTTP method and code.";
    Counter Process API_REQUESTS = "firesteel_api_requests_total" ["verb", "resource", "code"]: "Requests to the API server by Kubernetes verb, resource and code; the code is error if there was no response.";
    Histogram Process API_TIME = "firesteel_api_request_duration_seconds" ["verb"]: "Time that requests to the API server took; for a watch, until its response began.";

    Gauge Process LEADER = "leader_election_master_status" ["name"]: "1 if this operator holds the lease; without leader election there is no such metric.";
    Gauge Process READY = "firesteel_operator_ready" []: "1 if this operator acts: it leads, and its caches are filled.";
    Gauge Process BUILD = "firesteel_build_info" ["version"]: "Always 1.";
    Gauge Process LABEL_SETS = "firesteel_metrics_label_sets" []: "Combinations of label values in use; at --metrics-max-label-sets, further ones are counted as other.";
    Gauge Process START_TIME = "process_start_time_seconds" []: "When the process started, in seconds since 1970.";
    Counter Process CPU = "process_cpu_seconds_total" []: "CPU time of the process.";
    Gauge Process RESIDENT = "process_resident_memory_bytes" []: "Resident memory of the process.";
    Gauge Process VIRTUAL = "process_virtual_memory_bytes" []: "Virtual memory of the process.";
    Gauge Process OPEN_FILES = "process_open_fds" []: "Open file descriptors.";
    Gauge Process MAX_FILES = "process_max_fds" []: "Maximum number of open file descriptors.";
}

/// The buckets of each histogram, in seconds, unless flags set them.
pub(super) fn buckets(family: &Family) -> &'static [f64] {
    match family.name {
        "spark_application_submit_latency_seconds_histogram" => SUBMIT_BUCKETS,
        "spark_application_start_latency_seconds_histogram" => START_BUCKETS,
        "firesteel_application_state_duration_seconds" => &STATE,
        "firesteel_schedule_lag_seconds" => &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0],
        "firesteel_api_request_duration_seconds" => firesteel_cluster::requests::BUCKETS,
        _ => &SHORT,
    }
}

/// The existing operator's defaults.
pub const SUBMIT_BUCKETS: &[f64] = &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
pub const START_BUCKETS: &[f64] = &[30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0];
const SHORT: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const STATE: [f64; 11] = [0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];
