//! Why an application does not run or failed: the messages in its status.

use std::time::Duration;

use firesteel_api::SparkApplication;
use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE, block_on, condition, container, message, now};

#[test]
fn quota_and_pod_security_are_named() {
    block_on(async {
        let Some(f) = Fixture::new("quota").await else { return };
        let quotas: Api<ResourceQuota> = Api::namespaced(f.client.clone(), f.namespace.name());
        let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        // The quota controller has to see it first.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while quotas.get("none").await.unwrap().status.and_then(|s| s.hard).is_none() {
            assert!(tokio::time::Instant::now() < deadline, "the quota is not in force");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        f.create("full", &json!({})).await;
        let text = message(&f.wait_state("full", "FAILED").await);
        assert!(text.starts_with("failed to run spark-submit: pod full-driver: "), "{text}");
        assert!(text.contains("exceeded quota: none") && text.contains("ResourceQuota"), "{text}");
        quotas.delete("none", &kube::api::DeleteParams::default()).await.unwrap();

        let namespaces: Api<Namespace> = Api::all(f.client.clone());
        let strict = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        namespaces.patch(f.namespace.name(), &PatchParams::default(), &Patch::Merge(strict)).await.unwrap();
        f.create("strict", &json!({})).await;
        let text = message(&f.wait_state("strict", "FAILED").await);
        assert!(text.contains("violates PodSecurity") && text.contains("podSecurityContext"), "{text}");
        assert_eq!(f.event("SparkApplicationSubmissionFailed").await.lines().count(), 1);
        f.event("SparkApplicationFailed").await;
    });
}

/// The error message of an application whose driver ended with this status.
async fn ended(f: &Fixture, name: &str, status: Value) -> String {
    f.create(name, &json!({})).await;
    f.driver(name, 1).await;
    f.run_driver(name).await;
    f.wait_state(name, "RUNNING").await;
    f.pod_status(name, &status).await;
    message(&f.wait_state(name, "FAILED").await)
}

#[test]
fn the_end_of_a_driver_is_explained() {
    block_on(async {
        let Some(f) = Fixture::new("ends").await else { return };
        let end = |code: i32, reason: &str| {
            let state = json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": now()}});
            json!({"phase": "Failed", "containerStatuses": [container(&state)]})
        };
        let text = ended(&f, "memory", end(137, "OOMKilled")).await;
        assert!(
            text.starts_with("driver container failed with ExitCode: 137, Reason: OOMKilled (out of memory: "),
            "{text}"
        );
        let mut evicted = end(143, "Error");
        evicted["reason"] = json!("Evicted");
        evicted["message"] = json!("The node was low on resource: memory.");
        let text = ended(&f, "evicted", evicted).await;
        assert!(text.starts_with("driver container failed with ExitCode: 143, Reason: Error (terminated"), "{text}");
        assert!(text.contains("the node evicted it (Evicted): The node was low on resource: memory."), "{text}");
        let mut init = container(&json!({"terminated": {"exitCode": 2, "reason": "Error"}}));
        init["name"] = json!("fetch");
        let waiting = container(&json!({"waiting": {"reason": "PodInitializing"}}));
        let status = json!({"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": [waiting]});
        let text = ended(&f, "init", status).await;
        assert!(text.starts_with("driver container status missing"), "{text}");
        assert!(text.contains("init container fetch ended with exit code 2"), "{text}");
        f.event("SparkDriverFailed").await;
    });
}

/// The error message of a driver whose log is in its pod's status: a kubelet copies its end there if the container asks for it.
async fn told_by_its_log(f: &Fixture, name: &str) -> String {
    let container_of_spark =
        json!({"name": "spark-kubernetes-driver", "terminationMessagePolicy": "FallbackToLogsOnError"});
    let template = json!({"spec": {"containers": [container_of_spark]}});
    f.create(name, &json!({"driver": {"template": template}, "sparkConf": {"spark.redaction.regex": "(?i)wages"}}))
        .await;
    f.driver(name, 1).await;
    f.run_driver(name).await;
    f.wait_state(name, "RUNNING").await;
    let log = "Traceback (most recent call last):\n  File \"/w/job.py\", line 3, in <module>\n    pay(wages=\"hunter2\")\n\
               ValueError: no account\n26/11/17 22:30:51 INFO SparkContext: Invoking stop() from shutdown hook\n";
    let state = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": log, "finishedAt": now()}});
    f.pod_status(name, &json!({"phase": "Failed", "containerStatuses": [container(&state)]})).await;
    message(&f.wait_state(name, "FAILED").await)
}

#[test]
fn the_status_quotes_a_log_with_secrets_masked_or_not_at_all() {
    block_on(async {
        let Some(f) = Fixture::new("logs").await else { return };
        let text = told_by_its_log(&f, "told").await;
        let wanted = "driver container failed with ExitCode: 1, Reason: Error: ValueError: no account, at job.py:3\n  \
                      File \"/w/job.py\", line 3, in <module>\n    pay(wages=\"*********(redacted)\")";
        assert_eq!(text, wanted);
        let Some(f) = Fixture::tuned("nologs", |options| options.driver_log = false).await else { return };
        let text = told_by_its_log(&f, "untold").await;
        assert_eq!(
            text,
            "driver container failed with ExitCode: 1, Reason: Error (the application ended with an error)"
        );
    });
}

async fn waits(f: &Fixture, name: &str, words: &str) -> SparkApplication {
    let says = |app: &SparkApplication| condition(app, "Running", "False").is_some_and(|(_, m)| m.contains(words));
    f.wait(name, words, says).await
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    block_on(async {
        let Some(f) = Fixture::new("waits").await else { return };
        // The scheduler's own message: the driver requests a node that does not exist.
        f.create("nowhere", &json!({})).await;
        let app = waits(&f, "nowhere", "no node takes it (Unschedulable): 0/").await;
        assert_eq!(condition(&app, "Running", "False").unwrap().0, "Unschedulable");
        assert!(f.event("SparkDriverPending").await.contains("driver nowhere-driver"));

        let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\""}});
        let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
        f.create("image", &json!({})).await;
        f.driver("image", 1).await;
        let status = json!({"phase": "Pending", "conditions": scheduled, "containerStatuses": [container(&state)]});
        f.pod_status("image", &status).await;
        waits(&f, "image", "its image cannot be pulled (ImagePullBackOff): Back-off pulling image").await;

        // A kubelet reports a missing ConfigMap only in an event.
        f.create("mount", &json!({})).await;
        let pod = f.driver("mount", 1).await;
        f.pod_status("mount", &json!({"phase": "Pending", "conditions": scheduled})).await;
        let event = json!({
            "metadata": {"name": "mount-driver.1"}, "type": "Warning", "reason": "FailedMount",
            "message": "MountVolume.SetUp failed for volume \"c\" : configmap \"c\" not found",
            "involvedObject": {"kind": "Pod", "namespace": f.namespace.name(), "name": "mount-driver", "uid": pod.uid()},
            "lastTimestamp": now(), "count": 1, "source": {"component": "kubelet"},
        });
        let events: Api<Event> = Api::namespaced(f.client.clone(), f.namespace.name());
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
        waits(&f, "mount", "a ConfigMap, Secret or claim that it mounts is missing (FailedMount)").await;
    });
}

#[test]
fn a_driver_that_stays_pending_too_long_is_given_up() {
    block_on(async {
        let tune = |options: &mut firesteel_operator::Options| {
            options.limits.pending_timeout = Some(SignedDuration::from_secs(3));
        };
        let Some(f) = Fixture::tuned("pending", tune).await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        let app = f.wait_state("pi", "FAILED").await;
        let text = message(&app);
        assert!(text.starts_with("driver pod pi-driver was still pending after 3 s: no node takes it"), "{text}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while f.pods.get_opt("pi-driver").await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "the driver may still start");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn a_driver_in_an_unknown_state_is_unknown_until_it_is_reported_again() {
    block_on(async {
        let Some(f) = Fixture::new("unknown").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.pod_status("pi", &json!({"phase": "Unknown"})).await;
        f.wait_state("pi", "UNKNOWN").await;
        f.event("SparkDriverUnknown").await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
    });
}
