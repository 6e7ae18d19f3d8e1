//! Creates and deletes each driver's exposure objects (Services, Ingresses or HTTPRoutes, PodDisruptionBudget) outside of passes, so that
//! an Ingress that fails or hangs delays no driver.
//!
//! Each application has one job at a time, and the next one starts when it has ended: nothing is deleted while it may still
//! be created. A pass waits briefly for the outcome; an outcome that comes later triggers another pass.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use firesteel_core::conf::Subject;
use firesteel_core::lifecycle::{Exposed, ExposureJob, ExposureOutcome, Work};
use firesteel_core::ui::Exposure;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gateway_api::{self, GatewayApi};
use crate::pods::AppKey;
use crate::writes;

/// How long a pass waits for a job.
const MOMENT: Duration = Duration::from_millis(500);

/// The exposure jobs of all applications.
pub(crate) struct Exposures {
    client: Client,
    gateway_api: Arc<GatewayApi>,
    ending: CancellationToken,
    known: Mutex<HashMap<AppKey, Tracked>>,
    /// Receives applications whose job has ended.
    ended: OnceLock<mpsc::UnboundedSender<AppKey>>,
}

struct Tracked {
    job: ExposureJob,
    /// The job's number, to recognise outdated outcomes.
    number: u64,
    task: Option<JoinHandle<()>>,
    /// Resolves when the job has ended.
    done: Option<oneshot::Receiver<()>>,
}

impl Exposures {
    pub(crate) fn new(client: Client, gateway_api: Arc<GatewayApi>, ending: CancellationToken) -> Self {
        Exposures { client, gateway_api, ending, known: Mutex::default(), ended: OnceLock::new() }
    }

    /// Sets the receiver of applications whose job has ended.
    pub(crate) fn notify(&self, ended: mpsc::UnboundedSender<AppKey>) {
        let _ = self.ended.set(ended);
    }

    /// The state of an application's job.
    pub(crate) fn of(&self, key: &AppKey) -> Option<ExposureJob> {
        self.known().get(key).map(|known| known.job.clone())
    }

    /// Notes a submission whose driver does not run yet.
    pub(crate) fn expect(self: &Arc<Self>, app: &Subject<'_>, submission_id: &str) {
        let work = Work::Wait { submission_id: submission_id.to_owned() };
        self.begin(app, work, 0, false, Box::pin(std::future::ready(ExposureOutcome::default())));
    }

    /// Creates the exposure objects of a submission; waits briefly for the outcome.
    pub(crate) async fn make(
        self: &Arc<Self>,
        app: &Subject<'_>,
        submission_id: &str,
        exposure: Exposure,
    ) -> Option<ExposureJob> {
        let work = Work::Make { submission_id: submission_id.to_owned() };
        let addresses = exposure.ingresses.len() + exposure.routes.len();
        let objects = exposure.services.len() + addresses + usize::from(exposure.budget.is_some());
        let gateway_api = self.gateway_api.clone();
        let (client, namespace) = (self.client.clone(), app.namespace.to_owned());
        let uid = app.uid.to_owned();
        let run = async move {
            let mut exposure = exposure;
            let routes = if exposure.routes.is_empty() { Ok(true) } else { gateway_api.has_routes().await };
            let absent = if matches!(routes, Ok(true)) { Vec::new() } else { std::mem::take(&mut exposure.routes) };
            let mut outcome = writes::create_exposure(&client, &namespace, &uid, &exposure).await;
            for route in absent {
                let what = format!("HTTPRoute {}", route.metadata.name.unwrap_or_default());
                match &routes {
                    Ok(_) => outcome.missing.push(format!("{what}: {}", gateway_api::MISSING)),
                    Err(problem) => outcome.failed.push(format!("{what}: {problem}")),
                }
            }
            outcome
        };
        self.begin(app, work, objects, true, Box::pin(run));
        self.wait(app).await
    }

    /// Deletes the driver's exposure objects; waits briefly for the outcome.
    pub(crate) async fn remove(self: &Arc<Self>, app: &Subject<'_>, exposed: Exposed) -> Option<ExposureJob> {
        let (client, namespace) = (self.client.clone(), app.namespace.to_owned());
        let (name, uid) = (app.name.to_owned(), app.uid.to_owned());
        let key = (app.namespace.to_owned(), app.name.to_owned());
        let made = self.of(&key).and_then(|job| job.outcome).and_then(|outcome| outcome.web_service_uid);
        let gateway_api = self.gateway_api.clone();
        let run = async move {
            // Also without Gateways: an operator that had some may have created routes.
            let routes = async {
                let addressed = exposed.web_ingress.is_some() || exposed.ingresses;
                if !addressed || !gateway_api.has_routes().await.unwrap_or(true) {
                    return Vec::new();
                }
                writes::delete_routes(&client, &namespace, &name, &uid, &exposed).await
            };
            let others = writes::delete_exposure(&client, &namespace, &name, &uid, &exposed, made);
            let (mut outcome, routes) = futures::join!(others, routes);
            outcome.failed.extend(routes);
            outcome
        };
        self.begin(app, Work::Remove, 1, true, Box::pin(run));
        self.wait(app).await
    }

    /// Waits briefly for an application's job to end.
    async fn wait(&self, app: &Subject<'_>) -> Option<ExposureJob> {
        let key = (app.namespace.to_owned(), app.name.to_owned());
        let done = self.known().get_mut(&key).and_then(|known| known.done.take());
        if let Some(done) = done {
            let _ = tokio::time::timeout(MOMENT, done).await;
        }
        self.of(&key)
    }

    /// Starts a job that runs after the current one.
    fn begin(
        self: &Arc<Self>,
        app: &Subject<'_>,
        work: Work,
        objects: usize,
        again: bool,
        run: BoxFuture<'static, ExposureOutcome>,
    ) {
        let key = (app.namespace.to_owned(), app.name.to_owned());
        let now = Timestamp::now();
        let mut all = self.known();
        let before = all.remove(&key);
        let (mut job, task, number) = match before {
            Some(known) if known.job.work == work => {
                if known.job.under_way || !again {
                    all.insert(key, known);
                    return;
                }
                (known.job, known.task, known.number)
            }
            other => {
                let job = ExposureJob {
                    work,
                    objects,
                    under_way: true,
                    failures: 0,
                    first: now,
                    last: now,
                    outcome: None,
                    kind_appeared: false,
                };
                let (task, number) = other.map_or((None, 0), |known| (known.task, known.number));
                (job, task, number)
            }
        };
        let number = number + 1;
        job.kind_appeared = false;
        job.under_way = objects > 0;
        if objects == 0 {
            job.outcome = Some(ExposureOutcome::default());
            all.insert(key, Tracked { job, number, task, done: None });
            return;
        }
        let (end, done) = oneshot::channel();
        let (exposures, ending, known_as) = (self.clone(), self.ending.clone(), key.clone());
        let task = tokio::spawn(async move {
            let run = async {
                if let Some(earlier) = task {
                    let _ = earlier.await;
                }
                run.await
            };
            tokio::select! {
                outcome = run => exposures.note(&known_as, number, outcome),
                () = ending.cancelled() => return,
            }
            // Nobody waits any more: trigger a pass.
            if end.send(()).is_err()
                && let Some(ended) = exposures.ended.get()
            {
                let _ = ended.send(known_as);
            }
        });
        all.insert(key, Tracked { job, number, task: Some(task), done: Some(done) });
    }

    fn note(&self, key: &AppKey, number: u64, outcome: ExposureOutcome) {
        let mut all = self.known();
        let Some(known) = all.get_mut(key).filter(|known| known.number == number) else { return };
        let job = &mut known.job;
        job.under_way = false;
        job.last = Timestamp::now();
        if outcome.failed.is_empty() {
            job.failures = 0;
        } else {
            tracing::warn!(namespace = %key.0, application = %key.1, "{}", outcome.failed.join("; "));
            if job.failures == 0 {
                job.first = job.last;
            }
            job.failures = job.failures.saturating_add(1);
        }
        job.outcome = Some(outcome);
        known.task = None;
        // Either nobody waits, or the waiting pass has already taken it.
        known.done = None;
    }

    /// Changes each time HTTPRoutes appear in the cluster.
    pub(crate) fn route_appearances(&self) -> watch::Receiver<u64> {
        self.gateway_api.appearances()
    }

    /// HTTPRoutes can be created now; returns the applications that lack some.
    pub(crate) fn kind_appeared(&self) -> Vec<AppKey> {
        let mut all = self.known();
        let lacks = |job: &ExposureJob| job.outcome.as_ref().is_some_and(|outcome| !outcome.missing.is_empty());
        let lacking = all.iter_mut().filter(|(_, known)| lacks(&known.job));
        lacking
            .map(|(key, known)| {
                known.job.kind_appeared = true;
                key.clone()
            })
            .collect()
    }

    /// Forgets a deleted application.
    pub(crate) fn forget(&self, key: &AppKey) {
        self.known().remove(key);
    }

    /// Forgets all applications except these.
    pub(crate) fn keep_only(&self, apps: &HashSet<AppKey>) {
        self.known().retain(|key, _| apps.contains(key));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AppKey, Tracked>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
