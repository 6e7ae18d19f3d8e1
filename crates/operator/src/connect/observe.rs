//! Gathers the cluster state that concerns one SparkConnect.

use firesteel_api::SparkConnect;
use firesteel_cluster::log;
use firesteel_core::connect::Subject;
use firesteel_core::connect::server::ServerPod;
use firesteel_core::connect::step::{Sight, State};
use firesteel_core::diagnosis::{self, Cause, Facts, Log};
use firesteel_core::pod::{DriverEnd, SparkContainer};
use firesteel_spark::names::key;
use firesteel_spark::redaction::Redaction;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use super::Context;
use super::pods::ConnectKey;
use crate::error::{During, Error};

/// Reads the caches. Asks the API server only for the log of a server that has just failed.
pub(super) async fn observe(ctx: &Context, connect: &SparkConnect, subject: &Subject<'_>, key: &ConnectKey) -> Sight {
    let pods = ctx.pods.of(key);
    let pod = pods.servers.get(&subject.pod_name());
    let server = pod.map(|pod| ServerPod::read(pod, subject.uid));
    let last_attempt = ctx.note_attempt(key, server.as_ref().map_or(0, |server| server.attempt));
    let cause = match (pod, &server) {
        (Some(pod), Some(server)) if is_news(connect, server) => cause(ctx, subject, pod, server).await,
        _ => None,
    };
    let (services, executors) = (ctx.services.of(key), pods.counts());
    Sight { now: Timestamp::now(), server, confirmed: false, last_attempt, services, executors, cause }
}

/// Asks the API server, not the cache, for the server pod.
pub(super) async fn confirm(ctx: &Context, subject: &Subject<'_>, seen: Sight) -> Result<Sight, Error> {
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), subject.namespace);
    let name = subject.pod_name();
    let pod = api.get_opt(&name).await.during(|| format!("look for pod {name}"))?;
    let server = pod.map(|pod| ServerPod::read(&pod, subject.uid));
    Ok(Sight { now: Timestamp::now(), server, confirmed: true, ..seen })
}

/// Whether a server has failed and that has not been reported yet.
fn is_news(connect: &SparkConnect, server: &ServerPod) -> bool {
    let status = connect.status.clone().unwrap_or_default();
    let reported =
        status.next_attempt_time.is_some() && matches!(State::read(&status), State::Failed | State::NotReady);
    matches!(server.end, Some(DriverEnd::Failed { ended: Some(_), .. })) && !reported
}

/// Why a server failed, from the end of its log. Without a log, the failure is still reported.
async fn cause(ctx: &Context, subject: &Subject<'_>, pod: &Pod, server: &ServerPod) -> Option<Cause> {
    let ended = server.pod.ended.as_ref()?;
    if !ctx.options.driver_log {
        return None;
    }
    let redaction = Redaction::new(subject.spec.spark_conf.get(key::REDACTION_REGEX).map(String::as_str));
    let container = SparkContainer::of(pod).name();
    match log::tail(&ctx.client, subject.namespace, &server.pod.name, container).await {
        Ok(log) => diagnosis::cause(ended, &Log::new(&log, &redaction), Facts::of(pod)),
        Err(error) => {
            tracing::debug!(pod = server.pod.name, %error, "cannot read the failed server's log");
            None
        }
    }
}
