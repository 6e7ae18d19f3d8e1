//! Creates what every namespace has: the service account `default` and the ConfigMap `kube-root-ca.crt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::ResourceExt;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::controller::Controller;
use crate::controllers::ignore;
use crate::informer::Key;
use crate::informers::{Informers, ROOT_CA};
use crate::work_queue::Action;

const DEFAULT: &str = "default";

/// What a namespace is missing.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    ServiceAccount,
    RootCa,
    /// The ConfigMap exists but holds another CA.
    StaleRootCa,
}

fn missing(namespace: Option<&Namespace>, account: bool, root_ca: Option<&ConfigMap>, ca_pem: &str) -> Vec<Missing> {
    if namespace.is_none_or(|n| n.metadata.deletion_timestamp.is_some()) {
        return Vec::new();
    }
    let mut missing = Vec::new();
    if !account {
        missing.push(Missing::ServiceAccount);
    }
    let right = |map: &ConfigMap| map.data.as_ref().and_then(|d| d.get("ca.crt")).is_some_and(|ca| ca == ca_pem);
    match root_ca {
        None => missing.push(Missing::RootCa),
        Some(map) if !right(map) => missing.push(Missing::StaleRootCa),
        Some(_) => {}
    }
    missing
}

pub(crate) fn start(informers: &Arc<Informers>, ca_pem: String, tasks: &mut JoinSet<()>) {
    let ca_pem: Arc<str> = ca_pem.into();
    Controller::new("service accounts", informers)
        .watches(&informers.namespaces, |_, change| [change.object().name_any()])
        .watches(&informers.service_accounts, |_, change| [change.object().namespace().unwrap_or_default()])
        .watches(&informers.root_cas, |_, change| [change.object().namespace().unwrap_or_default()])
        .run(tasks, 4, move |informers, namespace| provide(informers, Arc::clone(&ca_pem), namespace));
}

async fn provide(informers: Arc<Informers>, ca_pem: Arc<str>, name: String) -> anyhow::Result<Action> {
    let namespace = informers.namespaces.get(&Key::new("", &name));
    let account = informers.service_accounts.get(&Key::new(&name, DEFAULT)).is_some();
    let root_ca = informers.root_cas.get(&Key::new(&name, ROOT_CA));
    for gap in missing(namespace.as_deref(), account, root_ca.as_deref(), &ca_pem) {
        let outcome = match gap {
            Missing::ServiceAccount => {
                let meta = ObjectMeta { name: Some(DEFAULT.to_owned()), ..ObjectMeta::default() };
                let account = ServiceAccount { metadata: meta, ..ServiceAccount::default() };
                informers.api::<ServiceAccount>(&name).create(&PostParams::default(), &account).await.map(|_| ())
            }
            Missing::RootCa => {
                let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                            endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                            guaranteed across distributions of Kubernetes clusters.";
                let meta = ObjectMeta {
                    name: Some(ROOT_CA.to_owned()),
                    annotations: Some(BTreeMap::from([("kubernetes.io/description".to_owned(), note.to_owned())])),
                    ..ObjectMeta::default()
                };
                let data = Some(BTreeMap::from([("ca.crt".to_owned(), ca_pem.to_string())]));
                let map = ConfigMap { metadata: meta, data, ..ConfigMap::default() };
                informers.api::<ConfigMap>(&name).create(&PostParams::default(), &map).await.map(|_| ())
            }
            Missing::StaleRootCa => {
                let patch = json!({"data": {"ca.crt": &*ca_pem}});
                let api = informers.api::<ConfigMap>(&name);
                api.patch(ROOT_CA, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| ())
            }
        };
        ignore::unless(outcome, |status| status.is_already_exists() || status.is_not_found())?;
    }
    Ok(Action::AwaitChange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ca: &str) -> ConfigMap {
        ConfigMap { data: Some(BTreeMap::from([("ca.crt".to_owned(), ca.to_owned())])), ..ConfigMap::default() }
    }

    #[test]
    fn a_new_namespace_gets_both() {
        assert_eq!(missing(Some(&Namespace::default()), false, None, "ca"), [Missing::ServiceAccount, Missing::RootCa]);
        assert_eq!(missing(Some(&Namespace::default()), true, Some(&map("ca")), "ca"), []);
    }

    #[test]
    fn an_old_certificate_authority_is_replaced() {
        assert_eq!(missing(Some(&Namespace::default()), true, Some(&map("old")), "ca"), [Missing::StaleRootCa]);
    }

    #[test]
    fn a_namespace_that_goes_gets_nothing() {
        let mut namespace = Namespace::default();
        namespace.metadata.deletion_timestamp = serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).ok();
        assert_eq!(missing(Some(&namespace), false, None, "ca"), []);
        assert_eq!(missing(None, false, None, "ca"), []);
    }
}
