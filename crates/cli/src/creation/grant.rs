//! Executors outside the driver: the grant is created after the pod, which owns it, and before the pod may start. No driver
//! starts before an operator has accepted the grant.

use std::time::Duration;

use firesteel_api::{ExecutorGrant, ExecutorLedger};
use firesteel_cluster::Cluster;
use firesteel_cluster::error::{Class, class, words};
use firesteel_cluster::refusal::Attempt;
use firesteel_cluster::writes;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};

/// How long an operator may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(50);

/// Creates the grant of a pod and waits for the operator's answer.
pub(super) async fn settle(
    cluster: &Cluster,
    grant: &ExecutorGrant,
    pod: &Pod,
    owner: OwnerReference,
    params: &PostParams,
) -> anyhow::Result<()> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let about =
        |verb| Attempt { verb, kind: "executorgrant", name: &name, namespace: &namespace, server: &cluster.server };
    let mut grant = grant.clone();
    grant.metadata.owner_references = Some(vec![owner]);
    grant.spec.driver.pod_uid = pod.uid();
    let grants: Api<ExecutorGrant> = Api::namespaced(cluster.client.clone(), &namespace);
    // The grant of an earlier pod of that name is garbage-collected shortly after its pod.
    let deadline = tokio::time::Instant::now() + ANSWER;
    let made = loop {
        let made = cluster.ask(writes::create(&grants, params, &grant)).await;
        if !matches!(made, Ok(None)) || tokio::time::Instant::now() >= deadline {
            break made;
        }
        // Created by an attempt whose response was lost.
        let ours = |found: &ExecutorGrant| found.spec.driver.pod_uid == grant.spec.driver.pod_uid;
        if let Ok(Some(found)) = cluster.ask(grants.get_opt(&name)).await
            && ours(&found)
        {
            break Ok(Some(found));
        }
        tokio::time::sleep(LOOK).await;
    };
    let uid = match made {
        Ok(Some(made)) => made.uid(),
        Ok(None) => return Err(about("create").exists().into()),
        Err(error) if class(&error) == Class::Missing && !words(&error).contains("namespaces") => anyhow::bail!(
            "this cluster has no ExecutorGrants, which spark.kubernetes.allocation.pods.allocator=firesteel needs: run `firesteel crds | kubectl apply --server-side -f -` and start `firesteel operator`, or use the allocator direct"
        ),
        Err(error) => return Err(about("create").refused(&error).into()),
    };
    super::fault::after_write();
    let ledgers: Api<ExecutorLedger> = Api::namespaced(cluster.client.clone(), &namespace);
    let deadline = tokio::time::Instant::now() + ANSWER;
    while tokio::time::Instant::now() < deadline {
        let found = match cluster.ask(ledgers.get_opt(&name)).await {
            Ok(found) => found,
            Err(error) => return Err(about("get the ledger of").refused(&error).into()),
        };
        // Ignore the ledger of an earlier grant of this name.
        let ours = |ledger: &ExecutorLedger| uid.as_ref().is_some_and(|uid| writes::is_owned_by(ledger, uid));
        if let Some(status) = found.filter(ours).and_then(|ledger| ledger.status) {
            if status.accepted {
                return Ok(());
            }
            anyhow::bail!("the operator does not accept executors for pod {namespace}/{name}: {}", status.message);
        }
        tokio::time::sleep(LOOK).await;
    }
    anyhow::bail!(
        "no Firesteel operator answered for namespace {namespace} within {} s, so no executors would be created: start `firesteel operator`, or use spark.kubernetes.allocation.pods.allocator=direct",
        ANSWER.as_secs()
    )
}
