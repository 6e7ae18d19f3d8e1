//! What every pass over an application shares.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firesteel_api::SparkApplication;
use firesteel_core::driver_pod::{self, PodPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::metrics::{Census, Metrics, Tally};
use crate::options::Options;
use crate::pods::{AppKey, PodIndex};
use crate::scope::Scope;
use crate::tell::News;
use crate::turns::{Kind, Turns};

/// The first wait after a failed pass; it doubles from there.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub struct Context {
    pub client: Client,
    pub options: Options,
    /// Where to act.
    pub scope: Arc<Scope>,
    /// Applications, as they are known now.
    pub apps: Store<DeserializeGuard<SparkApplication>>,
    pub pods: Arc<PodIndex>,
    pub news: Arc<News>,
    pub metrics: Arc<Metrics>,
    pub turns: Arc<Turns<Kind>>,
    /// The operator ends: nothing new is begun.
    pub ending: CancellationToken,
    /// Versions of applications that this operator itself has replaced: a cache that still shows one lags behind.
    replaced: Mutex<HashMap<AppKey, String>>,
    failures: Mutex<HashMap<AppKey, u32>>,
}

impl Context {
    #[expect(clippy::too_many_arguments, reason = "all that passes share")]
    pub fn new(
        client: Client,
        options: Options,
        scope: Arc<Scope>,
        apps: Store<DeserializeGuard<SparkApplication>>,
        metrics: Arc<Metrics>,
        turns: Arc<Turns<Kind>>,
        news: Arc<News>,
        ending: CancellationToken,
    ) -> Self {
        Context {
            client,
            news,
            options,
            scope,
            apps,
            pods: Arc::default(),
            metrics,
            turns,
            ending,
            replaced: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Remembers that `version` of an application is no longer the current one.
    pub(crate) fn replaced(&self, key: AppKey, version: String) {
        lock(&self.replaced).insert(key, version);
    }

    /// Whether a version is known to be out of date.
    pub(crate) fn is_replaced(&self, key: &AppKey, version: &str) -> bool {
        let mut replaced = lock(&self.replaced);
        match replaced.get(key) {
            Some(old) if old == version => true,
            Some(_) => {
                replaced.remove(key);
                false
            }
            None => false,
        }
    }

    pub(crate) fn succeeded(&self, key: &AppKey) {
        lock(&self.failures).remove(key);
    }

    /// How long to wait after one more failure.
    pub(crate) fn failed(&self, key: AppKey) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key).or_default();
        let wait = FIRST_WAIT.saturating_mul(1 << (*count).min(10)).min(LONGEST_WAIT);
        *count = count.saturating_add(1);
        wait
    }

    /// Forgets an application that is no more.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        lock(&self.replaced).remove(&key);
        lock(&self.failures).remove(&key);
        self.pods.forget(namespace, name);
    }

    /// Forgets every application but these.
    pub(crate) fn keep_only(&self, apps: &HashSet<AppKey>) {
        lock(&self.replaced).retain(|key, _| apps.contains(key));
        lock(&self.failures).retain(|key, _| apps.contains(key));
        self.pods.keep_only(apps);
    }
}

impl Census for Context {
    fn count(&self, tally: &mut Tally) {
        for app in self.apps.state() {
            let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
            if !self.scope.covers(&namespace) {
                continue;
            }
            let running = match &app.0 {
                Ok(app) => app.status.as_ref().is_some_and(|s| s.application_state.state == "RUNNING"),
                // Its driver may run all the same.
                Err(_) => self.pods.of(&namespace, &name).drivers.values().any(|pod| is_running(pod)),
            };
            tally.running_applications(&namespace, i64::from(running));
        }
        for (namespace, count) in self.pods.running_executors() {
            if self.scope.covers(&namespace) {
                tally.running_executors(&namespace, count);
            }
        }
    }
}

fn is_running(driver: &Pod) -> bool {
    let phase = driver_pod::phase(driver.status.as_ref().and_then(|s| s.phase.as_deref()));
    phase == PodPhase::Running && driver.metadata.deletion_timestamp.is_none()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
