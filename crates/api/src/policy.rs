//! Admission policy for drivers that share a service account: each may write only the status of its own grant.
//!
//! RBAC cannot distinguish two pods with the same service account; a ValidatingAdmissionPolicy can, by the pod that a token is
//! bound to. Only service account tokens are bound to pods, so other users are exempt. To find out whether the policy is in force,
//! a service account attempts a write and expects a refusal with [`MESSAGE`]; other users use [`is_in_force`].

use serde_json::{Value, json};

/// The name of the policy and of its binding.
pub const NAME: &str = "firesteel-executor-grants";
/// What the API server says when the policy refuses a request.
pub const MESSAGE: &str = "a driver may write the status of its own ExecutorGrant only";
/// Prefix of service account user names.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The command that installs the policy, along with the definitions.
pub const COMMAND: &str = "firesteel crds | kubectl apply --server-side -f -";

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The policy and its binding, for the whole cluster.
pub fn manifests() -> [Value; 2] {
    let own_pod = format!(
        "has(request.userInfo.extra) && '{POD_NAME}' in request.userInfo.extra && \
         request.userInfo.extra['{POD_NAME}'][0] == oldObject.spec.driver.podName && \
         (!has(oldObject.spec.driver.podUid) || ('{POD_UID}' in request.userInfo.extra && \
         request.userInfo.extra['{POD_UID}'][0] == oldObject.spec.driver.podUid))"
    );
    // Pods in other namespaces may have the same name.
    let own_namespace = format!("request.userInfo.username.startsWith('{SERVICE_ACCOUNT}' + request.namespace + ':')");
    let expression =
        format!("!request.userInfo.username.startsWith('{SERVICE_ACCOUNT}') || ({own_namespace} && {own_pod})");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["firesteel.dev"], "apiVersions": ["*"],
                "operations": ["UPDATE"], "resources": ["executorgrants/status"],
            }]},
            "validations": [{"expression": expression, "message": MESSAGE, "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

/// Whether a policy and a binding read from a cluster refuse at least what [`manifests`] do: they contain all of it and have
/// no exceptions.
pub fn is_in_force(policy: &Value, binding: &Value) -> bool {
    let [our_policy, our_binding] = manifests();
    let leaving = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    let constraints = &policy["spec"]["matchConstraints"];
    let every_scope = |rule: &Value| matches!(rule["scope"].as_str(), None | Some("*"));
    let narrower = [
        &policy["spec"]["matchConditions"],
        &policy["spec"]["paramKind"],
        &constraints["excludeResourceRules"],
        &constraints["namespaceSelector"],
        &constraints["objectSelector"],
        &binding["spec"]["matchResources"],
        &binding["spec"]["paramRef"],
    ];
    !leaving(policy)
        && !leaving(binding)
        && holds(&policy["spec"], &our_policy["spec"])
        && holds(&binding["spec"], &our_binding["spec"])
        && constraints["resourceRules"].as_array().is_some_and(|rules| rules.iter().all(every_scope))
        && narrower.into_iter().all(is_empty)
}

/// Whether `value` contains everything in `least`.
pub fn holds(value: &Value, least: &Value) -> bool {
    match (value, least) {
        (Value::Object(value), Value::Object(least)) => {
            least.iter().all(|(key, least)| value.get(key).is_some_and(|value| holds(value, least)))
        }
        (Value::Array(value), Value::Array(least)) => {
            least.iter().all(|least| value.iter().any(|value| holds(value, least)))
        }
        (value, least) => value == least,
    }
}

/// Whether a field is absent or has the API server's default.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        Value::String(word) => word == "Equivalent",
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_in_force_as_installed_and_as_the_api_server_completes_it_and_with_no_exception() {
        let [mut policy, mut binding] = manifests();
        assert!(is_in_force(&policy, &binding));
        policy["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
        policy["spec"]["matchConstraints"]["namespaceSelector"] = json!({});
        policy["spec"]["matchConstraints"]["objectSelector"] = json!({});
        policy["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = json!("*");
        binding["spec"]["validationActions"] = json!(["Deny", "Audit"]);
        binding["spec"]["matchResources"] = json!({"matchPolicy": "Equivalent", "namespaceSelector": {}});
        assert!(is_in_force(&policy, &binding));
        let changes: [(usize, &str, Value); 9] = [
            (0, "/spec/failurePolicy", json!("Ignore")),
            (0, "/spec/validations/0/expression", json!("true")),
            (0, "/spec/matchConditions", json!([{"name": "x", "expression": "false"}])),
            (0, "/spec/matchConstraints/namespaceSelector", json!({"matchLabels": {"a": "b"}})),
            (0, "/spec/matchConstraints/resourceRules/0/scope", json!("Cluster")),
            (0, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            (1, "/spec/validationActions", json!(["Warn"])),
            (1, "/spec/policyName", json!("another")),
            (1, "/spec/matchResources", json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
        ];
        for (which, path, value) in changes {
            let mut pair = [policy.clone(), binding.clone()];
            let (parent, key) = path.rsplit_once('/').unwrap();
            pair[which].pointer_mut(parent).unwrap()[key] = value;
            assert!(!is_in_force(&pair[0], &pair[1]), "{path}");
        }
        assert!(!is_in_force(&Value::Null, &binding) && !is_in_force(&policy, &Value::Null));
    }
}
