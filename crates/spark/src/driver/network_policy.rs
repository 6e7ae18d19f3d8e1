//! The NetworkPolicy that limits ingress to executors to their own application [4.2].

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Draft, Object, PlanError};
use crate::names::label;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let application = BTreeMap::from([(label::APP_ID.to_owned(), draft.app_id().to_owned())]);
    let mut executors = application.clone();
    executors.insert(label::ROLE.to_owned(), label::ROLE_EXECUTOR.to_owned());
    let select = |labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };

    let mut metadata = draft.metadata(&format!("{}-policy", draft.names.prefix));
    metadata.labels = Some(application.clone());
    let spec = NetworkPolicySpec {
        pod_selector: Some(select(executors)),
        policy_types: Some(vec!["Ingress".to_owned()]),
        ingress: Some(vec![NetworkPolicyIngressRule {
            from: Some(vec![NetworkPolicyPeer { pod_selector: Some(select(application)), ..Default::default() }]),
            ..Default::default()
        }]),
        ..Default::default()
    };
    draft.objects.push(Object::NetworkPolicy(NetworkPolicy { metadata, spec: Some(spec) }));
    Ok(())
}
