//! `firesteel crds`: the custom resource definitions as YAML.

use std::io::Write;

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to print them
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Yaml,
    Json,
    Name,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitStatus> {
    let mut out = std::io::stdout().lock();
    for crd in firesteel_api::crds::manifests() {
        let text = match args.output {
            Format::Yaml => format!("---\n{}\n", serde_saphyr::to_string(&crd)?.trim_end()),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&crd)?),
            Format::Name => format!(
                "customresourcedefinition.apiextensions.k8s.io/{}\n",
                crd["metadata"]["name"].as_str().unwrap_or_default()
            ),
        };
        match out.write_all(text.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            other => other?,
        }
    }
    Ok(ExitStatus::Success)
}
