//! The namespaces the operator works in: all, those listed by name, and those matching a label selector.
//!
//! Labels change while the operator runs. A namespace's applications are reconciled as soon as it matches. Once it no
//! longer matches, nothing in it is written any more, and its drivers run on without the operator. With a selector,
//! watches span the cluster, so that their number does not grow with the number of namespaces; objects of other
//! namespaces are cached but never acted on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use crate::error::{Class, class, words};
use crate::options::Options;

/// How long an API server may take to check a selector.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which namespaces are covered.
#[derive(Debug)]
pub(crate) struct Scope {
    named: BTreeSet<String>,
    selector: Option<String>,
    /// Namespaces that match the selector; `None` until they have been listed.
    selected: watch::Sender<Option<BTreeSet<String>>>,
}

impl Scope {
    /// Same semantics as the existing operator's flags: names and selector add up, and neither means all namespaces.
    pub(crate) fn new(options: &Options) -> Self {
        Scope {
            named: options.namespaces.iter().cloned().collect(),
            selector: options.namespace_selector.clone(),
            selected: watch::Sender::new(None),
        }
    }

    /// The namespaces to watch one by one; `None` for the whole cluster.
    pub(crate) fn watched(&self) -> Vec<Option<String>> {
        if self.selector.is_some() || self.named.is_empty() {
            return vec![None];
        }
        self.named.iter().cloned().map(Some).collect()
    }

    /// Whether the operator may act in a namespace.
    pub(crate) fn covers(&self, namespace: &str) -> bool {
        if self.named.contains(namespace) {
            return true;
        }
        match self.selector {
            Some(_) => self.selected.borrow().as_ref().is_some_and(|selected| selected.contains(namespace)),
            None => self.named.is_empty(),
        }
    }

    /// Waits until the matching namespaces are known.
    pub(crate) async fn synced(&self) {
        if self.selector.is_some() {
            // The sender lives as long as `self`, so this cannot fail before it is true.
            let _ = self.selected.subscribe().wait_for(Option::is_some).await;
        }
    }

    /// Rejects a selector that the API server does not understand or that this operator may not use. An unreachable API
    /// server is no reason to fail: the watch retries.
    pub(crate) async fn check(&self, client: &Client) -> anyhow::Result<()> {
        let Some(selector) = &self.selector else { return Ok(()) };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let one = ListParams::default().labels(selector).limit(1);
        let Ok(Err(error)) = tokio::time::timeout(PATIENCE, namespaces.list_metadata(&one)).await else {
            return Ok(());
        };
        match (class(&error), &error) {
            (Class::Refused, kube::Error::Api(status)) if status.code == 403 => bail!(
                "--namespace-selector needs permission to list and watch namespaces, which this operator lacks \
                 ({}); bind deploy/operator-role.yaml with a ClusterRoleBinding, or use --namespaces",
                words(&error)
            ),
            (Class::Refused, _) => {
                bail!("--namespace-selector `{selector}` is not a label selector: {}", words(&error))
            }
            _ => Ok(()),
        }
    }

    /// Keeps track of the matching namespaces; never returns.
    pub(crate) async fn follow(&self, client: Client) {
        let Some(selector) = &self.selector else { return std::future::pending().await };
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client);
        let config = watcher::Config::default().labels(selector);
        let mut events = watch_objects(namespaces, config).default_backoff().boxed();
        let mut listed = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(namespace)) => {
                    listed.insert(namespace.name_any());
                }
                Ok(Event::InitDone) => {
                    self.selected.send_replace(Some(std::mem::take(&mut listed)));
                }
                Ok(Event::Apply(namespace)) => self.change(|selected| selected.insert(namespace.name_any())),
                Ok(Event::Delete(namespace)) => self.change(|selected| selected.remove(&namespace.name_any())),
                Err(error) => tracing::warn!(%error, "the namespace watch was interrupted"),
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        self.selected.send_if_modified(|selected| change(selected.get_or_insert_default()));
    }

    /// Calls back for each namespace that joins or leaves the scope; never returns.
    pub(crate) async fn each_change(&self, mut joined: impl FnMut(&str), mut left: impl FnMut(&str)) {
        let mut changes = self.selected.subscribe();
        // Objects cached before the first list are reconciled once it is complete.
        let mut known = BTreeSet::new();
        loop {
            let now = changes.borrow_and_update().clone().unwrap_or_default();
            let matters = |namespace: &&String| !self.named.contains(*namespace);
            known.difference(&now).filter(matters).for_each(|namespace| left(namespace));
            now.difference(&known).filter(matters).for_each(|namespace| joined(namespace));
            known = now;
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn scope(names: &[&str], selector: Option<&str>) -> Scope {
        Scope::new(&Options {
            namespaces: names.iter().map(ToString::to_string).collect(),
            namespace_selector: selector.map(str::to_owned),
            ..Options::default()
        })
    }

    fn select(scope: &Scope, names: &[&str]) {
        scope.selected.send_replace(Some(names.iter().map(ToString::to_string).collect()));
    }

    #[test]
    fn names_and_selector_add_up_and_neither_means_all() {
        let all = scope(&[], None);
        assert!(all.covers("a") && all.watched() == [None]);
        let named = scope(&["a"], None);
        assert!(named.covers("a") && !named.covers("b"));
        assert_eq!(named.watched(), [Some("a".to_owned())]);
        let selected = scope(&[], Some("spark=on"));
        assert!(!selected.covers("a"), "nothing is covered until the namespaces are listed");
        select(&selected, &["b"]);
        assert!(selected.covers("b") && !selected.covers("a") && selected.watched() == [None]);
        let both = scope(&["a"], Some("spark=on"));
        select(&both, &["b"]);
        assert!(both.covers("a") && both.covers("b") && !both.covers("c"));
    }

    #[test]
    fn a_namespace_that_joins_or_leaves_is_reported_once() {
        let scope = scope(&["always"], Some("spark=on"));
        let told = std::cell::RefCell::new(Vec::new());
        let mut following = Box::pin(scope.each_change(
            |namespace| told.borrow_mut().push(format!("+{namespace}")),
            |namespace| told.borrow_mut().push(format!("-{namespace}")),
        ));
        let mut after = |names: &[&str]| {
            select(&scope, names);
            assert!(following.as_mut().now_or_never().is_none());
            std::mem::take(&mut *told.borrow_mut())
        };
        assert_eq!(after(&["a", "always"]), ["+a"]);
        assert_eq!(after(&["a", "b"]), ["+b"]);
        assert_eq!(after(&["b"]), ["-a"]);
        assert!(after(&["b"]).is_empty());
    }
}
