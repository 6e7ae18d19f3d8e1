//! From the template to one executor: fills in ids and applies what the running driver reports.
//!
//! The driver is not trusted: only sizes and literal environment variables are accepted from it, and never a secret.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaim, Pod, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{PlanError, Strategy, basic};
use crate::names::{EXECUTOR_ID_PLACEHOLDER, env, label};
use crate::pod::{Draft, resources};

/// Spark's id of the profile that applies when a stage names none.
const DEFAULT_PROFILE: u32 = 0;
/// The longest valid hostname.
const MAX_HOSTNAME: usize = 63;

/// What an executor of one resource profile gets, as reported by the driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub id: u32,
    /// How many cores Spark uses for tasks.
    pub cores: u32,
    /// The container's requested CPU, as a Kubernetes quantity.
    pub cpu: String,
    /// The container's CPU limit.
    pub cpu_limit: Option<String>,
    /// The container's memory, as a Kubernetes quantity.
    pub memory: String,
    /// Devices, as limits: name (such as `nvidia.com/gpu`) to amount.
    pub resources: BTreeMap<String, String>,
    /// Variables with literal values; `EXECID` is replaced by the executor's id.
    pub env: BTreeMap<String, String>,
}

/// Whether a resource is a device, such as `nvidia.com/gpu`, as opposed to CPU or memory.
pub fn is_device(name: &str) -> bool {
    name.contains('/')
}

/// The default profile, from the settings.
pub(super) fn default_profile(draft: &Draft<'_>) -> Result<Profile, PlanError> {
    let resources = draft.container.resources.as_ref();
    let quantity =
        |list: Option<&BTreeMap<String, Quantity>>, name: &str| list.and_then(|l| l.get(name)).map(|q| q.0.clone());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let limits = resources.and_then(|r| r.limits.as_ref());
    let devices = limits.into_iter().flatten().filter(|(name, _)| is_device(name));
    Ok(Profile {
        id: DEFAULT_PROFILE,
        cores: u32::try_from(resources::cores(draft)?).unwrap_or_default(),
        cpu: quantity(requests, "cpu").unwrap_or_default(),
        cpu_limit: quantity(limits, "cpu"),
        memory: format!("{}Mi", basic::memory(draft)?),
        // From both the settings and the template.
        resources: devices.map(|(name, q)| (name.clone(), q.0.clone())).collect(),
        env: BTreeMap::new(),
    })
}

/// The pod of one executor: the template with its id and profile. Without owner.
pub fn executor(
    template: &Pod,
    container: &str,
    id: impl std::fmt::Display,
    profile: &Profile,
    name_prefix: &str,
) -> Pod {
    let id = id.to_string();
    let mut pod = lay_over(template, container, profile);
    let name = format!("{name_prefix}-exec-{id}");
    let fill = |text: &mut String| *text = text.replace(EXECUTOR_ID_PLACEHOLDER, &id);
    pod.metadata.labels.iter_mut().flat_map(BTreeMap::values_mut).for_each(fill);
    pod.metadata.annotations.iter_mut().flat_map(BTreeMap::values_mut).for_each(fill);
    pod.metadata.labels.get_or_insert_default().insert(label::EXECUTOR_ID.to_owned(), id.clone());
    pod.metadata.generate_name = None;
    let spec = pod.spec.get_or_insert_default();
    if spec.hostname.is_some() {
        spec.hostname = Some(hostname(&name));
    }
    let claims = spec.volumes.iter_mut().flatten().filter_map(|volume| volume.persistent_volume_claim.as_mut());
    claims.for_each(|claim| fill(&mut claim.claim_name));
    if let Some(spark) = spec.containers.iter_mut().find(|each| each.name == container) {
        spark.env.iter_mut().flatten().filter_map(|variable| variable.value.as_mut()).for_each(fill);
    }
    pod.metadata.name = Some(name);
    pod
}

/// The claims of one executor. Without owner.
pub fn claims(templates: &[PersistentVolumeClaim], id: impl std::fmt::Display) -> Vec<PersistentVolumeClaim> {
    let id = id.to_string();
    let mut claims = templates.to_vec();
    for claim in &mut claims {
        let name = claim.metadata.name.take();
        claim.metadata.name = name.map(|name| name.replace(EXECUTOR_ID_PLACEHOLDER, &id));
    }
    claims
}

/// The pod template of a ReplicaSet or StatefulSet. `EXECID` stays, because its pods get their ids from the driver.
pub fn member(template: &Pod, container: &str, profile: &Profile, strategy: Strategy) -> PodTemplateSpec {
    let mut pod = lay_over(template, container, profile);
    // Pods of a StatefulSet get a hostname each; those of a ReplicaSet must not share one.
    if let (Strategy::ReplicaSet, Some(spec)) = (strategy, pod.spec.as_mut()) {
        spec.hostname = None;
    }
    PodTemplateSpec { metadata: Some(pod.metadata), spec: pod.spec }
}

/// The claim templates of a StatefulSet with the pod template `member`. Its controller creates and mounts the claims under the
/// names of the volumes, which are therefore removed from `member`.
pub fn claim_templates(member: &mut PodTemplateSpec, claims: &[PersistentVolumeClaim]) -> Vec<PersistentVolumeClaim> {
    let mut templates = Vec::new();
    let Some(volumes) = member.spec.as_mut().and_then(|spec| spec.volumes.as_mut()) else { return templates };
    volumes.retain(|volume| {
        let name = volume.persistent_volume_claim.as_ref().map(|source| &source.claim_name);
        let Some(claim) = claims.iter().find(|claim| name.is_some() && claim.metadata.name.as_ref() == name) else {
            return true;
        };
        let mut template = claim.clone();
        template.metadata.name = Some(volume.name.clone());
        template.metadata.namespace = None;
        templates.push(template);
        false
    });
    templates
}

fn lay_over(template: &Pod, container: &str, profile: &Profile) -> Pod {
    let mut pod = template.clone();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(label::RESOURCE_PROFILE_ID.to_owned(), profile.id.to_string());
    let spec = pod.spec.get_or_insert_default();
    if let Some(spark) = spec.containers.iter_mut().find(|each| each.name == container) {
        size(spark, profile);
        environment(spark, profile);
    }
    pod
}

/// Applies the profile's sizes. Other resources of the template are kept for the default profile only, as in Spark.
fn size(container: &mut Container, profile: &Profile) {
    if profile.id != DEFAULT_PROFILE {
        container.resources = Some(ResourceRequirements::default());
    }
    let quantity = |text: &String| Some(Quantity(text.clone())).filter(|q| !q.0.is_empty());
    let memory = quantity(&profile.memory).map(|memory| ("memory".to_owned(), memory));
    let resources = container.resources.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    requests.extend(quantity(&profile.cpu).map(|cpu| ("cpu".to_owned(), cpu)));
    requests.extend(memory.clone());
    let limits = resources.limits.get_or_insert_default();
    limits.extend(memory);
    limits.extend(profile.cpu_limit.as_ref().and_then(quantity).map(|cpu| ("cpu".to_owned(), cpu)));
    // Devices only; CPU and memory have their own fields.
    let devices = profile.resources.iter().filter(|(name, _)| is_device(name));
    limits.extend(devices.map(|(name, amount)| (name.clone(), Quantity(amount.clone()))));
}

/// The driver's literal values win over the template's; the template's references (fields, Secrets) stay.
fn environment(container: &mut Container, profile: &Profile) {
    let told = profile.env.keys().any(|name| name.starts_with(env::JAVA_OPT_PREFIX));
    let variables = container.env.get_or_insert_default();
    variables.retain(|variable| {
        // JVM options are a list: if the driver reports any, they replace the whole list.
        let word = told && variable.value_from.is_none() && variable.name.starts_with(env::JAVA_OPT_PREFIX);
        !word && (variable.name != env::AUTH_SECRET || variable.value_from.is_some())
    });
    for (name, value) in &profile.env {
        if name != env::AUTH_SECRET {
            set(container, name, value);
        }
    }
    // The driver does not decide an executor's identity.
    set(container, env::EXECUTOR_ID, EXECUTOR_ID_PLACEHOLDER);
    set(container, env::RESOURCE_PROFILE_ID, &profile.id.to_string());
}

/// Gives a variable a literal value, unless it is a reference. New variables go where Spark puts its own: before the
/// variables that refer to fields of the pod.
fn set(container: &mut Container, name: &str, value: &str) {
    let variables = container.env.get_or_insert_default();
    let value = Some(value.to_owned()).filter(|value| !value.is_empty());
    match variables.iter_mut().rfind(|variable| variable.name == name) {
        Some(variable) if variable.value_from.is_some() => {}
        Some(variable) => variable.value = value,
        None => {
            let at = variables.iter().position(|variable| variable.name == env::EXECUTOR_POD_IP);
            let variable = EnvVar { name: name.to_owned(), value, ..EnvVar::default() };
            variables.insert(at.unwrap_or(variables.len()), variable);
        }
    }
}

/// The end of a pod's name, as a valid hostname. Spark replaces dots by `_`, which API servers reject in hostnames; here
/// they become dashes.
pub(super) fn hostname(pod_name: &str) -> String {
    let name: String = pod_name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let end = &name[name.len().saturating_sub(MAX_HOSTNAME)..];
    end.trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_the_end_of_the_pods_name() {
        assert_eq!(hostname("app-1-exec-7"), "app-1-exec-7");
        assert_eq!(hostname("a.b-exec-7"), "a-b-exec-7");
        let long = hostname(&format!("{}-{}-exec-7", "a".repeat(60), "b".repeat(56)));
        assert_eq!(long, format!("{}-exec-7", "b".repeat(56)));
    }

    fn template() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p-exec-EXECID", "labels": {"spark-exec-id": "EXECID", "log": "x-EXECID"}},
            "spec": {
                "hostname": "p-exec-EXECID",
                "containers": [
                    {"name": "sidecar", "env": [{"name": "NOTE", "value": "EXECID"}]},
                    {
                        "name": "spark",
                        "env": [
                            {"name": "SPARK_EXECUTOR_ID", "value": "EXECID"},
                            {"name": "SPARK_JAVA_OPT_0", "value": "-Dold"},
                            {"name": "SPARK_JAVA_OPT_1", "value": "-Dolder"},
                            {"name": "PLAIN", "value": "template"},
                            {"name": "SPARK_EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        ],
                        "resources": {"limits": {"memory": "1Gi", "x.com/y": "1"}, "requests": {"cpu": "1"}},
                    },
                ],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "p-exec-EXECID-pvc-0"}}],
            },
        }))
        .unwrap()
    }

    fn profile(id: u32) -> Profile {
        let env = [
            ("PLAIN", "driver"),
            ("TOKEN", "stolen"),
            ("SPARK_EXECUTOR_ID", "99"),
            ("SPARK_JAVA_OPT_0", "-Dexec=EXECID"),
            ("_SPARK_AUTH_SECRET", "hush"),
        ];
        Profile {
            id,
            cpu: "2".to_owned(),
            cpu_limit: Some("3".to_owned()),
            memory: "2048Mi".to_owned(),
            resources: BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]),
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn the_id_is_filled_in_where_it_belongs() {
        let pod = serde_json::to_value(executor(&template(), "spark", 7, &profile(0), "p")).unwrap();
        assert_eq!(pod["metadata"]["name"], "p-exec-7");
        assert_eq!(pod["metadata"]["labels"]["spark-exec-id"], "7");
        assert_eq!(pod["metadata"]["labels"]["log"], "x-7");
        assert_eq!(pod["spec"]["hostname"], "p-exec-7");
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "p-exec-7-pvc-0");
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "EXECID", "a sidecar's words are its own");
    }

    #[test]
    fn the_drivers_literals_win_but_references_and_ids_stay() {
        let pod = executor(&template(), "spark", 7, &profile(0), "p");
        let env = pod.spec.unwrap().containers.remove(1).env.unwrap();
        let value = |name: &str| env.iter().find(|v| v.name == name).map(|v| v.value.as_deref().unwrap_or("<ref>"));
        assert_eq!(value("PLAIN"), Some("driver"));
        assert_eq!(value("TOKEN"), Some("<ref>"));
        assert_eq!(value("SPARK_EXECUTOR_ID"), Some("7"));
        assert_eq!(value("SPARK_RESOURCE_PROFILE_ID"), Some("0"));
        assert_eq!(value("SPARK_JAVA_OPT_0"), Some("-Dexec=7"));
        assert_eq!(value("SPARK_JAVA_OPT_1"), None, "the list of words is the driver's");
        assert_eq!(value("_SPARK_AUTH_SECRET"), None);
    }

    #[test]
    fn other_profiles_do_not_keep_the_templates_resources() {
        let limits = |id| {
            let pod = executor(&template(), "spark", 7, &profile(id), "p");
            let resources = pod.spec.unwrap().containers.remove(1).resources.unwrap();
            resources
                .limits
                .unwrap()
                .into_iter()
                .map(|(name, q)| format!("{name}={}", q.0))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(limits(0), "cpu=3 memory=2048Mi nvidia.com/gpu=1 x.com/y=1");
        assert_eq!(limits(4), "cpu=3 memory=2048Mi nvidia.com/gpu=1");
        let pod = executor(&template(), "spark", 7, &profile(4), "p");
        assert_eq!(pod.metadata.labels.unwrap()["spark-exec-resourceprofile-id"], "4");
    }

    #[test]
    fn claims_of_a_stateful_set_have_the_names_of_their_volumes() {
        let claim = |name: &str| PersistentVolumeClaim {
            metadata: serde_json::from_value(serde_json::json!({"name": name, "namespace": "n"})).unwrap(),
            ..PersistentVolumeClaim::default()
        };
        let mut made = member(&template(), "spark", &profile(0), Strategy::StatefulSet);
        assert!(claim_templates(&mut made, &[claim("other")]).is_empty());
        assert_eq!(made.spec.as_ref().unwrap().volumes.as_ref().unwrap().len(), 1);
        let templates = claim_templates(&mut made, &[claim("p-exec-EXECID-pvc-0")]);
        assert_eq!(templates[0].metadata.name.as_deref(), Some("v"));
        assert_eq!(templates[0].metadata.namespace, None);
        assert!(made.spec.unwrap().volumes.unwrap().is_empty());
    }

    #[test]
    fn members_of_sets_keep_the_placeholder() {
        let stateful = member(&template(), "spark", &profile(0), Strategy::StatefulSet);
        assert_eq!(stateful.metadata.unwrap().labels.unwrap()["spark-exec-id"], "EXECID");
        assert_eq!(stateful.spec.unwrap().hostname.as_deref(), Some("p-exec-EXECID"));
        assert_eq!(member(&template(), "spark", &profile(0), Strategy::ReplicaSet).spec.unwrap().hostname, None);
    }
}
