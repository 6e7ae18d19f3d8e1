//! `--status` and `--kill`: existing drivers, by submission id.
//!
//! A submission id is `NAMESPACE:POD`. Without a namespace, the configured one is used, else the client's. A trailing `*`
//! matches all drivers with that prefix.

use std::time::Duration;

use firesteel_cluster::Cluster;
use firesteel_cluster::error::{Class, class};
use firesteel_cluster::refusal::Attempt;
use firesteel_cluster::writes::delete_if;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use crate::exit::{BadInput, ExitStatus};
use crate::output::{Format, Printer};
use crate::submit::state;

/// The selected drivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    namespace: String,
    name: String,
    /// `name` is a prefix.
    glob: bool,
}

impl Selection {
    /// Parses a submission id; `namespace` is the default.
    pub(crate) fn parse(id: &str, namespace: &str) -> anyhow::Result<Selection> {
        let (namespace, name) = id.split_once(':').unwrap_or((namespace, id));
        let (name, glob) = name.strip_suffix('*').map_or((name, false), |prefix| (prefix, true));
        let word =
            |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'));
        if namespace.is_empty() || !word(namespace) || !word(name) || (name.is_empty() && !glob) {
            return Err(
                BadInput(format!("{id} is not a submission id; write NAMESPACE:POD or NAMESPACE:PREFIX*")).into()
            );
        }
        Ok(Selection { namespace: namespace.to_owned(), name: name.to_owned(), glob })
    }

    /// The selected drivers. It is an error if there are none.
    async fn find(&self, cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &self.namespace);
        let about =
            |verb| Attempt { verb, kind: "pod", name: &self.name, namespace: &self.namespace, server: &cluster.server };
        if self.glob {
            let drivers = ListParams::default().labels("spark-role=driver");
            let found = cluster.ask(pods.list(&drivers)).await.map_err(|error| about("list").refused(&error))?;
            let found: Vec<Pod> =
                found.items.into_iter().filter(|pod| pod.name_any().starts_with(&self.name)).collect();
            if found.is_empty() {
                anyhow::bail!("No applications found: namespace {} has no driver pod {}*", self.namespace, self.name);
            }
            return Ok(found);
        }
        match cluster.ask(pods.get(&self.name)).await {
            Ok(pod) if pod.labels().get("spark-role").is_some_and(|role| role == "driver") => Ok(vec![pod]),
            Ok(_) => anyhow::bail!(
                "pod {}/{} is not a Spark driver: it has no label spark-role=driver",
                self.namespace,
                self.name
            ),
            Err(error) if class(&error) == Class::Missing => {
                anyhow::bail!("Application not found: there is no driver pod {}/{}", self.namespace, self.name)
            }
            Err(error) => Err(about("get").refused(&error).into()),
        }
    }
}

/// Prints the state of the selected drivers.
pub(crate) async fn status(
    cluster: &Cluster,
    selection: &Selection,
    format: Option<Format>,
    printer: Printer,
) -> anyhow::Result<ExitStatus> {
    let found = selection.find(cluster).await?;
    let text = match (format, found.as_slice()) {
        (None, pods) => {
            let one = |pod: &Pod| format!("Application status (driver):{}\n", state::describe(pod));
            pods.iter().map(one).collect()
        }
        (Some(format), [pod]) if !selection.glob => format.render(&serde_json::to_value(pod)?)?,
        (Some(format), pods) => {
            let items = pods.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
            format.render(&json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }))?
        }
    };
    printer.data(text)?;
    Ok(ExitStatus::Success)
}

/// Deletes the selected drivers; garbage collection removes what they own.
pub(crate) async fn kill(
    cluster: &Cluster,
    selection: &Selection,
    grace: Option<Duration>,
    printer: Printer,
) -> anyhow::Result<ExitStatus> {
    let found = selection.find(cluster).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &selection.namespace);
    let grace_period_seconds = grace.map(|grace| u32::try_from(grace.as_secs()).unwrap_or(u32::MAX));
    let mut refused = Vec::new();
    for pod in &found {
        let name = pod.name_any();
        let params = DeleteParams { grace_period_seconds, ..DeleteParams::default() };
        match cluster.ask(delete_if(&pods, &name, pod.uid(), params)).await {
            Ok(true) => {
                let app = pod
                    .labels()
                    .get("spark-app-selector")
                    .map(|app| format!(" (application {app})"))
                    .unwrap_or_default();
                printer.talk(format_args!("Killed {}:{name}{app}", selection.namespace));
            }
            // Deleted or replaced in the meantime: the selected one no longer runs.
            Ok(false) => {
                printer.talk(format_args!("{}:{name} was already gone", selection.namespace));
            }
            Err(error) => {
                let about = Attempt {
                    verb: "delete",
                    kind: "pod",
                    name: &name,
                    namespace: &selection.namespace,
                    server: &cluster.server,
                };
                refused.push(about.refused(&error));
            }
        }
    }
    match refused.into_iter().next() {
        Some(first) => Err(first.into()),
        None => Ok(ExitStatus::Success),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(namespace: &str, name: &str, glob: bool) -> Selection {
        Selection { namespace: namespace.to_owned(), name: name.to_owned(), glob }
    }

    #[test]
    fn submission_id_splits_at_the_first_colon_and_may_end_in_a_star() {
        let parsed = |id| Selection::parse(id, "mine").expect("an id");
        assert_eq!(parsed("spark:pi-driver"), selection("spark", "pi-driver", false));
        assert_eq!(parsed("pi-driver"), selection("mine", "pi-driver", false));
        assert_eq!(parsed("spark:pi-*"), selection("spark", "pi-", true));
        assert_eq!(parsed("spark:*"), selection("spark", "", true));
    }

    #[test]
    fn what_cannot_be_an_id_is_refused() {
        for id in ["", ":", "spark:", ":pi", "a b", "spark:pi:x", "spark:*x", "Spark:pi"] {
            let error = Selection::parse(id, "mine").expect_err(id);
            assert!(error.to_string().contains("is not a submission id"), "{error}");
        }
    }
}
