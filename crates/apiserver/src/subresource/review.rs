//! Token and access reviews.

use serde_json::{Value, json};

use crate::authentication::User;
use crate::authorization::{Access, decide, rules_for};
use crate::meta::text;
use crate::request::ApiRequest;
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};

pub(super) fn serve(state: &State, req: &ApiRequest, mut review: Value) -> ApiResult<ApiResponse> {
    let kind = &req.kind;
    review["kind"] = (*kind.kind).into();
    review["apiVersion"] = kind.api_version().into();
    if !review.get("metadata").is_some_and(Value::is_object) {
        review["metadata"] = json!({});
    }
    crate::managed_fields::record(kind, None, &mut review, &req.field_manager(), "");
    if &*kind.resource == "selfsubjectreviews" {
        review["metadata"]["creationTimestamp"] = crate::meta::now().into();
    }
    if &*kind.resource == "localsubjectaccessreviews" {
        check_namespace(&req.target.namespace, &review)?;
    }
    review["status"] = match &*kind.resource {
        "tokenreviews" => token_review(state, &review)?,
        "selfsubjectreviews" => json!({"userInfo": req.user.info()}),
        "selfsubjectaccessreviews" => access_review(state, &req.user, &review)?,
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let user = subject(&review)?;
            access_review(state, &user, &review)?
        }
        "selfsubjectrulesreviews" => rules_review(state, req, &review)?,
        _ => return Err(StatusError::method_not_allowed()),
    };
    Ok(response::value(Some(req.accepted), 201, &review))
}

fn token_review(state: &State, review: &Value) -> ApiResult<Value> {
    let token = text(review, "/spec/token");
    if token.is_empty() {
        return Err(StatusError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<String> = review
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(crate::tokens::ISSUER.to_owned());
    }
    Ok(match crate::authentication::token_user(state, token, &audiences) {
        Some(user) => {
            // The requested audiences that the token is valid for; a static token is valid for all.
            if let Some(meant) = crate::tokens::audiences(state, token) {
                audiences.retain(|a| meant.contains(a));
            }
            json!({"authenticated": true, "user": user.info(), "audiences": audiences})
        }
        None => {
            let quoted = |list: &[String]| list.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(" ");
            let error = match crate::tokens::audiences(state, token) {
                Some(meant) if !meant.iter().any(|a| audiences.contains(a)) => format!(
                    "[invalid bearer token, token audiences [{}] is invalid for the target audiences [{}]]",
                    quoted(&meant),
                    quoted(&audiences)
                ),
                _ => "invalid bearer token".to_owned(),
            };
            json!({"user": {}, "error": error})
        }
    })
}

/// A local review is limited to its namespace.
fn check_namespace(namespace: &str, review: &Value) -> ApiResult<()> {
    let req = text(review, "/spec/resourceAttributes/namespace");
    if review.pointer("/spec/resourceAttributes").is_some() && req != namespace {
        let cause = Cause::invalid("spec.resourceAttributes.namespace", &req.into(), "must match metadata.namespace");
        return Err(StatusError::invalid("authorization.k8s.io", "", "", &[cause]));
    }
    Ok(())
}

fn subject(review: &Value) -> ApiResult<User> {
    let strings = |pointer: &str| -> Vec<String> {
        review
            .pointer(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let user = User {
        name: text(review, "/spec/user").to_owned(),
        uid: text(review, "/spec/uid").to_owned(),
        groups: strings("/spec/groups"),
        ..User::default()
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let cause = Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified");
        return Err(StatusError::invalid("authorization.k8s.io", "", "", &[cause]));
    }
    Ok(user)
}

fn access_review(state: &State, user: &User, review: &Value) -> ApiResult<Value> {
    let resource = review.pointer("/spec/resourceAttributes").filter(|v| v.is_object());
    let path = review.pointer("/spec/nonResourceAttributes").filter(|v| v.is_object());
    let access = match (resource, path) {
        (Some(resource), None) => Access {
            verb: text(resource, "/verb").to_owned(),
            group: text(resource, "/group").to_owned(),
            resource: text(resource, "/resource").to_owned(),
            subresource: text(resource, "/subresource").to_owned(),
            name: text(resource, "/name").to_owned(),
            namespace: text(resource, "/namespace").to_owned(),
            path: None,
        },
        (None, Some(path)) => Access {
            verb: text(path, "/verb").to_owned(),
            path: Some(text(path, "/path").to_owned()),
            ..Access::default()
        },
        (Some(_), Some(_)) => {
            let cause = Cause::invalid(
                "spec.nonResourceAttributes",
                &json!({
                    "Path": path.map(|p| text(p, "/path")).unwrap_or_default(),
                    "Verb": path.map(|p| text(p, "/verb")).unwrap_or_default(),
                }),
                "cannot be specified in combination with resourceAttributes",
            );
            return Err(StatusError::invalid("authorization.k8s.io", "", "", &[cause]));
        }
        (None, None) => {
            let cause = Cause::invalid(
                "spec.resourceAttributes",
                &Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            );
            return Err(StatusError::invalid("authorization.k8s.io", "", "", &[cause]));
        }
    };
    Ok(match decide(state, user, &access) {
        Some(why) if why.is_empty() => json!({"allowed": true}),
        Some(why) => json!({"allowed": true, "reason": why}),
        None => json!({"allowed": false}),
    })
}

fn rules_review(state: &State, req: &ApiRequest, review: &Value) -> ApiResult<Value> {
    let namespace = text(review, "/spec/namespace");
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let mut resource_rules = Vec::new();
    let mut path_rules = Vec::new();
    if req.user.is_master() || !state.enforce {
        resource_rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        path_rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    for rule in rules_for(state, &req.user, namespace) {
        if rule.get("resources").and_then(Value::as_array).is_some_and(|r| !r.is_empty()) {
            resource_rules.push(rule);
        } else {
            path_rules.push(rule);
        }
    }
    Ok(json!({"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false}))
}
