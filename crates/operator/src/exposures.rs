//! What stands around drivers, made and removed beside the passes: an Ingress that the cluster fails at, or does not answer
//! for, keeps no driver waiting.
//!
//! For each application one piece of work is under way at a time, and the next begins when it has ended: nothing is removed
//! while it may still be made. A pass waits a moment for the outcome; if it comes later, it brings the next pass.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use firesteel_core::conf::Subject;
use firesteel_core::lifecycle::{Around, Exposed, ExposureOutcome, Work};
use firesteel_core::ui::Exposure;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::pods::AppKey;
use crate::writes;

/// How long a pass waits for work to end.
const MOMENT: Duration = Duration::from_millis(500);

/// What is known of the work on what stands around each driver.
pub struct Exposures {
    client: Client,
    ending: CancellationToken,
    known: Mutex<HashMap<AppKey, Known>>,
    /// Who is told about applications whose work has ended.
    ended: OnceLock<mpsc::UnboundedSender<AppKey>>,
}

struct Known {
    around: Around,
    /// Which piece of work of this operator it is.
    number: u64,
    task: Option<JoinHandle<()>>,
    /// Resolves when it has ended.
    done: Option<oneshot::Receiver<()>>,
}

impl Exposures {
    pub(crate) fn new(client: Client, ending: CancellationToken) -> Self {
        Exposures { client, ending, known: Mutex::default(), ended: OnceLock::new() }
    }

    /// Names who is told about applications whose work has ended.
    pub(crate) fn tell(&self, ended: mpsc::UnboundedSender<AppKey>) {
        let _ = self.ended.set(ended);
    }

    /// How far the work for an application is.
    pub(crate) fn of(&self, key: &AppKey) -> Option<Around> {
        self.known().get(key).map(|known| known.around.clone())
    }

    /// Begins to make what stands around the driver of a submission, unless that was tried already and not `again`.
    pub(crate) fn make(self: &Arc<Self>, app: &Subject<'_>, submission_id: &str, exposure: Exposure, again: bool) {
        let work = Work::Make { submission_id: submission_id.to_owned() };
        let objects = exposure.services.len() + exposure.ingresses.len() + usize::from(exposure.budget.is_some());
        let (client, namespace) = (self.client.clone(), app.namespace.to_owned());
        let uid = app.uid.to_owned();
        let job = async move { writes::make_around(&client, &namespace, &uid, &exposure).await };
        self.begin(app, work, objects, again, Box::pin(job));
    }

    /// Removes what stands around the driver; waits for it a moment.
    pub(crate) async fn remove(self: &Arc<Self>, app: &Subject<'_>, exposed: Exposed) -> Option<Around> {
        let (client, namespace) = (self.client.clone(), app.namespace.to_owned());
        let (name, uid) = (app.name.to_owned(), app.uid.to_owned());
        let job = async move { writes::delete_around(&client, &namespace, &name, &uid, &exposed).await };
        self.begin(app, Work::Remove, 1, true, Box::pin(job));
        self.wait(app).await
    }

    /// Waits a moment until the work for an application has ended.
    pub(crate) async fn wait(&self, app: &Subject<'_>) -> Option<Around> {
        let key = (app.namespace.to_owned(), app.name.to_owned());
        let done = self.known().get_mut(&key).and_then(|known| known.done.take());
        if let Some(done) = done {
            let _ = tokio::time::timeout(MOMENT, done).await;
        }
        self.of(&key)
    }

    /// Begins work that follows what is under way.
    fn begin(
        self: &Arc<Self>,
        app: &Subject<'_>,
        work: Work,
        objects: usize,
        again: bool,
        job: BoxFuture<'static, ExposureOutcome>,
    ) {
        let key = (app.namespace.to_owned(), app.name.to_owned());
        let now = Timestamp::now();
        let mut all = self.known();
        let before = all.remove(&key);
        let (mut around, task, number) = match before {
            Some(known) if known.around.work == work => {
                if known.around.under_way || !again {
                    all.insert(key, known);
                    return;
                }
                (known.around, known.task, known.number)
            }
            other => {
                let around =
                    Around { work, objects, under_way: true, failures: 0, first: now, last: now, outcome: None };
                let (task, number) = other.map_or((None, 0), |known| (known.task, known.number));
                (around, task, number)
            }
        };
        let number = number + 1;
        around.under_way = objects > 0;
        if objects == 0 {
            around.outcome = Some(ExposureOutcome::default());
            all.insert(key, Known { around, number, task, done: None });
            return;
        }
        let (end, done) = oneshot::channel();
        let (exposures, ending, known_as) = (self.clone(), self.ending.clone(), key.clone());
        let task = tokio::spawn(async move {
            let job = async {
                if let Some(earlier) = task {
                    let _ = earlier.await;
                }
                job.await
            };
            tokio::select! {
                outcome = job => exposures.note(&known_as, number, outcome),
                () = ending.cancelled() => return,
            }
            // Whoever waited has given up: the next pass sees it.
            if end.send(()).is_err()
                && let Some(ended) = exposures.ended.get()
            {
                let _ = ended.send(known_as);
            }
        });
        all.insert(key, Known { around, number, task: Some(task), done: Some(done) });
    }

    fn note(&self, key: &AppKey, number: u64, outcome: ExposureOutcome) {
        let mut all = self.known();
        let Some(known) = all.get_mut(key).filter(|known| known.number == number) else { return };
        let around = &mut known.around;
        around.under_way = false;
        around.last = Timestamp::now();
        if outcome.failed.is_empty() {
            around.failures = 0;
        } else {
            tracing::warn!(namespace = %key.0, application = %key.1, "{}", outcome.failed.join("; "));
            if around.failures == 0 {
                around.first = around.last;
            }
            around.failures = around.failures.saturating_add(1);
        }
        around.outcome = Some(outcome);
        known.task = None;
        // Nobody waits for it, or has begun to.
        known.done = None;
    }

    /// Forgets an application that is no more.
    pub(crate) fn forget(&self, key: &AppKey) {
        self.known().remove(key);
    }

    /// Forgets every application but these.
    pub(crate) fn keep_only(&self, apps: &HashSet<AppKey>) {
        self.known().retain(|key, _| apps.contains(key));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AppKey, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
