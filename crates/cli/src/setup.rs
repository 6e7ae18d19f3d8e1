//! `firesteel setup`: what drivers need in a namespace, and nothing more: a service account, a role and a role binding. If the
//! operator creates their executors, the admission policy that keeps them apart is included.
//!
//! The permissions are those that Spark's driver uses for its executors (watching, creating, patching and deleting pods, and
//! their ConfigMaps, services and volume claims). Printing needs no cluster.

use std::path::PathBuf;

use firesteel_cluster::refusal::Attempt;
use firesteel_cluster::writes;
use firesteel_cluster::{Access, Cluster};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::output::{Format, Printer};

#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    /// Namespace of the drivers
    #[arg(short, long)]
    namespace: String,
    /// Service account of the drivers (spark.kubernetes.authenticate.driver.serviceAccountName)
    #[arg(long, default_value = "spark")]
    service_account: String,
    /// Create the namespace if it does not exist
    #[arg(long)]
    create_namespace: bool,
    /// Add the permissions that spark.kubernetes.allocation.pods.allocator=statefulset needs
    #[arg(long)]
    statefulset: bool,
    /// Grant only what spark.kubernetes.allocation.pods.allocator=firesteel needs: no pod permissions. Adds the cluster-wide
    /// admission policy that keeps drivers of one account away from each other's executors
    #[arg(long, conflicts_with = "statefulset")]
    executors_outside: bool,
    /// Leave out the admission policy, which needs cluster-wide permissions; one serves all namespaces
    #[arg(long, requires = "executors_outside")]
    without_admission_policy: bool,
    /// Apply to the cluster instead of printing
    #[arg(long)]
    apply: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context
    #[arg(long)]
    context: Option<String>,
}

pub(crate) fn main(args: &SetupArgs) -> anyhow::Result<ExitStatus> {
    crate::logging::start(false);
    for (option, name) in [("--namespace", &args.namespace), ("--service-account", &args.service_account)] {
        if !is_name(name) {
            return Err(BadInput(format!(
                "{option} {name}: a name consists of at most 63 lower-case letters, digits and hyphens"
            ))
            .into());
        }
    }
    let objects = objects(args)?;
    if args.apply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(apply(args, &objects));
    }
    let text = match args.output {
        Format::Json => {
            args.output.render(&json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects }))?
        }
        Format::Yaml => {
            objects.iter().map(|object| args.output.render(object)).collect::<anyhow::Result<Vec<_>>>()?.join("---\n")
        }
    };
    Printer.data(text)?;
    Ok(ExitStatus::Success)
}

/// All objects, in the order in which they must be created.
fn objects(args: &SetupArgs) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    if args.create_namespace {
        let metadata = ObjectMeta { name: Some(args.namespace.clone()), ..ObjectMeta::default() };
        objects.push(serde_json::to_value(Namespace { metadata, ..Namespace::default() })?);
    }
    let named = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(args.namespace.clone()),
        ..ObjectMeta::default()
    };
    let role = format!("{}-driver", args.service_account);
    objects.push(serde_json::to_value(ServiceAccount {
        metadata: named(&args.service_account),
        ..ServiceAccount::default()
    })?);
    objects.push(serde_json::to_value(Role { metadata: named(&role), rules: Some(rules(args)) })?);
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: args.service_account.clone(),
        namespace: Some(args.namespace.clone()),
        api_group: None,
    };
    let role_ref = RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "Role".to_owned(),
        name: role.clone(),
    };
    objects.push(serde_json::to_value(RoleBinding {
        metadata: named(&role),
        role_ref,
        subjects: Some(vec![subject]),
    })?);
    if args.executors_outside && !args.without_admission_policy {
        objects.extend(firesteel_api::policy::manifests());
    }
    Ok(objects)
}

/// Who creates a driver's executors, and so what the driver needs permission for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocator {
    /// The driver: it creates, watches, labels and deletes executor pods; creates their ConfigMap and volume claims (and, from
    /// 4.2, resizes these); and when it ends deletes what is left by label, including its own Service.
    Spark,
    /// The driver, as StatefulSets.
    StatefulSet,
    /// The operator.
    Firesteel,
}

fn rules(args: &SetupArgs) -> Vec<PolicyRule> {
    driver_rules(match (args.executors_outside, args.statefulset) {
        (true, _) => Allocator::Firesteel,
        (false, true) => Allocator::StatefulSet,
        (false, false) => Allocator::Spark,
    })
}

/// What a driver may do in its namespace.
pub(crate) fn driver_rules(allocator: Allocator) -> Vec<PolicyRule> {
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(strings(&[group])),
        resources: Some(strings(resources)),
        verbs: strings(verbs),
        ..PolicyRule::default()
    };
    let pods = || {
        vec![
            rule("", &["pods"], &["create", "delete", "deletecollection", "get", "list", "patch", "watch"]),
            rule("", &["configmaps"], &["create", "delete", "deletecollection", "get", "list"]),
            rule("", &["persistentvolumeclaims"], &["create", "delete", "deletecollection", "get", "list", "patch"]),
            rule("", &["services"], &["delete", "deletecollection", "get", "list"]),
        ]
    };
    match allocator {
        Allocator::Spark => pods(),
        Allocator::StatefulSet => {
            let mut rules = pods();
            rules.push(rule("apps", &["statefulsets"], &["create", "delete", "get", "list", "patch", "watch"]));
            rules.push(rule("apps", &["statefulsets/scale"], &["get", "patch", "update"]));
            rules
        }
        Allocator::Firesteel => vec![
            rule("firesteel.dev", &["executorgrants/status"], &["patch"]),
            rule("firesteel.dev", &["executorledgers"], &["get", "watch"]),
        ],
    }
}

async fn apply(args: &SetupArgs, objects: &[Value]) -> anyhow::Result<ExitStatus> {
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone(), ..Access::default() };
    let cluster = Cluster::reach(&access)?;
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        let resource = resource(&kind);
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(cluster.client.clone(), &resource)
        } else {
            Api::namespaced_with(cluster.client.clone(), &namespace, &resource)
        };
        let name = object.name_any();
        // Users who may only read the policy see that an administrator has installed it.
        let of_cluster = is_policy(&kind);
        if of_cluster && is_as_wanted(&cluster.ask(api.get_opt(&name)).await, &object) {
            Printer.talk(format_args!("{} {} already exists", kind.to_lowercase(), name));
            continue;
        }
        cluster.ask(writes::apply(&api, "firesteel", &name, &object, false)).await.map_err(|error| {
            let kind = kind.to_lowercase();
            let about =
                Attempt { verb: "create", kind: &kind, name: &name, namespace: &namespace, server: &cluster.server };
            match &error {
                kube::Error::Api(status) if status.code == 403 && of_cluster => anyhow::anyhow!(
                    "the account is set up, but you lack permission to install the cluster-wide admission policy {name}: ask an administrator to run `{}`, or add --without-admission-policy if it is installed (the API server said: {})",
                    firesteel_api::policy::COMMAND,
                    status.message
                ),
                kube::Error::Api(status) if status.code == 404 && of_cluster => anyhow::anyhow!(
                    "the account is set up, but this cluster has no ValidatingAdmissionPolicies, which came with Kubernetes 1.30: add --without-admission-policy and use one service account per driver"
                ),
                kube::Error::Api(status) if status.code == 403 => anyhow::anyhow!(
                    "you lack permission to set up namespace {}: ask an administrator to run this command (the API server said: {})",
                    args.namespace,
                    status.message
                ),
                kube::Error::Api(status) if status.code == 404 && status.message.contains("namespaces") => {
                    anyhow::anyhow!(
                        "there is no namespace {}: add --create-namespace to create it, or name another with -n",
                        args.namespace
                    )
                }
                _ => about.refused(&error).into(),
            }
        })?;
        Printer.talk(format_args!("{} {} applied", kind.to_lowercase(), name));
    }
    Printer.talk(format_args!(
        "Next: firesteel submit --conf spark.kubernetes.namespace={} --conf spark.kubernetes.authenticate.driver.serviceAccountName={} …",
        args.namespace, args.service_account
    ));
    Ok(ExitStatus::Success)
}

/// Whether a kind belongs to the cluster-wide admission policy.
fn is_policy(kind: &str) -> bool {
    kind.starts_with("ValidatingAdmissionPolicy")
}

/// Whether the object found has the wanted spec.
fn is_as_wanted(found: &Result<Option<DynamicObject>, kube::Error>, wanted: &DynamicObject) -> bool {
    let Ok(Some(found)) = found else { return false };
    firesteel_api::policy::holds(&found.data["spec"], &wanted.data["spec"])
}

fn resource(kind: &str) -> ApiResource {
    match kind {
        "Namespace" => ApiResource::erase::<Namespace>(&()),
        "ServiceAccount" => ApiResource::erase::<ServiceAccount>(&()),
        "Role" => ApiResource::erase::<Role>(&()),
        "RoleBinding" => ApiResource::erase::<RoleBinding>(&()),
        "ValidatingAdmissionPolicy" => ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
        "ValidatingAdmissionPolicyBinding" => ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()),
        other => ApiResource::from_gvk(&GroupVersionKind::gvk(&Role::group(&()), "v1", other)),
    }
}

/// A DNS label.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    !name.is_empty() && name.len() <= 63 && inner && !name.starts_with('-') && !name.ends_with('-')
}
