//! Webhook configurations, admission policies and their bindings.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{each, one_of, text};
use crate::admission::cel_expression;
use crate::names;
use crate::status::Cause;

/// Variables of all admission expressions.
const COMMON: [&str; 3] = ["object", "oldObject", "request"];
const POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const FAILURES: [&str; 2] = ["Fail", "Ignore"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

fn list<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten().collect()
}

pub(super) fn webhooks(object: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, hook) in each(object, "webhooks").into_iter().enumerate() {
        let at = format!("webhooks[{index}]");
        let name = text(hook, "name");
        full_name(name, &format!("{at}.name"), causes);
        for (index, rule) in each(hook, "rules").into_iter().enumerate() {
            rule_causes(rule, &format!("{at}.rules[{index}]"), causes);
        }
        one_of(hook, "failurePolicy", &at, &FAILURES, causes);
        one_of(hook, "matchPolicy", &at, &POLICIES, causes);
        match text(hook, "sideEffects") {
            "" => causes.push(Cause::required(format!("{at}.sideEffects"), "must specify one of None, NoneOnDryRun")),
            _ => one_of(hook, "sideEffects", &at, &["None", "NoneOnDryRun"], causes),
        }
        if let Some(seconds) = hook.get("timeoutSeconds").filter(|s| !s.as_i64().is_some_and(|s| (1..=30).contains(&s)))
        {
            causes.push(Cause::invalid(
                format!("{at}.timeoutSeconds"),
                seconds,
                "the timeout value must be between 1 and 30 seconds",
            ));
        }
        client(hook.get("clientConfig").unwrap_or(&Value::Null), &format!("{at}.clientConfig"), causes);
        conditions(hook, &at, &COMMON, causes);
        review_versions(hook, &format!("{at}.admissionReviewVersions"), causes);
        if !name.is_empty() && !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
        }
    }
}

/// At least three segments, as in `imagepolicy.example.com`.
fn full_name(name: &str, field: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
    } else if let Some(why) = names::subdomain_complaint(name) {
        causes.push(Cause::invalid(field, &name.into(), &why));
    } else if name.split('.').count() < 3 {
        causes.push(Cause::invalid(
            field,
            &name.into(),
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

fn client(config: &Value, at: &str, causes: &mut Vec<Cause>) {
    let service = config.get("service").filter(|s| s.is_object());
    match (config.get("url").and_then(Value::as_str), service) {
        (None, None) | (Some(_), Some(_)) => {
            causes.push(Cause::required(at, "exactly one of url or service is required"));
        }
        (Some(url), None) => address(url, &format!("{at}.url"), causes),
        (None, Some(service)) => {
            for field in ["namespace", "name"] {
                if text(service, field).is_empty() {
                    causes.push(Cause::required(format!("{at}.service.{field}"), ""));
                }
            }
            let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
            if !(1..=65535).contains(&port) {
                let why = format!("port is not valid: {}", super::PORT_RANGE);
                causes.push(Cause::invalid(format!("{at}.service.port"), &port.into(), &why));
            }
            service_path(text(service, "path"), &format!("{at}.service.path"), causes);
        }
    }
}

fn service_path(path: &str, field: &str, causes: &mut Vec<Cause>) {
    if path.is_empty() || path == "/" {
        return;
    }
    let mut wrong = |why: &str| causes.push(Cause::invalid(field, &path.into(), why));
    if path == "//" {
        return wrong("segment[0] may not be empty");
    }
    if !path.starts_with('/') {
        wrong("must start with a '/'");
    }
    let steps: String = path.chars().skip(1).collect();
    for (index, step) in steps.strip_suffix('/').unwrap_or(&steps).split('/').enumerate() {
        if step.is_empty() {
            wrong(&format!("segment[{index}] may not be empty"));
        }
    }
}

fn address(url: &str, field: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        causes.push(Cause::invalid(field, &scheme.into(), &why));
    }
    let Ok(parsed) = url::Url::parse(url) else {
        causes.push(Cause::invalid(field, &"".into(), &format!("host must be specified{FORM}")));
        return;
    };
    if parsed.host_str().is_none_or(str::is_empty) {
        causes.push(Cause::invalid(field, &"".into(), &format!("host must be specified{FORM}")));
    }
    if !parsed.username().is_empty() {
        causes.push(Cause::invalid(field, &parsed.username().into(), "user information is not permitted in the URL"));
    }
    if let Some(fragment) = parsed.fragment() {
        causes.push(Cause::invalid(field, &fragment.into(), "fragments are not permitted in the URL"));
    }
    if let Some(query) = parsed.query() {
        causes.push(Cause::invalid(field, &query.into(), "query parameters are not permitted in the URL"));
    }
}

fn review_versions(hook: &Value, at: &str, causes: &mut Vec<Cause>) {
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        causes.push(Cause::required(at, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(version.as_str()) {
            causes.push(Cause::invalid(format!("{at}[{index}]"), version, "duplicate version"));
        }
    }
    if !versions.iter().any(|v| v.as_str().is_some_and(|v| REVIEW_VERSIONS.contains(&v))) {
        causes.push(Cause::invalid(
            at,
            &versions.into_iter().cloned().collect(),
            "must include at least one of v1, v1beta1",
        ));
    }
}

fn rule_causes(rule: &Value, at: &str, causes: &mut Vec<Cause>) {
    let operations = list(rule, "operations");
    let wildcard = |values: &[&Value]| values.len() > 1 && values.iter().any(|v| *v == "*");
    let whole = |field: &str| rule.get(field).cloned().unwrap_or_default();
    if operations.is_empty() {
        causes.push(Cause::required(format!("{at}.operations"), ""));
    }
    if wildcard(&operations) {
        causes.push(Cause::invalid(
            format!("{at}.operations"),
            &whole("operations"),
            "if '*' is present, must not specify other operations",
        ));
    }
    for (index, operation) in operations.iter().enumerate() {
        const KNOWN: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        if !operation.as_str().is_some_and(|o| KNOWN.contains(&o)) {
            causes.push(Cause::unsupported(format!("{at}.operations[{index}]"), operation, &KNOWN));
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let values = list(rule, field);
        if values.is_empty() {
            causes.push(Cause::required(format!("{at}.{field}"), ""));
        }
        if wildcard(&values) {
            let why = format!("if '*' is present, must not specify other {what}");
            causes.push(Cause::invalid(format!("{at}.{field}"), &whole(field), &why));
        }
    }
    let resources = list(rule, "resources");
    if resources.is_empty() {
        causes.push(Cause::required(format!("{at}.resources"), ""));
    }
    if resources.len() > 1 && resources.iter().any(|r| *r == "*/*") {
        causes.push(Cause::invalid(
            format!("{at}.resources"),
            &whole("resources"),
            "if '*/*' is present, must not specify other resources",
        ));
    }
    one_of(rule, "scope", at, &["*", "Cluster", "Namespaced"], causes);
}

fn expression_cause(source: &str, field: String, variables: &[&str], causes: &mut Vec<Cause>) {
    if source.contains("authorizer") && cel_expression::complaint(source, variables).is_some() {
        let why = "compilation failed: `authorizer` is not supported by this server; leave it out";
        causes.push(Cause::invalid(field, &source.into(), why));
    } else if let Some(why) = cel_expression::complaint(source, variables) {
        causes.push(Cause::invalid(field, &source.into(), &why));
    }
}

fn conditions(holder: &Value, at: &str, variables: &[&str], causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    let all = each(holder, "matchConditions");
    if all.len() > 64 {
        causes.push(Cause::too_many(format!("{at}.matchConditions"), all.len(), 64));
    }
    for (index, condition) in all.into_iter().enumerate() {
        let at = format!("{at}.matchConditions[{index}]");
        match text(condition, "expression").trim() {
            "" => causes.push(Cause::required(format!("{at}.expression"), "")),
            source => expression_cause(source, format!("{at}.expression"), variables, causes),
        }
        let name = text(condition, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else {
            if let Some(why) = names::qualified_name_complaint(name) {
                causes.push(Cause::invalid(format!("{at}.name"), &name.into(), &why));
            }
            if !seen.insert(name) {
                causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
            }
        }
    }
}

fn match_resources(resources: &Value, at: &str, causes: &mut Vec<Cause>) {
    one_of(resources, "matchPolicy", at, &POLICIES, causes);
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in each(resources, field).into_iter().enumerate() {
            rule_causes(rule, &format!("{at}.{field}[{index}]"), causes);
        }
    }
}

pub(super) fn policy(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    one_of(spec, "failurePolicy", "spec", &FAILURES, causes);
    let mut variables: Vec<&str> = COMMON.to_vec();
    if let Some(kind) = spec.get("paramKind").filter(|k| k.is_object()) {
        variables.push("params");
        for field in ["apiVersion", "kind"] {
            if text(kind, field).is_empty() {
                causes.push(Cause::required(format!("spec.paramKind.{field}"), ""));
            }
        }
    }
    match spec.get("matchConstraints").filter(|m| m.is_object()) {
        None => causes.push(Cause::required("spec.matchConstraints", "")),
        Some(constraints) => {
            match_resources(constraints, "spec.matchConstraints", causes);
            if list(constraints, "resourceRules").is_empty() {
                causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    conditions(spec, "spec", &variables, causes);
    variables.push("namespaceObject");
    let named = each(spec, "variables");
    if !named.is_empty() {
        variables.push("variables");
    }
    for (index, variable) in named.into_iter().enumerate() {
        let at = format!("spec.variables[{index}]");
        let name = text(variable, "name");
        if name.trim().is_empty() {
            causes.push(Cause::required(format!("{at}.name"), "name is not specified"));
        } else if !is_identifier(name) {
            causes.push(Cause::invalid(format!("{at}.name"), &name.into(), "must be a valid CEL identifier"));
        }
        match text(variable, "expression") {
            source if source.trim().is_empty() => {
                causes.push(Cause::required(format!("{at}.expression"), "expression is not specified"));
            }
            source => expression_cause(source, format!("{at}.expression"), &variables, causes),
        }
    }
    let (validations, annotations) = (each(spec, "validations"), each(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        const WORDS: &str = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", WORDS));
        causes.push(Cause::required("spec.auditAnnotations", WORDS));
    }
    for (index, validation) in validations.into_iter().enumerate() {
        validation_causes(validation, &format!("spec.validations[{index}]"), &variables, causes);
    }
}

fn validation_causes(validation: &Value, at: &str, variables: &[&str], causes: &mut Vec<Cause>) {
    match text(validation, "expression") {
        source if source.trim().is_empty() => {
            causes.push(Cause::required(format!("{at}.expression"), "expression is not specified"));
        }
        source => expression_cause(source, format!("{at}.expression"), variables, causes),
    }
    match text(validation, "messageExpression") {
        "" => {}
        blank if blank.trim().is_empty() => causes.push(Cause::invalid(
            format!("{at}.messageExpression"),
            &blank.into(),
            "must be non-empty if specified",
        )),
        source => expression_cause(source, format!("{at}.messageExpression"), variables, causes),
    }
    let message = text(validation, "message");
    if !message.is_empty() && message.trim().is_empty() {
        causes.push(Cause::invalid(format!("{at}.message"), &message.into(), "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        causes.push(Cause::invalid(format!("{at}.message"), &message.into(), "must not contain line breaks"));
    }
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    one_of(validation, "reason", at, &REASONS, causes);
}

fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && letters.all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

pub(super) fn binding(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    match text(spec, "policyName") {
        "" => causes.push(Cause::required("spec.policyName", "")),
        name => {
            if let Some(why) = names::subdomain_complaint(name) {
                causes.push(Cause::invalid("spec.policyName", &name.into(), &why));
            }
        }
    }
    if let Some(reference) = spec.get("paramRef").filter(|r| r.is_object()) {
        let selector = reference.get("selector").is_some_and(Value::is_object);
        match (text(reference, "name").is_empty(), selector) {
            (false, true) => {
                const WORDS: &str = "name and selector are mutually exclusive";
                causes.push(Cause::forbidden("spec.paramRef.name", WORDS));
                causes.push(Cause::forbidden("spec.paramRef.selector", WORDS));
            }
            (true, false) => {
                causes.push(Cause::required("spec.paramRef", "one of name or selector must be specified"));
            }
            _ => {}
        }
        match text(reference, "parameterNotFoundAction") {
            "" => causes.push(Cause::required("spec.paramRef.parameterNotFoundAction", "")),
            _ => one_of(reference, "parameterNotFoundAction", "spec.paramRef", &["Deny", "Allow"], causes),
        }
    }
    if let Some(resources) = spec.get("matchResources").filter(|m| m.is_object()) {
        match_resources(resources, "spec.matchResources", causes);
    }
    let actions = list(spec, "validationActions");
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        const KNOWN: [&str; 3] = ["Audit", "Deny", "Warn"];
        let at = format!("spec.validationActions[{index}]");
        if !action.as_str().is_some_and(|a| KNOWN.contains(&a)) {
            causes.push(Cause::unsupported(at.clone(), action, &KNOWN));
        }
        if !seen.insert(action.as_str()) {
            causes.push(Cause::duplicate(at, action));
        }
    }
    if seen.contains(&Some("Deny")) && seen.contains(&Some("Warn")) {
        causes.push(Cause::invalid(
            "spec.validationActions",
            &spec.get("validationActions").cloned().unwrap_or_default(),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if actions.is_empty() {
        causes.push(Cause::required("spec.validationActions", "at least one validation action is required"));
    }
}
