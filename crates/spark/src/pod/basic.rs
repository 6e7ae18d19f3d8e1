//! The basic container and pod: image, labels, annotations, placement.

use k8s_openapi::api::core::v1::{LocalObjectReference, SecurityContext};

use super::{Draft, PlanError};
use crate::names::{VERSION_REFERENCE, key};
use crate::version::Line;

/// The container's name, image and security context.
pub(crate) fn container(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let (conf, role) = (draft.conf, draft.role);
    let image = conf.get(role.image).or(conf.get(key::IMAGE)).ok_or_else(|| PlanError::Missing {
        key: key::IMAGE.to_owned(),
        remedy: format!(
            "give the image to run, such as --conf {}=apache/spark:{}",
            key::IMAGE,
            draft.submission.version
        ),
    })?;
    let image = if draft.line >= Line::V4_1 {
        image.replace(VERSION_REFERENCE, draft.submission.version.as_str())
    } else {
        image.to_owned()
    };
    let pull_policy =
        conf.one_of(key::IMAGE_PULL_POLICY, &["Always", "Never", "IfNotPresent"])?.unwrap_or("IfNotPresent");
    let container = &mut draft.container;
    if container.name.is_empty() {
        container.name = role.container.to_owned();
    }
    container.image = Some(image);
    container.image_pull_policy = Some(pull_policy.to_owned());
    if draft.line >= Line::V4_3 {
        let inherited = conf.boolean(key::ALLOW_ESCALATION, false)?;
        let allowed = conf.boolean(role.allow_escalation, inherited)?;
        let context: &mut SecurityContext = container.security_context.get_or_insert_default();
        context.allow_privilege_escalation = Some(allowed);
    }
    Ok(())
}

/// The pod's name, labels, annotations and placement.
pub(crate) fn pod(draft: &mut Draft<'_>, restart_policy: &str) -> Result<(), PlanError> {
    let (conf, role) = (draft.conf, draft.role);
    let labels = draft.labels()?;
    let annotations: Vec<_> = conf
        .with_prefix(role.annotation_prefix)
        .into_iter()
        .map(|(name, value)| (name, draft.substitute_ids(&value)))
        .collect();
    let metadata = &mut draft.pod.metadata;
    metadata.name = Some(draft.names.pod.clone());
    metadata.namespace = None;
    metadata.labels.get_or_insert_default().extend(labels);
    if !annotations.is_empty() {
        metadata.annotations.get_or_insert_default().extend(annotations);
    }

    let mut selectors = conf.with_prefix(key::NODE_SELECTOR_PREFIX);
    selectors.extend(conf.with_prefix(role.node_selector_prefix));
    let spec = draft.spec();
    spec.restart_policy = Some(restart_policy.to_owned());
    if !selectors.is_empty() {
        spec.node_selector.get_or_insert_default().extend(selectors);
    }
    let secrets = conf.list(key::IMAGE_PULL_SECRETS);
    if !secrets.is_empty() {
        spec.image_pull_secrets
            .get_or_insert_default()
            .extend(secrets.into_iter().map(|name| LocalObjectReference { name: name.to_owned() }));
    }
    if let Some(name) = conf.get(role.scheduler).or(conf.get(key::SCHEDULER)) {
        spec.scheduler_name = Some(name.to_owned());
    }
    Ok(())
}
