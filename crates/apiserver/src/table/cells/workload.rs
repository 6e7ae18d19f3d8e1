//! Cells of workloads.

use jiff::Timestamp;
use serde_json::Value;

use super::{Cells, Row, containers, count, int, labels, list, or, text};
use crate::meta;
use crate::table::{age_of, short_duration};

pub(super) fn cells(row: Row<'_>) -> Cells {
    let Row { resource, object, name, age, now } = row;
    let template = "/spec/template/spec/containers";
    let workload = |selector: &str| {
        [containers(object, template, "/name"), containers(object, template, "/image"), labels(object, selector)]
    };
    match resource {
        "replicationcontrollers" | "replicasets" => {
            let at = if resource == "replicasets" { "/spec/selector/matchLabels" } else { "/spec/selector" };
            let [names, images, selector] = workload(at);
            vec![
                name,
                int(object, "/spec/replicas"),
                int(object, "/status/replicas"),
                int(object, "/status/readyReplicas"),
                age,
                names,
                images,
                selector,
            ]
        }
        "deployments" => {
            let [names, images, selector] = workload("/spec/selector/matchLabels");
            let ready = format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas"));
            vec![
                name,
                ready.into(),
                int(object, "/status/updatedReplicas"),
                int(object, "/status/availableReplicas"),
                age,
                names,
                images,
                selector,
            ]
        }
        "statefulsets" => {
            let [names, images, _] = workload("/spec/selector/matchLabels");
            let ready = format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas"));
            vec![name, ready.into(), age, names, images]
        }
        "daemonsets" => {
            let [names, images, selector] = workload("/spec/selector/matchLabels");
            vec![
                name,
                int(object, "/status/desiredNumberScheduled"),
                int(object, "/status/currentNumberScheduled"),
                int(object, "/status/numberReady"),
                int(object, "/status/updatedNumberScheduled"),
                int(object, "/status/numberAvailable"),
                labels(object, "/spec/template/spec/nodeSelector"),
                age,
                names,
                images,
                selector,
            ]
        }
        "controllerrevisions" => {
            let owner =
                list(object, "/metadata/ownerReferences").find(|o| o.get("controller").is_some_and(|c| c == true));
            let controller = owner.map_or("<none>".to_owned(), |o| {
                format!("{}/{}", meta::text(o, "/kind").to_lowercase(), meta::text(o, "/name"))
            });
            vec![name, controller.into(), int(object, "/revision"), age]
        }
        "jobs" => job(object, name, age, now),
        "cronjobs" => {
            let at = "/spec/jobTemplate/spec/template/spec/containers";
            let last = match meta::text(object, "/status/lastScheduleTime") {
                "" => "<none>".to_owned(),
                time => age_of(time, now),
            };
            vec![
                name,
                text(object, "/spec/schedule"),
                or(object, "/spec/timeZone", "<none>"),
                object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default().into(),
                count(object, "/status/active").into(),
                last.into(),
                age,
                containers(object, at, "/name"),
                containers(object, at, "/image"),
                "<none>".into(),
            ]
        }
        "podtemplates" => {
            let at = "/template/spec/containers";
            vec![
                name,
                containers(object, at, "/name"),
                containers(object, at, "/image"),
                labels(object, "/template/metadata/labels"),
            ]
        }
        "horizontalpodautoscalers" => {
            let target = "/spec/scaleTargetRef";
            let reference = format!(
                "{}/{}",
                meta::text(object, &format!("{target}/kind")),
                meta::text(object, &format!("{target}/name"))
            );
            vec![
                name,
                reference.into(),
                metrics(object).into(),
                or(object, "/spec/minReplicas", "<unset>"),
                int(object, "/spec/maxReplicas"),
                int(object, "/status/currentReplicas"),
                age,
            ]
        }
        _ => vec![name, age],
    }
}

/// An autoscaler's metrics: current and target.
fn metrics(object: &Value) -> String {
    const SHOWN: usize = 2;
    let now: Vec<&Value> = list(object, "/status/currentMetrics").collect();
    let all: Vec<String> = list(object, "/spec/metrics")
        .enumerate()
        .map(|(index, metric)| {
            let source = match meta::text(metric, "/type") {
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                "Pods" => "pods",
                "Object" => "object",
                _ => "external",
            };
            let of = |holder: Option<&&Value>, place: &str| {
                let values = holder.and_then(|h| h.pointer(&format!("/{source}/{place}")))?;
                let percent = values.get("averageUtilization").and_then(Value::as_i64).map(|p| format!("{p}%"));
                let plain = ["averageValue", "value"].iter().find_map(|f| values.get(*f)?.as_str().map(str::to_owned));
                plain.or(percent)
            };
            let current = of(now.get(index), "current").unwrap_or_else(|| "<unknown>".into());
            let wanted = of(Some(&metric), "target").unwrap_or_else(|| "<auto>".into());
            match meta::text(metric, &format!("/{source}/name")) {
                "" => format!("{current}/{wanted}"),
                name => format!("{name}: {current}/{wanted}"),
            }
        })
        .collect();
    match all.len() {
        0 => "<none>".into(),
        more if more > SHOWN => format!("{} + {} more...", all[..SHOWN].join(", "), more - SHOWN),
        _ => all.join(", "),
    }
}

fn job(object: &Value, name: Value, age: Value, now: Timestamp) -> Cells {
    let at = "/spec/template/spec/containers";
    let done = int(object, "/status/succeeded");
    let completions = match (
        object.pointer("/spec/completions").and_then(Value::as_i64),
        object.pointer("/spec/parallelism").and_then(Value::as_i64),
    ) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    };
    let has = |kind: &str| {
        list(object, "/status/conditions")
            .any(|c| c.get("type").is_some_and(|t| t == kind) && c.get("status").is_some_and(|s| s == "True"))
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if meta::deleting(object) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let duration = match meta::text(object, "/status/startTime").parse::<Timestamp>() {
        Err(_) => String::new(),
        Ok(start) => {
            let end = meta::text(object, "/status/completionTime").parse::<Timestamp>().unwrap_or(now);
            short_duration(end.duration_since(start).as_secs())
        }
    };
    vec![
        name,
        status.into(),
        completions.into(),
        duration.into(),
        age,
        containers(object, at, "/name"),
        containers(object, at, "/image"),
        labels(object, "/spec/selector/matchLabels"),
    ]
}
