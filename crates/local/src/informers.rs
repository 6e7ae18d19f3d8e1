//! The informers of all controllers, one per kind.

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

use crate::informer::Informer;

/// The namespace of node heartbeat leases.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";
/// The ConfigMap with the cluster's CA certificate, one per namespace.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

pub(crate) struct Informers {
    pub(crate) client: Client,
    pub(crate) budgets: Informer<PodDisruptionBudget>,
    pub(crate) claims: Informer<PersistentVolumeClaim>,
    pub(crate) deployments: Informer<Deployment>,
    pub(crate) endpoints: Informer<Endpoints>,
    pub(crate) jobs: Informer<Job>,
    pub(crate) leases: Informer<Lease>,
    pub(crate) namespaces: Informer<Namespace>,
    pub(crate) nodes: Informer<Node>,
    pub(crate) pods: Informer<Pod>,
    pub(crate) replica_sets: Informer<ReplicaSet>,
    pub(crate) revisions: Informer<ControllerRevision>,
    pub(crate) root_cas: Informer<ConfigMap>,
    pub(crate) service_accounts: Informer<ServiceAccount>,
    pub(crate) services: Informer<Service>,
    pub(crate) signing_requests: Informer<CertificateSigningRequest>,
    pub(crate) slices: Informer<EndpointSlice>,
    pub(crate) stateful_sets: Informer<StatefulSet>,
    pub(crate) storage_classes: Informer<StorageClass>,
    pub(crate) volumes: Informer<PersistentVolume>,
}

/// Invokes a macro for every watched field of [`Informers`], with its filter.
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

impl Informers {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Informers {
            client,
            budgets: Informer::default(),
            claims: Informer::default(),
            deployments: Informer::default(),
            endpoints: Informer::default(),
            jobs: Informer::default(),
            leases: Informer::default(),
            namespaces: Informer::default(),
            nodes: Informer::default(),
            pods: Informer::default(),
            replica_sets: Informer::default(),
            revisions: Informer::default(),
            root_cas: Informer::default(),
            service_accounts: Informer::default(),
            services: Informer::default(),
            signing_requests: Informer::default(),
            slices: Informer::default(),
            stateful_sets: Informer::default(),
            storage_classes: Informer::default(),
            volumes: Informer::default(),
        })
    }

    /// Starts all watches. Handlers must be registered first.
    pub(crate) fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let all = || watcher::Config::default().any_semantic();
        macro_rules! watch {
            ($field:ident, $what:expr) => {
                let informers = Arc::clone(self);
                let config = $what;
                tasks.spawn(async move {
                    let api = Api::all(informers.client.clone());
                    informers.$field.run(api, config).await;
                });
            };
        }
        kinds!(watch, all);
    }

    /// Waits until all informers have synced.
    pub(crate) async fn ready(&self) {
        macro_rules! wait {
            ($field:ident, $what:expr) => {
                self.$field.ready().await;
            };
        }
        kinds!(wait, unused);
    }

    /// The API of a namespaced kind.
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
