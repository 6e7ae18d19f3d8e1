//! The table of kinds: everything the generic handlers need to know about a kind. Custom resources add entries at run time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::crd::CustomKind;

/// One served (group, version, resource).
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) resource: Arc<str>,
    pub(crate) singular: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) list_kind: Arc<str>,
    pub(crate) namespaced: bool,
    pub(crate) short: Vec<Arc<str>>,
    pub(crate) categories: Vec<Arc<str>>,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    /// Subresources besides `status` and `scale`: name and kind.
    pub(crate) others: &'static [Subresource],
    /// Create only, nothing stored: access reviews and the like.
    pub(crate) virtual_: bool,
    /// Where objects are stored; kinds that are views of each other share it.
    pub(crate) table: Arc<str>,
    /// The schema's name, for built-in kinds.
    pub(crate) schema: Option<&'static str>,
    pub(crate) custom: Option<Arc<CustomKind>>,
    /// Whether `metadata.generation` is maintained.
    pub(crate) generation: bool,
}

/// A subresource of a built-in kind.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) group_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) verbs: &'static [&'static str],
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        *self.group == *group && *self.resource == *resource
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.status,
            "scale" => self.scale,
            other => self.others.iter().any(|s| s.name == other),
        }
    }
}

struct KindRow {
    group: &'static str,
    version: &'static str,
    /// plural, singular, kind
    names: [&'static str; 3],
    schema: &'static str,
    flags: u16,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    others: &'static [Subresource],
}

const NAMESPACED: u16 = 1;
const STATUS: u16 = 2;
const SCALE: u16 = 4;
const GENERATION: u16 = 8;
const VIRTUAL: u16 = 16;

const ALL: &[&str] = &["all"];
const NONE: &[&str] = &[];
const EXTENSIONS: &[&str] = &["api-extensions"];
const NO_SUBS: &[Subresource] = &[];

const POD_SUBS: &[Subresource] = &[
    Subresource { name: "attach", group_version: "v1", kind: "PodAttachOptions", verbs: &["create", "get"] },
    Subresource { name: "binding", group_version: "v1", kind: "Binding", verbs: &["create"] },
    Subresource { name: "ephemeralcontainers", group_version: "v1", kind: "Pod", verbs: &["get", "patch", "update"] },
    Subresource { name: "eviction", group_version: "policy/v1", kind: "Eviction", verbs: &["create"] },
    Subresource { name: "exec", group_version: "v1", kind: "PodExecOptions", verbs: &["create", "get"] },
    Subresource { name: "log", group_version: "v1", kind: "Pod", verbs: &["get"] },
    Subresource { name: "portforward", group_version: "v1", kind: "PodPortForwardOptions", verbs: &["create", "get"] },
    Subresource { name: "resize", group_version: "v1", kind: "Pod", verbs: &["get", "patch", "update"] },
];
const NAMESPACE_SUBS: &[Subresource] =
    &[Subresource { name: "finalize", group_version: "v1", kind: "Namespace", verbs: &["update"] }];
const CERTIFICATE_SUBS: &[Subresource] = &[Subresource {
    name: "approval",
    group_version: "certificates.k8s.io/v1",
    kind: "CertificateSigningRequest",
    verbs: &["get", "patch", "update"],
}];
const ACCOUNT_SUBS: &[Subresource] = &[Subresource {
    name: "token",
    group_version: "authentication.k8s.io/v1",
    kind: "TokenRequest",
    verbs: &["create"],
}];

macro_rules! row {
    ($group:literal $version:literal $plural:literal $singular:literal $kind:literal $schema:literal [$($flag:ident)*] $short:expr, $categories:expr, $others:expr) => {
        KindRow {
            group: $group,
            version: $version,
            names: [$plural, $singular, $kind],
            schema: $schema,
            flags: 0 $(| $flag)*,
            short: $short,
            categories: $categories,
            others: $others,
        }
    };
}

#[rustfmt::skip]
const ROWS: &[KindRow] = &[
    row!("" "v1" "bindings" "binding" "Binding" "io.k8s.api.core.v1.Binding" [NAMESPACED VIRTUAL] NONE, NONE, NO_SUBS),
    row!("" "v1" "configmaps" "configmap" "ConfigMap" "io.k8s.api.core.v1.ConfigMap" [NAMESPACED] &["cm"], NONE, NO_SUBS),
    row!("" "v1" "endpoints" "endpoints" "Endpoints" "io.k8s.api.core.v1.Endpoints" [NAMESPACED] &["ep"], NONE, NO_SUBS),
    row!("" "v1" "events" "event" "Event" "io.k8s.api.core.v1.Event" [NAMESPACED] &["ev"], NONE, NO_SUBS),
    row!("" "v1" "limitranges" "limitrange" "LimitRange" "io.k8s.api.core.v1.LimitRange" [NAMESPACED] &["limits"], NONE, NO_SUBS),
    row!("" "v1" "namespaces" "namespace" "Namespace" "io.k8s.api.core.v1.Namespace" [STATUS] &["ns"], NONE, NAMESPACE_SUBS),
    row!("" "v1" "nodes" "node" "Node" "io.k8s.api.core.v1.Node" [STATUS] &["no"], NONE, NO_SUBS),
    row!("" "v1" "persistentvolumeclaims" "persistentvolumeclaim" "PersistentVolumeClaim" "io.k8s.api.core.v1.PersistentVolumeClaim" [NAMESPACED STATUS] &["pvc"], NONE, NO_SUBS),
    row!("" "v1" "persistentvolumes" "persistentvolume" "PersistentVolume" "io.k8s.api.core.v1.PersistentVolume" [STATUS] &["pv"], NONE, NO_SUBS),
    row!("" "v1" "pods" "pod" "Pod" "io.k8s.api.core.v1.Pod" [NAMESPACED STATUS GENERATION] &["po"], ALL, POD_SUBS),
    row!("" "v1" "podtemplates" "podtemplate" "PodTemplate" "io.k8s.api.core.v1.PodTemplate" [NAMESPACED GENERATION] NONE, NONE, NO_SUBS),
    row!("" "v1" "replicationcontrollers" "replicationcontroller" "ReplicationController" "io.k8s.api.core.v1.ReplicationController" [NAMESPACED STATUS SCALE GENERATION] &["rc"], ALL, NO_SUBS),
    row!("" "v1" "resourcequotas" "resourcequota" "ResourceQuota" "io.k8s.api.core.v1.ResourceQuota" [NAMESPACED STATUS] &["quota"], NONE, NO_SUBS),
    row!("" "v1" "secrets" "secret" "Secret" "io.k8s.api.core.v1.Secret" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("" "v1" "serviceaccounts" "serviceaccount" "ServiceAccount" "io.k8s.api.core.v1.ServiceAccount" [NAMESPACED] &["sa"], NONE, ACCOUNT_SUBS),
    row!("" "v1" "services" "service" "Service" "io.k8s.api.core.v1.Service" [NAMESPACED STATUS] &["svc"], ALL, NO_SUBS),
    row!("admissionregistration.k8s.io" "v1" "mutatingwebhookconfigurations" "mutatingwebhookconfiguration" "MutatingWebhookConfiguration" "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration" [GENERATION] NONE, EXTENSIONS, NO_SUBS),
    row!("admissionregistration.k8s.io" "v1" "validatingadmissionpolicies" "validatingadmissionpolicy" "ValidatingAdmissionPolicy" "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy" [STATUS GENERATION] NONE, EXTENSIONS, NO_SUBS),
    row!("admissionregistration.k8s.io" "v1" "validatingadmissionpolicybindings" "validatingadmissionpolicybinding" "ValidatingAdmissionPolicyBinding" "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding" [GENERATION] NONE, EXTENSIONS, NO_SUBS),
    row!("admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "validatingwebhookconfiguration" "ValidatingWebhookConfiguration" "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration" [GENERATION] NONE, EXTENSIONS, NO_SUBS),
    row!("apiextensions.k8s.io" "v1" "customresourcedefinitions" "customresourcedefinition" "CustomResourceDefinition" "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" [STATUS GENERATION] &["crd", "crds"], EXTENSIONS, NO_SUBS),
    row!("apps" "v1" "controllerrevisions" "controllerrevision" "ControllerRevision" "io.k8s.api.apps.v1.ControllerRevision" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("apps" "v1" "daemonsets" "daemonset" "DaemonSet" "io.k8s.api.apps.v1.DaemonSet" [NAMESPACED STATUS GENERATION] &["ds"], ALL, NO_SUBS),
    row!("apps" "v1" "deployments" "deployment" "Deployment" "io.k8s.api.apps.v1.Deployment" [NAMESPACED STATUS SCALE GENERATION] &["deploy"], ALL, NO_SUBS),
    row!("apps" "v1" "replicasets" "replicaset" "ReplicaSet" "io.k8s.api.apps.v1.ReplicaSet" [NAMESPACED STATUS SCALE GENERATION] &["rs"], ALL, NO_SUBS),
    row!("apps" "v1" "statefulsets" "statefulset" "StatefulSet" "io.k8s.api.apps.v1.StatefulSet" [NAMESPACED STATUS SCALE GENERATION] &["sts"], ALL, NO_SUBS),
    row!("authentication.k8s.io" "v1" "selfsubjectreviews" "selfsubjectreview" "SelfSubjectReview" "io.k8s.api.authentication.v1.SelfSubjectReview" [VIRTUAL] NONE, NONE, NO_SUBS),
    row!("authentication.k8s.io" "v1" "tokenreviews" "tokenreview" "TokenReview" "io.k8s.api.authentication.v1.TokenReview" [VIRTUAL] NONE, NONE, NO_SUBS),
    row!("authorization.k8s.io" "v1" "localsubjectaccessreviews" "localsubjectaccessreview" "LocalSubjectAccessReview" "io.k8s.api.authorization.v1.LocalSubjectAccessReview" [NAMESPACED VIRTUAL] NONE, NONE, NO_SUBS),
    row!("authorization.k8s.io" "v1" "selfsubjectaccessreviews" "selfsubjectaccessreview" "SelfSubjectAccessReview" "io.k8s.api.authorization.v1.SelfSubjectAccessReview" [VIRTUAL] NONE, NONE, NO_SUBS),
    row!("authorization.k8s.io" "v1" "selfsubjectrulesreviews" "selfsubjectrulesreview" "SelfSubjectRulesReview" "io.k8s.api.authorization.v1.SelfSubjectRulesReview" [VIRTUAL] NONE, NONE, NO_SUBS),
    row!("authorization.k8s.io" "v1" "subjectaccessreviews" "subjectaccessreview" "SubjectAccessReview" "io.k8s.api.authorization.v1.SubjectAccessReview" [VIRTUAL] NONE, NONE, NO_SUBS),
    row!("autoscaling" "v2" "horizontalpodautoscalers" "horizontalpodautoscaler" "HorizontalPodAutoscaler" "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler" [NAMESPACED STATUS] &["hpa"], ALL, NO_SUBS),
    row!("batch" "v1" "cronjobs" "cronjob" "CronJob" "io.k8s.api.batch.v1.CronJob" [NAMESPACED STATUS GENERATION] &["cj"], ALL, NO_SUBS),
    row!("batch" "v1" "jobs" "job" "Job" "io.k8s.api.batch.v1.Job" [NAMESPACED STATUS GENERATION] NONE, ALL, NO_SUBS),
    row!("certificates.k8s.io" "v1" "certificatesigningrequests" "certificatesigningrequest" "CertificateSigningRequest" "io.k8s.api.certificates.v1.CertificateSigningRequest" [STATUS] &["csr"], NONE, CERTIFICATE_SUBS),
    row!("coordination.k8s.io" "v1" "leases" "lease" "Lease" "io.k8s.api.coordination.v1.Lease" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("discovery.k8s.io" "v1" "endpointslices" "endpointslice" "EndpointSlice" "io.k8s.api.discovery.v1.EndpointSlice" [NAMESPACED GENERATION] NONE, NONE, NO_SUBS),
    row!("events.k8s.io" "v1" "events" "event" "Event" "io.k8s.api.events.v1.Event" [NAMESPACED] &["ev"], NONE, NO_SUBS),
    row!("networking.k8s.io" "v1" "ingressclasses" "ingressclass" "IngressClass" "io.k8s.api.networking.v1.IngressClass" [GENERATION] NONE, NONE, NO_SUBS),
    row!("networking.k8s.io" "v1" "ingresses" "ingress" "Ingress" "io.k8s.api.networking.v1.Ingress" [NAMESPACED STATUS GENERATION] &["ing"], NONE, NO_SUBS),
    row!("networking.k8s.io" "v1" "networkpolicies" "networkpolicy" "NetworkPolicy" "io.k8s.api.networking.v1.NetworkPolicy" [NAMESPACED GENERATION] &["netpol"], NONE, NO_SUBS),
    row!("node.k8s.io" "v1" "runtimeclasses" "runtimeclass" "RuntimeClass" "io.k8s.api.node.v1.RuntimeClass" [] NONE, NONE, NO_SUBS),
    row!("policy" "v1" "poddisruptionbudgets" "poddisruptionbudget" "PodDisruptionBudget" "io.k8s.api.policy.v1.PodDisruptionBudget" [NAMESPACED STATUS GENERATION] &["pdb"], NONE, NO_SUBS),
    row!("rbac.authorization.k8s.io" "v1" "clusterrolebindings" "clusterrolebinding" "ClusterRoleBinding" "io.k8s.api.rbac.v1.ClusterRoleBinding" [] NONE, NONE, NO_SUBS),
    row!("rbac.authorization.k8s.io" "v1" "clusterroles" "clusterrole" "ClusterRole" "io.k8s.api.rbac.v1.ClusterRole" [] NONE, NONE, NO_SUBS),
    row!("rbac.authorization.k8s.io" "v1" "rolebindings" "rolebinding" "RoleBinding" "io.k8s.api.rbac.v1.RoleBinding" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("rbac.authorization.k8s.io" "v1" "roles" "role" "Role" "io.k8s.api.rbac.v1.Role" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("scheduling.k8s.io" "v1" "priorityclasses" "priorityclass" "PriorityClass" "io.k8s.api.scheduling.v1.PriorityClass" [GENERATION] &["pc"], NONE, NO_SUBS),
    row!("storage.k8s.io" "v1" "csidrivers" "csidriver" "CSIDriver" "io.k8s.api.storage.v1.CSIDriver" [] NONE, NONE, NO_SUBS),
    row!("storage.k8s.io" "v1" "csinodes" "csinode" "CSINode" "io.k8s.api.storage.v1.CSINode" [] NONE, NONE, NO_SUBS),
    row!("storage.k8s.io" "v1" "csistoragecapacities" "csistoragecapacity" "CSIStorageCapacity" "io.k8s.api.storage.v1.CSIStorageCapacity" [NAMESPACED] NONE, NONE, NO_SUBS),
    row!("storage.k8s.io" "v1" "storageclasses" "storageclass" "StorageClass" "io.k8s.api.storage.v1.StorageClass" [] &["sc"], NONE, NO_SUBS),
    row!("storage.k8s.io" "v1" "volumeattachments" "volumeattachment" "VolumeAttachment" "io.k8s.api.storage.v1.VolumeAttachment" [STATUS] NONE, NONE, NO_SUBS),
];

/// The order in which kube-apiserver lists its own groups.
pub(crate) const GROUP_ORDER: &[&str] = &[
    "",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "apps",
];

fn built_in(row: &'static KindRow) -> Kind {
    let [plural, singular, kind] = row.names;
    let group = if row.group == "events.k8s.io" { "" } else { row.group };
    Kind {
        group: row.group.into(),
        version: row.version.into(),
        resource: plural.into(),
        singular: singular.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        namespaced: row.flags & NAMESPACED != 0,
        short: row.short.iter().map(|s| (*s).into()).collect(),
        categories: row.categories.iter().map(|s| (*s).into()).collect(),
        status: row.flags & STATUS != 0,
        scale: row.flags & SCALE != 0,
        others: row.others,
        virtual_: row.flags & VIRTUAL != 0,
        table: table_name(group, plural),
        schema: Some(row.schema),
        custom: None,
        generation: row.flags & GENERATION != 0,
    }
}

/// A resource's name in the store.
pub(crate) fn table_name(group: &str, resource: &str) -> Arc<str> {
    if group.is_empty() { resource.into() } else { format!("{resource}.{group}").into() }
}

type Id = (Arc<str>, Arc<str>, Arc<str>);

/// All served kinds. Replaced as a whole when a custom resource definition changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    by_path: BTreeMap<Id, Arc<Kind>>,
    /// Incremented with every change, to invalidate cached documents.
    pub(crate) edition: u64,
}

impl Kinds {
    pub(crate) fn built_in() -> Self {
        let mut kinds = Self::default();
        for row in ROWS {
            kinds.insert(built_in(row));
        }
        kinds
    }

    pub(crate) fn insert(&mut self, kind: Kind) {
        self.by_path.insert((kind.group.clone(), kind.version.clone(), kind.resource.clone()), Arc::new(kind));
        self.edition += 1;
    }

    pub(crate) fn remove_group_resource(&mut self, group: &str, resource: &str) {
        self.by_path.retain(|(g, _, r), _| !(**g == *group && **r == *resource));
        self.edition += 1;
    }

    pub(crate) fn find(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Kind>> {
        self.by_path.get(&(group.into(), version.into(), resource.into())).cloned()
    }

    /// Any served version of a resource.
    pub(crate) fn any_version(&self, group: &str, resource: &str) -> Option<Arc<Kind>> {
        self.by_path.values().find(|k| k.is(group, resource)).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_path.values()
    }

    pub(crate) fn has_group_version(&self, group: &str, version: &str) -> bool {
        self.by_path.values().any(|k| *k.group == *group && *k.version == *version)
    }

    /// Groups in the real server's order: built-in first, then custom ones by name; newest versions first.
    pub(crate) fn groups(&self) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
        let mut groups: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for kind in self.by_path.values() {
            let versions = groups.entry(kind.group.clone()).or_default();
            if !versions.contains(&kind.version) {
                versions.push(kind.version.clone());
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| version_rank(b).cmp(&version_rank(a)).then_with(|| a.cmp(b)));
        }
        let place = |group: &str| GROUP_ORDER.iter().position(|g| *g == group).unwrap_or(usize::MAX);
        groups.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)).then_with(|| a.cmp(b)));
        groups
    }
}

/// Kubernetes' version order: v2, v1, v1beta2, v1beta1, v1alpha1, then anything else.
pub(crate) fn version_rank(version: &str) -> (u8, u64, u64) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, minor) =
            if let Some(minor) = tail.strip_prefix("beta") { (2, minor) } else { (1, tail.strip_prefix("alpha")?) };
        Some((stage, major, minor.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

/// The table shared by all requests.
pub(crate) type Served = ArcSwap<Kinds>;
