//! Columns of built-in kinds.

use super::Column;
use crate::kinds::Kind;

/// Columns as `Name:flags` (i integer, b boolean, w wide only, n name); `Name` itself has the format `name`.
fn spec(kind: &Kind) -> &'static str {
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => "Name Ready Status Restarts Age IP:w Node:w Nominated_Node:w Readiness_Gates:w",
        ("", "services") => "Name Type Cluster-IP External-IP Port(s) Age Selector:w",
        ("", "configmaps") => "Name Data Age",
        ("", "secrets") => "Name Type Data Age",
        ("", "serviceaccounts") => "Name Age",
        ("", "nodes") => {
            "Name Status Roles Age Version Internal-IP:w External-IP:w OS-Image:w Kernel-Version:w Container-Runtime:w"
        }
        ("", "namespaces") => "Name Status Age",
        ("", "events") | ("events.k8s.io", _) => {
            "Last_Seen Type Reason Object Subobject:w Source:w Message First_Seen:w Count:w Name:w"
        }
        ("", "persistentvolumeclaims") => {
            "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode:w"
        }
        ("", "persistentvolumes") => {
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode:w"
        }
        ("", "endpoints") => "Name Endpoints Age",
        ("", "replicationcontrollers") => "Name Desired:i Current:i Ready:i Age Containers:w Images:w Selector:w",
        ("", "resourcequotas") => "Name Request Limit Age",
        ("", "limitranges") => "Name Created_At",
        ("apps", "deployments") => "Name Ready Up-to-date Available Age Containers:w Images:w Selector:w",
        ("apps", "replicasets") => "Name Desired:i Current:i Ready:i Age Containers:w Images:w Selector:w",
        ("apps", "statefulsets") => "Name Ready Age Containers:w Images:w",
        ("apps", "daemonsets") => {
            "Name Desired:i Current:i Ready:i Up-to-date:i Available:i Node_Selector Age Containers:w Images:w Selector:w"
        }
        ("apps", "controllerrevisions") => "Name Controller Revision Age",
        ("batch", "jobs") => "Name Status Completions Duration Age Containers:w Images:w Selector:w",
        ("batch", "cronjobs") => {
            "Name Schedule Timezone Suspend:b Active:i Last_Schedule Age Containers:w Images:w Selector:w"
        }
        ("policy", "poddisruptionbudgets") => "Name Min_Available Max_Unavailable Allowed_Disruptions:i Age",
        ("coordination.k8s.io", "leases") => "Name Holder Age",
        ("storage.k8s.io", "storageclasses") => {
            "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"
        }
        ("scheduling.k8s.io", "priorityclasses") => "Name Value:i Global-Default:b Age PreemptionPolicy",
        ("discovery.k8s.io", "endpointslices") => "Name AddressType Ports Endpoints Age",
        ("networking.k8s.io", "ingresses") => "Name Class Hosts Address Ports Age",
        ("networking.k8s.io", "networkpolicies") => "Name Pod-Selector Age",
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => "Name Created_At",
        ("rbac.authorization.k8s.io", _) => "Name Role Age Users:w Groups:w ServiceAccounts:w",
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            "Name Webhooks:i Age"
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => "Name Validations:i ParamKind Age",
        ("admissionregistration.k8s.io", _) => "Name PolicyName ParamRef Age",
        ("", "podtemplates") => "Name Containers Images Pod_Labels",
        ("autoscaling", _) => "Name Reference Targets MinPods MaxPods Replicas Age",
        ("certificates.k8s.io", _) => "Name Age SignerName Requestor RequestedDuration Condition",
        ("networking.k8s.io", "ingressclasses") => "Name Controller Parameters Age",
        ("node.k8s.io", _) => "Name Handler Age",
        ("storage.k8s.io", "csinodes") => "Name Drivers:i Age",
        ("storage.k8s.io", "csidrivers") => {
            "Name AttachRequired:b PodInfoOnMount:b StorageCapacity:b TokenRequests RequiresRepublish:b Modes Age"
        }
        ("storage.k8s.io", "csistoragecapacities") => "Name StorageClassName Capacity",
        ("storage.k8s.io", "volumeattachments") => "Name Attacher:n PV Node Attached:b Age",
        ("apiextensions.k8s.io", _) => "Name Created_At",
        _ => "Name Age",
    }
}

/// Only name and age.
pub(super) fn is_plain(kind: &Kind) -> bool {
    kind.custom.is_none() && spec(kind) == "Name Created_At"
}

pub(super) fn of(kind: &Kind) -> Vec<Column> {
    spec(kind)
        .split(' ')
        .map(|column| {
            let (name, flags) = column.split_once(':').unwrap_or((column, ""));
            let ty = if flags.contains('i') {
                "integer"
            } else if flags.contains('b') {
                "boolean"
            } else if name == "Created_At" {
                "date"
            } else {
                "string"
            };
            Column {
                name: name.replace('_', " "),
                ty,
                format: if name == "Name" || flags.contains('n') { "name" } else { "" },
                priority: i64::from(flags.contains('w')),
            }
        })
        .collect()
}
