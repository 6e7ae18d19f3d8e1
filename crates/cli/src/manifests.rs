//! `firesteel manifests`: prints everything the operator needs in a cluster, for `kubectl apply --server-side -f -`.
//!
//! The chart is the source of the operator's own objects: `deploy/kustomize` holds what it renders with its default values, and
//! `tests/chart` compares them. The definitions and the admission policy come from the code. Printing needs no cluster.

use clap::Args;
use serde_json::{Value, json};

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::output::{Format, Printer};

/// The chart's objects for an operator that works in one namespace, and for one that works in all of them.
const ONE_NAMESPACE: &str = include_str!("../../../deploy/kustomize/base/operator.yaml");
const ALL_NAMESPACES: &str = include_str!("../../../deploy/kustomize/all-namespaces/operator.yaml");
/// The namespace of the operator in these files, and that of the applications.
const OWN: &str = "spark-operator";
const JOBS: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// Namespace of the operator; it is created
    #[arg(short, long, default_value = OWN)]
    namespace: String,
    /// Image of the operator [default: firesteel/firesteel with the tag of this version]
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Comma-separated namespaces that the operator watches, with a service account for drivers in each; they must exist
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = JOBS)]
    job_namespaces: Vec<String>,
    /// Watch all namespaces; create service accounts for drivers with `firesteel setup`
    #[arg(long, conflicts_with = "job_namespaces")]
    all_namespaces: bool,
    /// Leave out the custom resource definitions
    #[arg(long)]
    without_crds: bool,
    /// Leave out the cluster-wide admission policy, which keeps drivers of one account away from each other's executors
    #[arg(long)]
    without_admission_policy: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

pub(crate) fn main(args: &ManifestsArgs) -> anyhow::Result<ExitStatus> {
    for name in std::iter::once(&args.namespace).chain(&args.job_namespaces) {
        if !crate::setup::is_name(name) {
            return Err(BadInput(format!(
                "\"{name}\" is not a namespace: a name consists of at most 63 lower-case letters, digits and hyphens"
            ))
            .into());
        }
    }
    let objects = objects(args)?;
    let text = match args.output {
        Format::Json => {
            args.output.render(&json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects}))?
        }
        Format::Yaml => {
            objects.iter().map(|object| args.output.render(object)).collect::<anyhow::Result<Vec<_>>>()?.join("---\n")
        }
    };
    Printer.data(text)?;
    Ok(ExitStatus::Success)
}

/// All objects, in the order in which they must be created.
fn objects(args: &ManifestsArgs) -> anyhow::Result<Vec<Value>> {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": args.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    })];
    if !args.without_crds {
        objects.extend(firesteel_api::crds::manifests());
    }
    if !args.without_admission_policy {
        objects.extend(firesteel_api::policy::manifests());
    }
    let rendered = if args.all_namespaces { ALL_NAMESPACES } else { ONE_NAMESPACE };
    for object in serde_saphyr::from_multiple::<Value>(rendered)? {
        let namespaces = match object["metadata"]["namespace"].as_str() {
            Some(JOBS) => args.job_namespaces.as_slice(),
            _ => std::slice::from_ref(&args.namespace),
        };
        objects.extend(namespaces.iter().map(|namespace| placed(&object, namespace, args)));
    }
    Ok(objects)
}

/// An object of the chart in another namespace, with the chosen image.
fn placed(object: &Value, namespace: &str, args: &ManifestsArgs) -> Value {
    let mut object = object.clone();
    if let Some(written) = object["metadata"].get_mut("namespace") {
        *written = json!(namespace);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let own = subject["namespace"] == OWN;
        subject["namespace"] = json!(if own { &args.namespace } else { namespace });
    }
    if object["kind"] == "Deployment" {
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        if let Some(image) = &args.image {
            container["image"] = json!(image);
        }
        for argument in container["args"].as_array_mut().into_iter().flatten() {
            match argument.as_str().and_then(|text| text.split_once('=')) {
                Some(("--namespaces", _)) => {
                    *argument = json!(format!("--namespaces={}", args.job_namespaces.join(",")));
                }
                Some((flag @ "--leader-election-lock-namespace", _)) => {
                    *argument = json!(format!("{flag}={}", args.namespace));
                }
                _ => {}
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: ManifestsArgs,
    }

    fn print(line: &str) -> Vec<Value> {
        objects(&Only::try_parse_from(line.split_whitespace()).unwrap().args).unwrap()
    }

    fn kinds(objects: &[Value], namespace: &str) -> Vec<String> {
        let inside = objects.iter().filter(|object| object["metadata"]["namespace"] == namespace);
        inside.map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_tag_is_this_version() {
        let image = format!("firesteel/firesteel:{}", env!("CARGO_PKG_VERSION"));
        for rendered in [ONE_NAMESPACE, ALL_NAMESPACES] {
            assert!(rendered.contains(&format!("image: {image}\n")), "run tests/chart --update");
        }
    }

    #[test]
    fn every_place_is_the_one_asked_for() {
        let objects = print("manifests -n ours --job-namespaces a,b --image registry.example/firesteel:1");
        let text = serde_json::to_string(&objects).unwrap();
        assert!(text.contains("--namespaces=a,b") && text.contains("--leader-election-lock-namespace=ours"));
        assert!(text.contains("registry.example/firesteel:1") && !text.contains("firesteel/firesteel:"));
        assert_eq!(kinds(&objects, "a"), kinds(&objects, "b"));
        assert_eq!(kinds(&objects, "a"), ["ServiceAccount", "Role", "Role", "RoleBinding", "RoleBinding"]);
        assert!(kinds(&objects, OWN).is_empty() && kinds(&objects, JOBS).is_empty());
        for binding in objects.iter().filter(|object| object["kind"] == "RoleBinding") {
            let driver = binding["metadata"]["name"].as_str().unwrap().ends_with("-spark");
            let own = if driver { binding["metadata"]["namespace"].as_str().unwrap() } else { "ours" };
            assert_eq!(binding["subjects"][0]["namespace"], own);
        }
    }

    #[test]
    fn an_operator_for_all_namespaces_has_one_cluster_role_and_no_other_place() {
        let objects = print("manifests --all-namespaces --without-crds --without-admission-policy");
        let places: Vec<&Value> =
            objects.iter().map(|object| &object["metadata"]["namespace"]).filter(|n| !n.is_null()).collect();
        assert!(places.iter().all(|place| **place == OWN), "{places:?}");
        let cluster: Vec<&Value> =
            objects.iter().filter(|object| object["metadata"]["namespace"].is_null()).map(|o| &o["kind"]).collect();
        assert_eq!(cluster, ["Namespace", "ClusterRole", "ClusterRoleBinding"]);
        assert!(!serde_json::to_string(&objects).unwrap().contains("--namespaces="));
    }
}
