//! ScheduledSparkApplication v1beta2: a SparkApplication on a schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::spark_application::SparkApplicationSpec;

/// What to run, and when.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sparkoperator.k8s.io",
    version = "v1beta2",
    kind = "ScheduledSparkApplication",
    plural = "scheduledsparkapplications",
    singular = "scheduledsparkapplication",
    shortname = "scheduledsparkapp",
    namespaced,
    status = "ScheduledSparkApplicationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A SparkApplication that runs on a schedule.",
    printcolumn = r#"{"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"}"#,
    printcolumn = r#"{"name": "TimeZone", "type": "string", "jsonPath": ".spec.timeZone"}"#,
    printcolumn = r#"{"name": "Suspend", "type": "string", "jsonPath": ".spec.suspend"}"#,
    printcolumn = r#"{"name": "Last Run", "type": "date", "jsonPath": ".status.lastRun"}"#,
    printcolumn = r#"{"name": "Last Run Name", "type": "string", "jsonPath": ".status.lastRunName"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledSparkApplicationSpec {
    /// A five-field cron expression, a shorthand such as `@hourly`, or `@every 3m`.
    pub schedule: String,
    /// IANA time zone of the schedule, such as `Europe/Berlin`; the operator's own if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The application of each run.
    #[serde(default)]
    #[schemars(required)]
    pub template: SparkApplicationSpec,
    /// Whether to start no runs. Those that run already are not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What happens to a run that is due while another one is not finished: `Allow` (the default) starts it, `Forbid` waits for
    /// the other to end, `Replace` deletes the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<String>,
    /// How late a run may start, in seconds. A run that is later counts as missed. Without a limit, one run makes up for
    /// all that were missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_deadline_seconds: Option<i64>,
    /// Completed runs to keep; 1 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successful_run_history_limit: Option<i32>,
    /// Failed runs to keep; 1 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_run_history_limit: Option<i32>,
}

/// What ran, and when the next run is due.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledSparkApplicationStatus {
    /// When the last run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Time>,
    /// When the next run is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run: Option<Time>,
    /// The last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_name: Option<String>,
    /// Completed runs that are kept, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_successful_run_names: Vec<String>,
    /// Failed runs that are kept, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_failed_run_names: Vec<String>,
    /// `Scheduled` or `FailedValidation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_state: Option<String>,
    /// Why it is in that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The schedule and zone that `nextRun` was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_schedule: Option<String>,
    /// Conditions for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
