//! Validating admission policies where a comparison with the real server would race its informers: parameters, and the pod a token is
//! bound to.

use serde_json::json;

use crate::client::{cluster, send_as};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

#[tokio::test]
async fn a_policy_reads_the_parameters_its_binding_names() {
    let cluster = cluster().await;
    let limits = json!({"metadata": {"name": "limits"}, "spec": {"leaseDurationSeconds": 3}});
    cluster.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", &limits).await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}]},
        "validations": [{
            "expression": "object.metadata.name.size() <= params.spec.leaseDurationSeconds",
            "messageExpression": "'at most ' + string(params.spec.leaseDurationSeconds)",
        }],
    }});
    let made = cluster.post(POLICIES, &policy).await;
    assert_eq!(made.code, 201, "{made:?}");
    let binding = |name: &str, lease: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": lease, "namespace": "default", "parameterNotFoundAction": "Deny"},
        }})
    };
    assert_eq!(cluster.post(BINDINGS, &binding("b", "limits")).await.code, 201);
    let secrets = "/api/v1/namespaces/default/secrets";
    let refused = cluster.post(secrets, &json!({"metadata": {"name": "abcdef"}})).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (
            422,
            Some(
                "secrets \"abcdef\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: at most 3"
            )
        )
    );
    assert_eq!(cluster.post(secrets, &json!({"metadata": {"name": "abc"}})).await.code, 201);
    cluster.post(BINDINGS, &binding("c", "missing")).await;
    let refused = cluster.post(secrets, &json!({"metadata": {"name": "ab"}})).await;
    assert_eq!(
        refused.body["message"],
        "secrets \"ab\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'c' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    );
}

/// Keeps drivers that share a service account from writing each other's objects.
#[tokio::test]
async fn a_policy_tells_pods_of_one_account_apart_by_their_tokens() {
    let cluster = cluster().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let maps = "/api/v1/namespaces/default/configmaps";
    cluster.post(accounts, &json!({"metadata": {"name": "spark"}})).await;
    let binding = json!({
        "metadata": {"name": "spark"}, "roleRef": {"kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "spark", "namespace": "default"}],
    });
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).await;
    let policy = json!({"metadata": {"name": "own-pod"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "matchConditions": [{"name": "from-a-pod", "expression": "has(request.userInfo.extra) && 'authentication.kubernetes.io/pod-uid' in request.userInfo.extra"}],
        "validations": [{
            "expression": "request.userInfo.extra['authentication.kubernetes.io/pod-uid'][0] == oldObject.data.pod",
            "message": "this belongs to another pod", "reason": "Forbidden",
        }],
    }});
    assert_eq!(cluster.post(POLICIES, &policy).await.code, 201);
    let bound =
        json!({"metadata": {"name": "own-pod"}, "spec": {"policyName": "own-pod", "validationActions": ["Deny"]}});
    assert_eq!(cluster.post(BINDINGS, &bound).await.code, 201);
    let mut tokens = Vec::new();
    for name in ["one", "two"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"serviceAccountName": "spark", "containers": [{"name": "c", "image": "x:1"}]}});
        let pod = cluster.post("/api/v1/namespaces/default/pods", &pod).await;
        let uid = pod.body["metadata"]["uid"].as_str().expect("uid");
        cluster.post(maps, &json!({"metadata": {"name": name}, "data": {"pod": uid}})).await;
        let request = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name}}});
        let issued = cluster.post(&format!("{accounts}/spark/token"), &request).await;
        tokens.push(issued.body["status"]["token"].as_str().expect("a token").to_owned());
    }
    let nobody = crate::access::anonymous(&cluster).await;
    let write = |token: String, name: &'static str| {
        let client = nobody.clone();
        async move {
            let bearer = format!("Bearer {token}");
            let headers = [("authorization", bearer.as_str()), ("content-type", "application/merge-patch+json")];
            send_as(&client, "PATCH", &format!("{maps}/{name}"), &headers, br#"{"data":{"x":"1"}}"#.to_vec()).await
        }
    };
    assert_eq!(write(tokens[0].clone(), "one").await.code, 200);
    let refused = write(tokens[0].clone(), "two").await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (
            403,
            Some(
                "configmaps \"two\" is forbidden: ValidatingAdmissionPolicy 'own-pod' with binding 'own-pod' denied request: this belongs to another pod"
            )
        )
    );
    assert_eq!(write(tokens[1].clone(), "two").await.code, 200);
}
