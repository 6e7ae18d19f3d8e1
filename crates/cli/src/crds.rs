//! `firesteel crds`: prints the cluster-wide objects: the custom resource definitions, and the admission policy that keeps
//! drivers of one service account away from each other's executors.

use std::io::Write;

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct CrdsArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: CrdFormat,
    /// Print only the definitions. Without the policy, drivers that share a service account get executors one at a time
    #[arg(long)]
    without_admission_policy: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CrdFormat {
    Yaml,
    Json,
    Name,
}

pub(crate) fn main(args: &CrdsArgs) -> anyhow::Result<ExitStatus> {
    let mut out = std::io::stdout().lock();
    let policy = firesteel_api::policy::manifests();
    let policy = policy.into_iter().filter(|_| !args.without_admission_policy);
    for object in firesteel_api::crds::manifests().into_iter().chain(policy) {
        let text = match args.output {
            CrdFormat::Yaml => format!("---\n{}\n", serde_saphyr::to_string(&object)?.trim_end()),
            CrdFormat::Json => format!("{}\n", serde_json::to_string_pretty(&object)?),
            CrdFormat::Name => name(&object),
        };
        match out.write_all(text.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            other => other?,
        }
    }
    Ok(ExitStatus::Success)
}

/// In kubectl's form: `customresourcedefinition.apiextensions.k8s.io/executorgrants.firesteel.dev`.
fn name(object: &serde_json::Value) -> String {
    let text = |field: &serde_json::Value| field.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let group = version.split('/').next().unwrap_or_default();
    format!("{}.{group}/{}\n", text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]))
}
