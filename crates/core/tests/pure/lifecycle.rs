//! The application shared by the life cycle's tests: `pi`, with a specification, a status and a driver.

use std::collections::BTreeMap;

use firesteel_api::{SparkApplicationSpec, SparkApplicationStatus};
use firesteel_core::conf::Subject;
use firesteel_core::lifecycle::App;
use firesteel_core::pod::{DriverPod, Owner, PodPhase};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const UID: &str = "7d0a4f52-0000-4000-8000-000000000001";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) struct Pi {
    pub(crate) spec: SparkApplicationSpec,
    pub(crate) status: SparkApplicationStatus,
}

impl Pi {
    pub(crate) fn new(spec: Value, status: Value) -> Self {
        Pi { spec: serde_json::from_value(spec).unwrap(), status: serde_json::from_value(status).unwrap() }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&App<'_>) -> T) -> T {
        with_app(&self.spec, &self.status, f)
    }
}

/// The application with this specification and status, in its first generation.
pub(crate) fn with_app<T>(
    spec: &SparkApplicationSpec,
    status: &SparkApplicationStatus,
    f: impl FnOnce(&App<'_>) -> T,
) -> T {
    let labels = BTreeMap::new();
    let subject = Subject { name: "pi", namespace: "n", uid: UID, labels: &labels, spec };
    f(&App { subject, spec_hash: "h", generation: 1, deleting: false, status, problem: None })
}

/// The status in a state, after one submission at second 0.
pub(crate) fn submitted_once(state: &str) -> Value {
    json!({
        "applicationState": {"state": state}, "submissionID": "s", "attempt": 1, "specHash": "h",
        "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 1,
    })
}

/// What every driver pod of that submission carries.
pub(crate) fn driver_metadata() -> Value {
    json!({
        "name": "pi-driver", "uid": "u", "labels": {"sparkoperator.k8s.io/submission-id": "s"},
        "ownerReferences": [{"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "name": "pi", "uid": UID}],
    })
}

/// Its driver in a phase, without further details.
pub(crate) fn driver(phase: PodPhase) -> DriverPod {
    DriverPod {
        name: "pi-driver".to_owned(),
        uid: "u".to_owned(),
        submission_id: Some("s".to_owned()),
        spec_hash: Some("h".to_owned()),
        generation: Some(1),
        app_id: None,
        owner: Owner::Application,
        phase,
        deleting: false,
        gone_by: None,
        forced: false,
        node: None,
        unready: false,
        ended: None,
        failure: None,
        waiting: None,
        created: None,
        gated: false,
        unschedulable: None,
        address: None,
    }
}
