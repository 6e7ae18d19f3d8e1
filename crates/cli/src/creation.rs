//! Creating a planned driver: all of it, or nothing.
//!
//! The usual order: create the pod with a scheduling gate, then all other objects at once, owned by the pod, then lift the
//! gate. The driver therefore never starts before its files exist. A failure in between leaves at most one pod, which cannot
//! start and takes its objects with it when it is deleted.
//!
//! Spark's own order (the pod without a gate, then the rest) is used where a gate cannot work ([`Order::of`]) and where we may
//! not patch pods. Checking that permission beforehand would cost every submission a request. Instead, if lifting the gate is
//! forbidden, everything is deleted and created again in Spark's order, so only users without the permission pay.
//!
//! All cluster writes of a submission are here. Between the steps it checks for Ctrl-C.

mod fault;
mod grant;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use firesteel_api::ExecutorGrant;
use firesteel_cluster::Cluster;
use firesteel_cluster::error::{Class, class, is_forbidden, is_invalid, is_unsure};
use firesteel_cluster::gate::{self, GATE, Order};
use firesteel_cluster::object::PlannedObject;
use firesteel_cluster::refusal::{Attempt, Refused};
use firesteel_cluster::writes;
use firesteel_core::pod::{self, driver_owner};
use firesteel_spark::driver::DriverPlan;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, PostParams};

use crate::exit::Interrupted;
use crate::interrupt::Interrupt;
use crate::output::Printer;

/// How long deleted objects may take to disappear before they are created again.
const VANISHING: Duration = Duration::from_secs(30);

/// What this submission created, so that it can be removed again.
#[derive(Debug, Default)]
struct Made {
    /// The pod's uid, once it is known.
    pod: Option<String>,
    /// The pod was requested, but no response came.
    pod_unsure: bool,
    /// Objects requested besides the pod, with their uid, or `None` if no response came.
    objects: Vec<(usize, Option<String>)>,
}

/// An object that could not be created.
struct NotMade {
    /// It may exist nevertheless.
    is_unsure: bool,
    refused: Refused,
}

/// Why a creation stopped.
enum Stop {
    /// The gate is set, but we may not lift it.
    MayNotLift,
    Because(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Because(error.into())
    }
}

/// One driver being created.
pub(crate) struct Creation<'a> {
    cluster: &'a Cluster,
    plan: &'a DriverPlan,
    /// The executors that the operator may create for the driver.
    grant: Option<&'a ExecutorGrant>,
    dependent: Vec<PlannedObject>,
    interrupt: &'a Interrupt,
    pods: Api<Pod>,
    name: String,
}

impl<'a> Creation<'a> {
    pub(crate) fn new(cluster: &'a Cluster, plan: &'a DriverPlan, interrupt: &'a Interrupt) -> anyhow::Result<Self> {
        Ok(Creation {
            cluster,
            plan,
            grant: None,
            dependent: plan
                .objects
                .iter()
                .map(PlannedObject::new)
                .collect::<Result<_, _>>()
                .context("cannot serialize a planned object")?,
            interrupt,
            pods: Api::namespaced(cluster.client.clone(), &plan.namespace),
            name: plan.pod.name_any(),
        })
    }

    /// The same, with executors outside the driver.
    pub(crate) fn with_grant(self, grant: Option<&'a ExecutorGrant>) -> Self {
        Creation { grant, ..self }
    }

    /// Creates everything and returns the driver pod, or removes what was created and says why.
    pub(crate) async fn run(&self, printer: Printer) -> anyhow::Result<Pod> {
        let mut made = Made::default();
        match self.attempt(Order::of(&self.plan.pod), &mut made).await {
            Ok(pod) => return Ok(pod),
            Err(Stop::Because(error)) => return Err(self.undo(&made, error).await),
            Err(Stop::MayNotLift) => {}
        }
        tracing::info!("patching pods is forbidden here: creating again in Spark's order");
        if let Err(left) = self.remove(&made).await {
            let error = anyhow::anyhow!(
                "the gate {GATE} of pod {}/{} cannot be lifted, because patching pods is forbidden: `firesteel setup -n {}` prints the permissions needed",
                self.plan.namespace,
                self.name,
                self.plan.namespace
            );
            return Err(left.after(&error));
        }
        self.wait_until_gone(&made).await;
        printer.warn(format_args!(
            "patching pods is forbidden in namespace {}, so the driver may start before its files exist, as with spark-submit",
            self.plan.namespace
        ));
        let mut made = Made::default();
        match self.attempt(Order::Spark, &mut made).await {
            Ok(pod) => Ok(pod),
            Err(Stop::Because(error)) => Err(self.undo(&made, error).await),
            // Only a gate of this name in the user's template can remain.
            Err(Stop::MayNotLift) => {
                let error = anyhow::anyhow!(
                    "the pod template sets the gate {GATE}, which is reserved: remove it from the template"
                );
                Err(self.undo(&made, error).await)
            }
        }
    }

    async fn attempt(&self, order: Order, made: &mut Made) -> Result<Pod, Stop> {
        let pod = self.create_pod(order, made).await?;
        self.go_on()?;
        self.create_beside(&pod, made).await?;
        self.go_on()?;
        if let Some(grant) = self.grant {
            grant::settle(self.cluster, grant, &pod, owner(&pod), &params()).await?;
            self.go_on()?;
        }
        let gated = gate::position(&pod).is_some();
        if gated { self.lift(pod).await } else { Ok(pod) }
    }

    fn go_on(&self) -> Result<(), Interrupted> {
        if self.interrupt.came() {
            return Err(Interrupted("interrupted before the driver was created; nothing was left behind".to_owned()));
        }
        Ok(())
    }

    async fn create_pod(&self, order: Order, made: &mut Made) -> Result<Pod, Stop> {
        let mut pod = self.plan.pod.clone();
        pod.metadata.namespace = Some(self.plan.namespace.clone());
        if order == Order::Gated
            && gate::position(&pod).is_none()
            && let Some(spec) = pod.spec.as_mut()
        {
            spec.scheduling_gates.get_or_insert_default().push(PodSchedulingGate { name: GATE.to_owned() });
        }
        match self.cluster.ask(writes::create(&self.pods, &params(), &pod)).await {
            Ok(Some(pod)) => {
                made.pod = pod.uid();
                fault::after_write();
                Ok(pod)
            }
            // The response may have been lost and the request retried: a pod with our application id is ours.
            Ok(None) => match self.ours().await {
                Ok(pod) => {
                    made.pod = pod.uid();
                    Ok(pod)
                }
                Err(other) => Err(Stop::Because(other)),
            },
            Err(error) => {
                made.pod_unsure = is_unsure(&error);
                Err(self.about("create", "pod", &self.name).refused(&error).into())
            }
        }
    }

    /// The existing pod of our name if it is ours, else an error that says whose it is.
    async fn ours(&self) -> anyhow::Result<Pod> {
        let (namespace, name) = (&self.plan.namespace, &self.name);
        let existing = self.cluster.ask(self.pods.get(name)).await.ok();
        let selector = |pod: &Pod| pod.labels().get("spark-app-selector").cloned();
        match existing {
            Some(pod) if selector(&pod).as_ref() == Some(&self.plan.app_id) => Ok(pod),
            existing => Err(anyhow::anyhow!("{}", occupied(namespace, name, existing.as_ref()))),
        }
    }

    async fn create_beside(&self, pod: &Pod, made: &mut Made) -> Result<(), Stop> {
        let owner = owner(pod);
        let answers = join_all(self.dependent.iter().map(async |dependent| {
            let mut body = dependent.body.clone();
            body.metadata.owner_references = Some(vec![owner.clone()]);
            let api = self.api(dependent);
            match self.cluster.ask(writes::create(&api, &params(), &body)).await {
                Ok(None) => self.existing(&api, dependent, &owner).await,
                Ok(Some(object)) => {
                    fault::after_write();
                    Ok(object.uid())
                }
                Err(error) => Err(self.not_made(dependent, &error)),
            }
        }))
        .await;
        let mut failed = None;
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(None) => {}
                Ok(uid) => made.objects.push((at, uid)),
                Err(NotMade { is_unsure, refused }) => {
                    if is_unsure {
                        made.objects.push((at, None));
                    }
                    failed.get_or_insert(refused);
                }
            }
        }
        failed.map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// An object that already exists is ours if our pod owns it. A claim created by someone else is used as is and not
    /// adopted: `None`.
    async fn existing(
        &self,
        api: &Api<DynamicObject>,
        dependent: &PlannedObject,
        owner: &OwnerReference,
    ) -> Result<Option<String>, NotMade> {
        let found =
            self.cluster.ask(api.get(dependent.name())).await.map_err(|error| self.not_made(dependent, &error))?;
        if writes::is_owned_by(&found, &owner.uid) {
            return Ok(found.uid());
        }
        if dependent.kind() == "persistentvolumeclaim" {
            return Ok(None);
        }
        let refused = self.about("create", dependent.kind(), dependent.name()).exists();
        Err(NotMade { is_unsure: false, refused })
    }

    fn not_made(&self, dependent: &PlannedObject, error: &kube::Error) -> NotMade {
        let refused = self.about("create", dependent.kind(), dependent.name()).refused(error);
        NotMade { is_unsure: is_unsure(error), refused }
    }

    /// Removes our gate. Others may add or remove gates concurrently, so the patch itself tests the position.
    async fn lift(&self, mut pod: Pod) -> Result<Pod, Stop> {
        for _ in 0..5 {
            let Some(at) = gate::position(&pod) else { return Ok(pod) };
            match self.cluster.ask(writes::lift_gate(&self.pods, &self.name, at)).await {
                Ok(pod) => {
                    fault::after_write();
                    return Ok(pod);
                }
                Err(error) if is_forbidden(&error) => return Err(Stop::MayNotLift),
                Err(error) if class(&error) == Class::Missing => {
                    return Err(anyhow::anyhow!(
                        "pod {}/{} was deleted by somebody else while it was being submitted",
                        self.plan.namespace,
                        self.name
                    )
                    .into());
                }
                Err(error) if class(&error) == Class::Conflict || is_invalid(&error) => {}
                Err(error) => return Err(self.about("patch", "pod", &self.name).refused(&error).into()),
            }
            pod = self
                .cluster
                .ask(self.pods.get(&self.name))
                .await
                .map_err(|error| self.about("get", "pod", &self.name).refused(&error))?;
        }
        Err(anyhow::anyhow!(
            "the gate {GATE} of pod {}/{} could not be lifted: it keeps changing",
            self.plan.namespace,
            self.name
        )
        .into())
    }

    /// Removes what was created; if that fails too, the error says what is left.
    async fn undo(&self, made: &Made, error: anyhow::Error) -> anyhow::Error {
        match self.remove(made).await {
            Ok(()) => error,
            Err(left) => left.after(&error),
        }
    }

    async fn remove(&self, made: &Made) -> Result<(), Left> {
        let (mut pod_uid, mut left) = (made.pod.clone(), Vec::new());
        // A request without a response may still be in progress on the server.
        let mut looks = if made.pod_unsure { 3 } else { 0 };
        while looks > 0 && pod_uid.is_none() {
            pod_uid = self.ours().await.ok().and_then(|pod| pod.uid());
            looks -= 1;
            if pod_uid.is_none() && looks > 0 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        // Garbage collection removes the objects with the pod, but not at once and not on every cluster: delete them too.
        let objects = join_all(made.objects.iter().map(async |(at, uid)| {
            let dependent = &self.dependent[*at];
            let api = self.api(dependent);
            let uid = match uid {
                Some(uid) => Some(uid.clone()),
                None => self.cluster.ask(api.get(dependent.name())).await.ok().and_then(|object| object.uid()),
            };
            delete(self.cluster, &api, dependent.name(), uid.as_deref()).await
        }));
        let pod = async {
            match &pod_uid {
                Some(uid) => delete(self.cluster, &self.pods, &self.name, Some(uid)).await,
                None => Ok(()),
            }
        };
        let (pod, objects) = futures::future::join(pod, objects).await;
        if let Err(error) = pod {
            left.push(format!("pod {} ({})", self.name, self.about("delete", "pod", &self.name).refused(&error)));
            for ((at, _), answer) in made.objects.iter().zip(objects) {
                if answer.is_err() {
                    left.push(format!("{} {}", self.dependent[*at].kind(), self.dependent[*at].name()));
                }
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(Left { namespace: self.plan.namespace.clone(), pod: self.name.clone(), what: left })
        }
    }

    /// Names can be reused only once the old objects are gone.
    async fn wait_until_gone(&self, made: &Made) {
        let deadline = tokio::time::Instant::now() + VANISHING;
        while tokio::time::Instant::now() < deadline {
            let pod = self.cluster.ask(self.pods.get_opt(&self.name)).await;
            let mut waiting = pod.is_ok_and(|pod| pod.is_some_and(|pod| pod.uid() == made.pod));
            for (at, _) in &made.objects {
                let dependent = &self.dependent[*at];
                let object = self.cluster.ask(self.api(dependent).get_opt(dependent.name())).await;
                waiting |= object.is_ok_and(|object| object.is_some());
            }
            if !waiting {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn api(&self, dependent: &PlannedObject) -> Api<DynamicObject> {
        Api::namespaced_with(self.cluster.client.clone(), &self.plan.namespace, &dependent.resource)
    }

    fn about<'t>(&'t self, verb: &'t str, kind: &'t str, name: &'t str) -> Attempt<'t> {
        Attempt { verb, kind, name, namespace: &self.plan.namespace, server: &self.cluster.server }
    }
}

/// What could not be removed again.
struct Left {
    namespace: String,
    pod: String,
    what: Vec<String>,
}

impl Left {
    fn after(&self, error: &anyhow::Error) -> anyhow::Error {
        let text = format!(
            "{error:#}; what was created could not be removed: {}; remove it with `kubectl delete pod -n {} {}`",
            self.what.join(", "),
            self.namespace,
            self.pod
        );
        // An interrupt stays an interrupt.
        if error.downcast_ref::<Interrupted>().is_some() { Interrupted(text).into() } else { anyhow::anyhow!(text) }
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some("firesteel".to_owned()), ..PostParams::default() }
}

/// The owner reference for objects that belong to the pod.
fn owner(pod: &Pod) -> OwnerReference {
    driver_owner(&pod.name_any(), &pod.uid().unwrap_or_default())
}

/// Deletes an object if it still has this uid.
async fn delete<K>(cluster: &Cluster, api: &Api<K>, name: &str, uid: Option<&str>) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let Some(uid) = uid else { return Ok(()) };
    cluster.ask(writes::delete(api, name, Some(uid.to_owned()), false)).await
}

/// Describes the pod that already has our name.
fn occupied(namespace: &str, name: &str, existing: Option<&Pod>) -> String {
    let labels: &BTreeMap<String, String> = match existing {
        Some(pod) => pod.labels(),
        None => {
            return format!("pod {namespace}/{name} already exists: choose another spark.kubernetes.driver.pod.name");
        }
    };
    let phase = existing.map_or("Unknown", |pod| pod::phase(pod).word());
    match labels.get("spark-app-selector") {
        Some(app) => format!(
            "pod {namespace}/{name} already exists: it is the driver of application {app} ({phase}); remove it with `firesteel submit --kill {namespace}:{name} --master …`, or choose another spark.kubernetes.driver.pod.name"
        ),
        None => format!(
            "pod {namespace}/{name} already exists and is not a Spark driver ({phase}); remove it with `kubectl delete pod -n {namespace} {name}`, or choose another spark.kubernetes.driver.pod.name"
        ),
    }
}
