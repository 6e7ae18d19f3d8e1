//! What every namespace has: the service account `default` and the ConfigMap `kube-root-ca.crt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::ResourceExt;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::controller::Controller;
use crate::controllers::ignore;
use crate::queue::Next;
use crate::watched::Key;
use crate::world::{ROOT_CA, World};

const DEFAULT: &str = "default";

/// What a namespace lacks.
#[derive(Debug, PartialEq, Eq)]
enum Lack {
    ServiceAccount,
    RootCa,
    /// The ConfigMap is there but holds something else.
    RightRootCa,
}

fn lacks(namespace: Option<&Namespace>, account: bool, root_ca: Option<&ConfigMap>, ca_pem: &str) -> Vec<Lack> {
    if namespace.is_none_or(|n| n.metadata.deletion_timestamp.is_some()) {
        return Vec::new();
    }
    let mut lacks = Vec::new();
    if !account {
        lacks.push(Lack::ServiceAccount);
    }
    let right = |map: &ConfigMap| map.data.as_ref().and_then(|d| d.get("ca.crt")).is_some_and(|ca| ca == ca_pem);
    match root_ca {
        None => lacks.push(Lack::RootCa),
        Some(map) if !right(map) => lacks.push(Lack::RightRootCa),
        Some(_) => {}
    }
    lacks
}

pub(crate) fn start(world: &Arc<World>, ca_pem: String, tasks: &mut JoinSet<()>) {
    let ca_pem: Arc<str> = ca_pem.into();
    Controller::new("service accounts", world)
        .watches(&world.namespaces, |_, change| [change.object().name_any()])
        .watches(&world.service_accounts, |_, change| [change.object().namespace().unwrap_or_default()])
        .watches(&world.root_cas, |_, change| [change.object().namespace().unwrap_or_default()])
        .run(tasks, 4, move |world, namespace| provide(world, Arc::clone(&ca_pem), namespace));
}

async fn provide(world: Arc<World>, ca_pem: Arc<str>, name: String) -> anyhow::Result<Next> {
    let namespace = world.namespaces.get(&Key::new("", &name));
    let account = world.service_accounts.get(&Key::new(&name, DEFAULT)).is_some();
    let root_ca = world.root_cas.get(&Key::new(&name, ROOT_CA));
    for lack in lacks(namespace.as_deref(), account, root_ca.as_deref(), &ca_pem) {
        let outcome = match lack {
            Lack::ServiceAccount => {
                let meta = ObjectMeta { name: Some(DEFAULT.to_owned()), ..ObjectMeta::default() };
                let account = ServiceAccount { metadata: meta, ..ServiceAccount::default() };
                world.api::<ServiceAccount>(&name).create(&PostParams::default(), &account).await.map(|_| ())
            }
            Lack::RootCa => {
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
                world.api::<ConfigMap>(&name).create(&PostParams::default(), &map).await.map(|_| ())
            }
            Lack::RightRootCa => {
                let patch = json!({"data": {"ca.crt": &*ca_pem}});
                let api = world.api::<ConfigMap>(&name);
                api.patch(ROOT_CA, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| ())
            }
        };
        ignore::unless(outcome, |status| status.is_already_exists() || status.is_not_found())?;
    }
    Ok(Next::Wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ca: &str) -> ConfigMap {
        ConfigMap { data: Some(BTreeMap::from([("ca.crt".to_owned(), ca.to_owned())])), ..ConfigMap::default() }
    }

    #[test]
    fn a_new_namespace_gets_both() {
        assert_eq!(lacks(Some(&Namespace::default()), false, None, "ca"), [Lack::ServiceAccount, Lack::RootCa]);
        assert_eq!(lacks(Some(&Namespace::default()), true, Some(&map("ca")), "ca"), []);
    }

    #[test]
    fn an_old_certificate_authority_is_replaced() {
        assert_eq!(lacks(Some(&Namespace::default()), true, Some(&map("old")), "ca"), [Lack::RightRootCa]);
    }

    #[test]
    fn a_namespace_that_goes_gets_nothing() {
        let mut namespace = Namespace::default();
        namespace.metadata.deletion_timestamp = serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).ok();
        assert_eq!(lacks(Some(&namespace), false, None, "ca"), []);
        assert_eq!(lacks(None, false, None, "ca"), []);
    }
}
