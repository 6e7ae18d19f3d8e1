//! ValidatingAdmissionPolicy: selects policies and bindings for a request and evaluates their expressions.
//!
//! The `authorizer` variable is not supported; a policy that uses it is rejected on creation.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};

use super::cel_expression::{self, Scope};
use super::{Attributes, rules};
use crate::kinds::Kind;
use crate::meta;
use crate::selector::Labels;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::store::Stored;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
/// The maximum length of message expressions' results.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A reason to deny a request.
struct Denial {
    message: String,
    reason: String,
}

impl Denial {
    fn of_error(message: String) -> Self {
        Self { message, reason: "Invalid".into() }
    }
}

pub(super) fn validate(state: &Arc<State>, attributes: &Attributes<'_>, warnings: &mut Vec<String>) -> ApiResult<()> {
    let all = |table: &str| -> Vec<Arc<Stored>> {
        let found = state.store.list(table, None, None, usize::MAX, None, |_| true);
        found.map(|f| f.items.into_iter().map(|(_, stored)| stored).collect()).unwrap_or_default()
    };
    let policies = all(POLICIES);
    if policies.is_empty() {
        return Ok(());
    }
    let bindings = all(BINDINGS);
    for policy in &policies {
        let policy = policy.value();
        let name = meta::name(&policy);
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let constraints = spec.get("matchConstraints").unwrap_or(&Value::Null);
        let Some(version) = concerned(state, attributes, constraints) else { continue };
        for binding in bindings.iter().filter(|b| meta::text(&b.value(), "/spec/policyName") == name) {
            let binding = binding.value();
            let bound = binding.get("spec").unwrap_or(&Value::Null);
            if bound.get("matchResources").is_some_and(|m| concerned(state, attributes, m).is_none()) {
                continue;
            }
            let fails = meta::text(spec, "/failurePolicy") != "Ignore";
            let params = match params(state, attributes, spec, bound) {
                Ok(params) => params,
                Err(why) if fails => {
                    let denial = Denial::of_error(format!("failed to configure binding: {why}"));
                    return Err(refusal(attributes, name, &binding, &denial));
                }
                Err(_) => continue,
            };
            for param in &params {
                let actions: Vec<&str> = bound
                    .get("validationActions")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                for denial in judge(state, attributes, spec, &version, param, fails) {
                    if actions.contains(&"Deny") {
                        return Err(refusal(attributes, name, &binding, &denial));
                    }
                    if actions.contains(&"Warn") {
                        warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{}': {}",
                            meta::name(&binding),
                            denial.message
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The version in which a request matches `matchResources`; without rules everything matches.
fn concerned(state: &State, attributes: &Attributes<'_>, resources: &Value) -> Option<Arc<str>> {
    if !rules::selected(state, attributes, resources) {
        return None;
    }
    let exact = meta::text(resources, "/matchPolicy") == "Exact";
    if rules::version_for(state, attributes, resources.get("excludeResourceRules"), exact).is_some() {
        return None;
    }
    match resources.get("resourceRules").and_then(Value::as_array) {
        Some(list) if !list.is_empty() => rules::version_for(state, attributes, resources.get("resourceRules"), exact),
        _ => Some(attributes.req.kind.version.clone()),
    }
}

fn refusal(attributes: &Attributes<'_>, policy: &str, binding: &Value, denial: &Denial) -> Box<StatusError> {
    let message = format!(
        "ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {}",
        meta::name(binding),
        denial.message
    );
    let kind = &attributes.req.kind;
    let mut failure = StatusError::forbidden(&kind.group, &kind.resource, attributes.name, &message);
    failure.code = match denial.reason.as_str() {
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    failure.reason = denial.reason.clone().into();
    if let Some(details) = failure.details.as_mut() {
        details["causes"] = json!([{"message": message}]);
    }
    failure
}

/// The parameters of a binding; a single `null` if it has none.
fn params(state: &State, attributes: &Attributes<'_>, policy: &Value, binding: &Value) -> Result<Vec<Value>, String> {
    let (Some(wanted), Some(reference)) = (policy.get("paramKind"), binding.get("paramRef")) else {
        return Ok(vec![Value::Null]);
    };
    let (version, name) = (meta::text(wanted, "/apiVersion"), meta::text(wanted, "/kind"));
    let kind: Arc<Kind> = state
        .kinds
        .load()
        .iter()
        .find(|k| k.api_version() == version && *k.kind == *name)
        .cloned()
        .ok_or_else(|| format!("paramKind kind `{version}, Kind={name}` not known"))?;
    let namespace = match (meta::text(reference, "/namespace"), kind.namespaced) {
        ("", true) if attributes.namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        ("", true) => attributes.namespace,
        (given, true) => given,
        ("", false) => "",
        (_, false) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
    };
    let found: Vec<Value> = match meta::text(reference, "/name") {
        "" => {
            let selector = Labels::from_object(reference.get("selector").unwrap_or(&Value::Null))?;
            let place = kind.namespaced.then_some(namespace);
            let chosen = |s: &Stored| selector.is_empty() || selector.matches(s.labels());
            state
                .store
                .list(&kind.table, place, None, usize::MAX, None, chosen)
                .map(|found| found.items.into_iter().map(|(_, s)| Value::clone(&s.value())).collect())
                .unwrap_or_default()
        }
        name => state.get(&kind, namespace, name).map(|s| Value::clone(&s.value())).into_iter().collect(),
    };
    if found.is_empty() && meta::text(reference, "/parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}

/// A policy's objections to a request.
fn judge(
    state: &State,
    attributes: &Attributes<'_>,
    spec: &Value,
    version: &str,
    param: &Value,
    fails: bool,
) -> Vec<Denial> {
    let (object, old) = (
        rules::in_version(attributes, attributes.new, version),
        rules::in_version(attributes, attributes.old, version),
    );
    let request = attributes.request(version);
    let mut scope = Scope::new(&[("object", &object), ("oldObject", &old), ("request", &request), ("params", param)]);
    match conditions_met(&scope, spec.get("matchConditions")) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(why) => return if fails { vec![Denial::of_error(why)] } else { Vec::new() },
    }
    let namespace = if attributes.req.kind.is("", "namespaces") { None } else { state.namespace(attributes.namespace) };
    let namespace = namespace.map(|stored| stored.value());
    let namespace = Scope::new(&[("namespaceObject", namespace.as_deref().unwrap_or(&Value::Null))])
        .evaluate("namespaceObject")
        .unwrap_or(Cel::Null);
    scope.bind("namespaceObject", namespace);
    bind_variables(&mut scope, spec);
    let mut denials = Vec::new();
    for validation in spec.get("validations").and_then(Value::as_array).into_iter().flatten() {
        match scope.evaluate(meta::text(validation, "/expression")) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => denials.push(Denial {
                message: message(&scope, validation),
                reason: match meta::text(validation, "/reason") {
                    "" => "Invalid".into(),
                    given => given.into(),
                },
            }),
            Err(why) if fails => denials.push(Denial::of_error(why)),
            Err(_) => {}
        }
    }
    denials
}

/// Whether all conditions hold. A false condition decides, even if others fail.
pub(super) fn conditions_met(scope: &Scope, conditions: Option<&Value>) -> Result<bool, String> {
    let mut errors: Vec<String> = Vec::new();
    for condition in conditions.and_then(Value::as_array).into_iter().flatten() {
        match scope.evaluate(meta::text(condition, "/expression")) {
            Ok(Cel::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// Variables can use earlier ones. A variable that fails is missing, which is an error only if it is used.
fn bind_variables(scope: &mut Scope, spec: &Value) {
    let mut known = HashMap::new();
    scope.bind("variables", cel_expression::map(known.clone()));
    for variable in spec.get("variables").and_then(Value::as_array).into_iter().flatten() {
        if let Ok(value) = scope.evaluate(meta::text(variable, "/expression")) {
            known.insert(cel_expression::key(meta::text(variable, "/name")), value);
            scope.bind("variables", cel_expression::map(known.clone()));
        }
    }
}

fn message(scope: &Scope, validation: &Value) -> String {
    let made = match meta::text(validation, "/messageExpression") {
        "" => None,
        source => match scope.evaluate(source) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        },
    };
    let usable = |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    made.filter(usable).unwrap_or_else(|| match meta::text(validation, "/message").trim() {
        "" => format!("failed expression: {}", meta::text(validation, "/expression").trim()),
        given => given.to_owned(),
    })
}
