//! Admission for drivers that share a service account: each may write the status of its own grant and of no other.
//!
//! RBAC cannot tell two pods of one account apart; a ValidatingAdmissionPolicy can, by the pod that a token is bound to.

use serde_json::{Value, json};

const NAME: &str = "firesteel-executor-grants";
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
    let expression = format!("!request.userInfo.username.startsWith('system:serviceaccount:') || ({own_pod})");
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
            "validations": [{
                "expression": expression,
                "message": "a driver may write the status of its own ExecutorGrant only",
                "reason": "Forbidden",
            }],
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
