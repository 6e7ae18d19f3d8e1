//! The two kinds of pods, and the names of their corresponding settings.

use k8s_openapi::api::core::v1::Pod;

use crate::context::Templates;
use crate::names::{DRIVER_CONTAINER, EXECUTOR_CONTAINER, EXECUTOR_ID_PLACEHOLDER, key, label};

/// An executor's id is a 32-bit number.
pub(crate) const LONGEST_ID: &str = "2147483647";

pub(crate) struct Role {
    /// The value of the label `spark-role`, and the word in messages.
    pub(crate) word: &'static str,
    /// Labels that only pods of this role have.
    pub(crate) own_labels: &'static [(&'static str, &'static str)],
    /// What `{{EXECUTOR_ID}}` becomes.
    pub(crate) executor_id: &'static str,
    /// The name of the container when a template does not give one.
    pub(crate) container: &'static str,
    /// The setting that decides the pod's name.
    pub(crate) name_setting: &'static str,
    /// Characters of the pod's name that are reserved for the suffix.
    pub(crate) name_room: usize,
    /// The alternative to a pod template in the error about custom steps.
    pub(crate) instead: &'static str,
    pub(crate) allow_escalation: &'static str,
    pub(crate) annotation_prefix: &'static str,
    pub(crate) cores: &'static str,
    pub(crate) env_prefix: &'static str,
    pub(crate) excluded_steps: &'static str,
    pub(crate) feature_steps: &'static str,
    pub(crate) image: &'static str,
    pub(crate) label_prefix: &'static str,
    pub(crate) limit_cores: &'static str,
    pub(crate) memory: &'static str,
    pub(crate) memory_overhead: &'static str,
    pub(crate) memory_overhead_factor: &'static str,
    pub(crate) min_memory_overhead: &'static str,
    pub(crate) node_selector_prefix: &'static str,
    pub(crate) request_cores: &'static str,
    pub(crate) resource_prefix: &'static str,
    pub(crate) scheduler: &'static str,
    pub(crate) secret_key_ref_prefix: &'static str,
    pub(crate) secrets_prefix: &'static str,
    pub(crate) template: &'static str,
    /// The role's template, if given as a value.
    pub(crate) template_value: fn(&Templates) -> Option<&Pod>,
    pub(crate) template_container: &'static str,
    pub(crate) volumes_prefix: &'static str,
}

pub(crate) static DRIVER: Role = Role {
    word: label::ROLE_DRIVER,
    own_labels: &[],
    executor_id: "",
    container: DRIVER_CONTAINER,
    name_setting: key::DRIVER_POD_NAME,
    name_room: 0,
    instead: "Spark's own spark-submit",
    allow_escalation: key::DRIVER_ALLOW_ESCALATION,
    annotation_prefix: key::DRIVER_ANNOTATION_PREFIX,
    cores: key::DRIVER_CORES,
    env_prefix: key::DRIVER_ENV_PREFIX,
    excluded_steps: key::DRIVER_EXCLUDED_STEPS,
    feature_steps: key::DRIVER_FEATURE_STEPS,
    image: key::DRIVER_IMAGE,
    label_prefix: key::DRIVER_LABEL_PREFIX,
    limit_cores: key::DRIVER_LIMIT_CORES,
    memory: key::DRIVER_MEMORY,
    memory_overhead: key::DRIVER_MEMORY_OVERHEAD,
    memory_overhead_factor: key::DRIVER_MEMORY_OVERHEAD_FACTOR,
    min_memory_overhead: key::DRIVER_MIN_MEMORY_OVERHEAD,
    node_selector_prefix: key::DRIVER_NODE_SELECTOR_PREFIX,
    request_cores: key::DRIVER_REQUEST_CORES,
    resource_prefix: key::DRIVER_RESOURCE_PREFIX,
    scheduler: key::DRIVER_SCHEDULER,
    secret_key_ref_prefix: key::DRIVER_SECRET_KEY_REF_PREFIX,
    secrets_prefix: key::DRIVER_SECRETS_PREFIX,
    template: key::DRIVER_TEMPLATE,
    template_value: |templates| templates.driver.as_ref(),
    template_container: key::DRIVER_TEMPLATE_CONTAINER,
    volumes_prefix: key::DRIVER_VOLUMES_PREFIX,
};

pub(crate) static EXECUTOR: Role = Role {
    word: label::ROLE_EXECUTOR,
    own_labels: &[(label::EXECUTOR_ID, EXECUTOR_ID_PLACEHOLDER), (label::RESOURCE_PROFILE_ID, "0")],
    executor_id: EXECUTOR_ID_PLACEHOLDER,
    container: EXECUTOR_CONTAINER,
    name_setting: key::EXECUTOR_NAME_PREFIX,
    name_room: "-exec-".len() + LONGEST_ID.len(),
    instead: "one of Spark's own allocators (spark.kubernetes.allocation.pods.allocator=direct)",
    allow_escalation: key::EXECUTOR_ALLOW_ESCALATION,
    annotation_prefix: key::EXECUTOR_ANNOTATION_PREFIX,
    cores: key::EXECUTOR_CORES,
    env_prefix: key::EXECUTOR_ENV_PREFIX,
    excluded_steps: key::EXECUTOR_EXCLUDED_STEPS,
    feature_steps: key::EXECUTOR_FEATURE_STEPS,
    image: key::EXECUTOR_IMAGE,
    label_prefix: key::EXECUTOR_LABEL_PREFIX,
    limit_cores: key::EXECUTOR_LIMIT_CORES,
    memory: key::EXECUTOR_MEMORY,
    memory_overhead: key::EXECUTOR_MEMORY_OVERHEAD,
    memory_overhead_factor: key::EXECUTOR_MEMORY_OVERHEAD_FACTOR,
    min_memory_overhead: key::EXECUTOR_MIN_MEMORY_OVERHEAD,
    node_selector_prefix: key::EXECUTOR_NODE_SELECTOR_PREFIX,
    request_cores: key::EXECUTOR_REQUEST_CORES,
    resource_prefix: key::EXECUTOR_RESOURCE_PREFIX,
    scheduler: key::EXECUTOR_SCHEDULER,
    secret_key_ref_prefix: key::EXECUTOR_SECRET_KEY_REF_PREFIX,
    secrets_prefix: key::EXECUTOR_SECRETS_PREFIX,
    template: key::EXECUTOR_TEMPLATE,
    template_value: |templates| templates.executor.as_ref(),
    template_container: key::EXECUTOR_TEMPLATE_CONTAINER,
    volumes_prefix: key::EXECUTOR_VOLUMES_PREFIX,
};
