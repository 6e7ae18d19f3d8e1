//! Endpoints and EndpointSlices: the pods behind each Service.
//!
//! A real API server rejects loopback addresses in both. Such a write is not retried until something changes.

mod backends;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use tokio::task::JoinSet;

use crate::controllers::controller::Controller;
use crate::controllers::ignore;
use crate::informer::{Change, Key};
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 8;

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    Controller::new("endpoints", informers)
        .reconciles(&informers.services)
        .watches(&informers.pods, |informers, change| {
            if let Change::Applied { old: Some(old), new } = change
                && backends::same_to_services(old, new)
            {
                return Vec::new();
            }
            let services = informers.services.in_namespace(&change.object().namespace().unwrap_or_default());
            let selects = |service: &&Arc<Service>| change.states().any(|pod| backends::selects(service, pod));
            services.iter().filter(selects).map(|s| Key::of(&**s)).collect()
        })
        // Restore slices that somebody else deleted.
        .watches(&informers.slices, |_, change| match change {
            Change::Deleted(slice) => {
                backends::service_of(slice).map(|service| Key::new(&slice.namespace().unwrap_or_default(), &service))
            }
            Change::Applied { .. } => None,
        })
        .run(tasks, WORKERS, reconcile);
}

async fn reconcile(informers: Arc<Informers>, key: Key) -> anyhow::Result<Action> {
    let service = informers.services.get(&key).filter(|s| s.metadata.deletion_timestamp.is_none());
    let Some(service) = service else {
        // Slices are owned by the Service and garbage collected; Endpoints only share its name.
        let ours = |e: &Arc<Endpoints>| e.labels().get(backends::MANAGED_BY).is_some_and(|m| m == backends::MANAGER);
        if informers.endpoints.get(&key).as_ref().is_some_and(ours) {
            let api = informers.api::<Endpoints>(&key.namespace);
            ignore::not_found(api.delete(&key.name, &DeleteParams::default()).await).context("delete endpoints")?;
        }
        return Ok(Action::AwaitChange);
    };
    if !backends::has_selector(&service) {
        return Ok(Action::AwaitChange);
    }
    let pods = informers.pods.in_namespace(&key.namespace);
    let groups = backends::group(&service, pods.iter().map(|p| &**p));
    write_endpoints(&informers, &service, &groups).await?;
    write_slices(&informers, &service, &groups).await?;
    Ok(Action::AwaitChange)
}

async fn write_endpoints(informers: &Informers, service: &Service, groups: &[backends::Group]) -> anyhow::Result<()> {
    let key = Key::of(service);
    let api = informers.api::<Endpoints>(&key.namespace);
    let mut wanted = backends::endpoints(service, groups);
    let written = match informers.endpoints.get(&key) {
        Some(old) if old.subsets == wanted.subsets && old.metadata.labels == wanted.metadata.labels => return Ok(()),
        Some(old) => {
            wanted.metadata.resource_version = old.resource_version();
            api.replace(&key.name, &PostParams::default(), &wanted).await
        }
        None => api.create(&PostParams::default(), &wanted).await,
    };
    if let Some(written) = unless_refused(written).context("write endpoints")? {
        informers.endpoints.wait_for_write(&written).await;
    }
    Ok(())
}

async fn write_slices(informers: &Informers, service: &Service, groups: &[backends::Group]) -> anyhow::Result<()> {
    let key = Key::of(service);
    let api = informers.api::<EndpointSlice>(&key.namespace);
    let wanted = backends::slices(service, groups);
    let names: BTreeSet<String> = wanted.iter().map(ResourceExt::name_any).collect();
    for mut slice in wanted {
        let name = slice.name_any();
        let written = match informers.slices.get(&Key::new(&key.namespace, &name)) {
            Some(old)
                if old.endpoints == slice.endpoints
                    && old.ports == slice.ports
                    && old.metadata.labels == slice.metadata.labels =>
            {
                continue;
            }
            Some(old) => {
                slice.metadata.resource_version = old.resource_version();
                api.replace(&name, &PostParams::default(), &slice).await
            }
            None => api.create(&PostParams::default(), &slice).await,
        };
        if let Some(written) = unless_refused(written).context("write endpoint slice")? {
            informers.slices.wait_for_write(&written).await;
        }
    }
    let ours = informers.slices.controlled_by(&service.uid().unwrap_or_default());
    for slice in ours.iter().filter(|s| !names.contains(&s.name_any())) {
        ignore::not_found(api.delete(&slice.name_any(), &DeleteParams::default()).await)
            .context("delete endpoint slice")?;
    }
    Ok(())
}

fn unless_refused<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore::unless(outcome, |status| {
        let refused = status.is_invalid() || status.is_not_found() || status.is_forbidden();
        if refused {
            tracing::debug!("endpoints refused: {}", status.message);
        }
        refused
    })
}
