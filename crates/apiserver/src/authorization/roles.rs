//! The default roles and bindings, and aggregated cluster roles.

use serde_json::{Value, json};

use super::{CLUSTER_ROLES, aggregation};
use crate::bootstrap::ensure;
use crate::meta;
use crate::state::State;
use crate::status::ApiResult;

const GROUP: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn role(name: &str, labels: &[(&str, &str)], rules: &[Value]) -> Value {
    let mut all = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    for (key, value) in labels {
        all[*key] = (*value).into();
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": all, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "rules": rules,
    })
}

fn aggregated(name: &str, labels: &[(&str, &str)], from: &str) -> Value {
    let mut object = role(name, labels, &[]);
    object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {from: "true"}}]});
    object
}

fn binding(name: &str, role: &str, kind: &str, subject: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": subject}],
    })
}

const TO_ADMIN: &str = "rbac.authorization.k8s.io/aggregate-to-admin";
const TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const TO_VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";

fn roles() -> Vec<Value> {
    let everything = rule(&["*"], &["*"], &["*"]);
    let workloads = [
        "daemonsets",
        "deployments",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    let core_views = [
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "services/status",
        "bindings",
        "events",
        "limitranges",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
        "namespaces",
    ];
    let core_edits = [
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ];
    let paths = json!({"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]});
    let health =
        json!({"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]});
    vec![
        role("cluster-admin", &[], &[everything.clone(), json!({"nonResourceURLs": ["*"], "verbs": ["*"]})]),
        aggregated("admin", &[], TO_ADMIN),
        aggregated("edit", &[(TO_ADMIN, "true")], TO_EDIT),
        aggregated("view", &[(TO_EDIT, "true")], TO_VIEW),
        role(
            "system:aggregate-to-admin",
            &[(TO_ADMIN, "true")],
            &[
                rule(&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]),
                rule(&[GROUP], &["roles", "rolebindings"], &[&READ[..], &WRITE[..]].concat()),
            ],
        ),
        role(
            "system:aggregate-to-edit",
            &[(TO_EDIT, "true")],
            &[
                rule(
                    &[""],
                    &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"],
                    &READ,
                ),
                rule(&[""], &["serviceaccounts"], &["impersonate"]),
                rule(&[""], &core_edits, &WRITE),
                rule(&[""], &["pods/eviction", "serviceaccounts/token"], &["create"]),
                rule(&["apps"], &workloads, &WRITE),
                rule(&["apps"], &["deployments/rollback"], &WRITE),
                rule(&["autoscaling"], &["horizontalpodautoscalers"], &WRITE),
                rule(&["batch"], &["cronjobs", "jobs"], &WRITE),
                rule(&["policy"], &["poddisruptionbudgets"], &WRITE),
                rule(&["networking.k8s.io"], &["ingresses", "networkpolicies"], &WRITE),
                rule(&["coordination.k8s.io"], &["leases"], &[&READ[..], &WRITE[..]].concat()),
            ],
        ),
        role(
            "system:aggregate-to-view",
            &[(TO_VIEW, "true")],
            &[
                rule(&[""], &core_views, &READ),
                rule(&["discovery.k8s.io"], &["endpointslices"], &READ),
                rule(
                    &["apps"],
                    &[
                        &workloads[..],
                        &[
                            "controllerrevisions",
                            "daemonsets/status",
                            "deployments/status",
                            "replicasets/status",
                            "statefulsets/status",
                        ],
                    ]
                    .concat(),
                    &READ,
                ),
                rule(&["autoscaling"], &["horizontalpodautoscalers", "horizontalpodautoscalers/status"], &READ),
                rule(&["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"], &READ),
                rule(&["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"], &READ),
                rule(&["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"], &READ),
            ],
        ),
        role("system:discovery", &[], &[paths]),
        role("system:public-info-viewer", &[], &[health]),
        role(
            "system:basic-user",
            &[],
            &[
                rule(&["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], &["create"]),
                rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
            ],
        ),
        role(
            "system:auth-delegator",
            &[],
            &[
                rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
                rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
            ],
        ),
        role(
            "system:node",
            &[],
            &[
                rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
                rule(&["authorization.k8s.io"], &["subjectaccessreviews", "localsubjectaccessreviews"], &["create"]),
                rule(&[""], &["services"], &READ),
                rule(&[""], &["nodes"], &["create", "get", "list", "watch", "update", "patch"]),
                rule(&[""], &["nodes/status"], &["patch", "update"]),
                rule(&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
                rule(&[""], &["pods"], &["create", "delete", "get", "list", "watch"]),
                rule(&[""], &["pods/status"], &["patch", "update"]),
                rule(&[""], &["pods/eviction", "serviceaccounts/token"], &["create"]),
                rule(
                    &[""],
                    &[
                        "configmaps",
                        "secrets",
                        "persistentvolumeclaims",
                        "persistentvolumes",
                        "serviceaccounts",
                        "endpoints",
                    ],
                    &READ,
                ),
                rule(&["coordination.k8s.io"], &["leases"], &["create", "delete", "get", "patch", "update"]),
                rule(
                    &["storage.k8s.io"],
                    &["csinodes", "csidrivers", "storageclasses", "volumeattachments"],
                    &[&READ[..], &WRITE[..]].concat(),
                ),
                rule(&["node.k8s.io"], &["runtimeclasses"], &READ),
                rule(&["discovery.k8s.io"], &["endpointslices"], &READ),
            ],
        ),
        role("system:kube-scheduler", &[], std::slice::from_ref(&everything)),
        role("system:kube-controller-manager", &[], std::slice::from_ref(&everything)),
    ]
}

/// Creates missing default roles and bindings.
pub(crate) async fn bootstrap(state: &State) -> ApiResult<()> {
    for role in roles() {
        ensure(state, GROUP, "v1", "clusterroles", role).await?;
    }
    for (name, role, kind, subject) in [
        ("cluster-admin", "cluster-admin", "Group", "system:masters"),
        ("system:discovery", "system:discovery", "Group", "system:authenticated"),
        ("system:basic-user", "system:basic-user", "Group", "system:authenticated"),
        ("system:public-info-viewer", "system:public-info-viewer", "Group", "system:authenticated"),
        ("system:public-info-viewer:anonymous", "system:public-info-viewer", "Group", "system:unauthenticated"),
        // The real server has a node authorizer; here nodes are a group with a role.
        ("system:node", "system:node", "Group", "system:nodes"),
        ("system:kube-scheduler", "system:kube-scheduler", "User", "system:kube-scheduler"),
        ("system:kube-controller-manager", "system:kube-controller-manager", "User", "system:kube-controller-manager"),
    ] {
        ensure(state, GROUP, "v1", "clusterrolebindings", binding(name, role, kind, subject)).await?;
    }
    aggregate(state).await;
    Ok(())
}

/// Updates aggregated roles until nothing changes: one may aggregate another.
pub(crate) async fn aggregate(state: &State) {
    let Some(kind) = state.kinds.load().find(GROUP, "v1", "clusterroles") else { return };
    for _ in 0..8 {
        let Ok(all) = state.store.list(CLUSTER_ROLES, None, None, usize::MAX, None, |_| true) else { return };
        let mut changed = false;
        for (_, target) in &all.items {
            let selectors = aggregation(&target.value());
            if selectors.is_empty() {
                continue;
            }
            let mut rules: Vec<Value> = Vec::new();
            for (_, source) in &all.items {
                let own = meta::name(&source.value()) == meta::name(&target.value());
                if own || !selectors.iter().any(|s| s.matches(meta::labels(&source.value()))) {
                    continue;
                }
                for rule in source.value().get("rules").and_then(Value::as_array).into_iter().flatten() {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
            if target.value().get("rules").and_then(Value::as_array) == Some(&rules) {
                continue;
            }
            let mut next = Value::clone(&target.value());
            next["rules"] = rules.into();
            changed |= matches!(state.replace(&kind, target, next).await, Ok(Some(_)));
        }
        if !changed {
            return;
        }
    }
}
