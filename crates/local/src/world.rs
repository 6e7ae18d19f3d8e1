//! Everything the controllers watch, each kind once.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use crate::watched::Watched;

/// The namespace nodes send their heartbeats to.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";
/// The ConfigMap with the cluster's certificate authority, one in each namespace.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) budgets: Watched<PodDisruptionBudget>,
    pub(crate) claims: Watched<PersistentVolumeClaim>,
    pub(crate) deployments: Watched<Deployment>,
    pub(crate) endpoints: Watched<Endpoints>,
    pub(crate) jobs: Watched<Job>,
    pub(crate) leases: Watched<Lease>,
    pub(crate) namespaces: Watched<Namespace>,
    pub(crate) nodes: Watched<Node>,
    pub(crate) pods: Watched<Pod>,
    pub(crate) replica_sets: Watched<ReplicaSet>,
    pub(crate) revisions: Watched<ControllerRevision>,
    pub(crate) root_cas: Watched<ConfigMap>,
    pub(crate) service_accounts: Watched<ServiceAccount>,
    pub(crate) services: Watched<Service>,
    pub(crate) signing_requests: Watched<CertificateSigningRequest>,
    pub(crate) slices: Watched<EndpointSlice>,
    pub(crate) stateful_sets: Watched<StatefulSet>,
    pub(crate) storage_classes: Watched<StorageClass>,
    pub(crate) volumes: Watched<PersistentVolume>,
}

/// Calls one macro with every field of [`World`] that is watched, its scope and its filter.
macro_rules! kinds {
    ($each:ident, $all:ident) => {
        $each!(budgets, $all());
        $each!(claims, $all());
        $each!(deployments, $all());
        $each!(endpoints, $all());
        $each!(jobs, $all());
        $each!(leases, $all().fields(&format!("metadata.namespace={NODE_LEASES}")));
        $each!(namespaces, $all());
        $each!(nodes, $all());
        $each!(pods, $all());
        $each!(replica_sets, $all());
        $each!(revisions, $all());
        $each!(root_cas, $all().fields(&format!("metadata.name={ROOT_CA}")));
        $each!(service_accounts, $all().fields("metadata.name=default"));
        $each!(services, $all());
        $each!(signing_requests, $all());
        $each!(slices, $all());
        $each!(stateful_sets, $all());
        $each!(storage_classes, $all());
        $each!(volumes, $all());
    };
}

impl World {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(World {
            client,
            budgets: Watched::default(),
            claims: Watched::default(),
            deployments: Watched::default(),
            endpoints: Watched::default(),
            jobs: Watched::default(),
            leases: Watched::default(),
            namespaces: Watched::default(),
            nodes: Watched::default(),
            pods: Watched::default(),
            replica_sets: Watched::default(),
            revisions: Watched::default(),
            root_cas: Watched::default(),
            service_accounts: Watched::default(),
            services: Watched::default(),
            signing_requests: Watched::default(),
            slices: Watched::default(),
            stateful_sets: Watched::default(),
            storage_classes: Watched::default(),
            volumes: Watched::default(),
        })
    }

    /// Starts all watches. Listeners must be registered before.
    pub(crate) fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let all = || watcher::Config::default().any_semantic();
        macro_rules! watch {
            ($field:ident, $what:expr) => {
                let world = Arc::clone(self);
                let config = $what;
                tasks.spawn(async move {
                    let api = Api::all(world.client.clone());
                    world.$field.run(api, config).await;
                });
            };
        }
        kinds!(watch, all);
    }

    /// Waits until every kind has been listed once.
    pub(crate) async fn ready(&self) {
        macro_rules! wait {
            ($field:ident, $what:expr) => {
                self.$field.ready().await;
            };
        }
        kinds!(wait, unused);
    }

    /// The API of a namespaced kind in one namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The API of a cluster-scoped kind.
    pub(crate) fn cluster_api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }
}
