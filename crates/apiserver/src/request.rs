//! Parses requests: path, query and accepted media types.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri, header};
use percent_encoding::percent_decode_str;

use crate::kinds::Kinds;
use crate::status::{ApiResult, StatusError};

/// A path under `/api/v1` or `/apis/<group>/<version>`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RequestInfo {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for all namespaces and for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// What follows the subresource (proxies only).
    pub(crate) rest: String,
    /// The deprecated `/watch/` form.
    pub(crate) watch_path: bool,
}

impl RequestInfo {
    /// `None` if it is not a resource path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<String> = path
            .strip_prefix('/')?
            .split('/')
            .map(|p| percent_decode_str(p).decode_utf8_lossy().into_owned())
            .collect();
        if parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        let mut target = Self::default();
        let rest = match parts.first().map(String::as_str) {
            Some("api") if parts.len() > 2 => {
                target.version.clone_from(&parts[1]);
                &parts[2..]
            }
            Some("apis") if parts.len() > 3 => {
                target.group.clone_from(&parts[1]);
                target.version.clone_from(&parts[2]);
                &parts[3..]
            }
            _ => return None,
        };
        let rest = match rest {
            [watch, rest @ ..] if watch == "watch" && !rest.is_empty() => {
                target.watch_path = true;
                rest
            }
            other => other,
        };
        let at = |index: usize| rest.get(index).cloned().unwrap_or_default();
        let after;
        if rest[0] == "namespaces" && rest.len() > 2 && !is_namespace_subresource(&target, &rest[2], rest.len()) {
            target.namespace = at(1);
            target.resource = at(2);
            target.name = at(3);
            target.subresource = at(4);
            after = 5;
        } else {
            target.resource = at(0);
            target.name = at(1);
            target.subresource = at(2);
            after = 3;
        }
        target.rest = rest.get(after..).map(|r| r.join("/")).unwrap_or_default();
        Some(target)
    }
}

fn is_namespace_subresource(target: &RequestInfo, part: &str, length: usize) -> bool {
    target.group.is_empty() && length == 3 && (part == "status" || part == "finalize")
}

/// Query parameters in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(uri: &Uri) -> Self {
        let raw = uri.query().unwrap_or_default();
        Self(url::form_urlencoded::parse(raw.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn flag(&self, name: &str) -> ApiResult<bool> {
        match self.get(name) {
            "" => Ok(self.0.iter().any(|(key, _)| key == name)),
            "1" | "true" | "True" | "TRUE" | "t" | "T" => Ok(true),
            // Go parses query booleans leniently: anything not clearly false is true.
            "0" | "false" | "False" | "FALSE" | "f" | "F" => Ok(false),
            _ => Ok(true),
        }
    }

    pub(crate) fn number(&self, name: &str) -> ApiResult<Option<i64>> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

/// The `fieldValidation` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Table,
    Metadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MediaTypeOptions {
    pub(crate) form: Form,
    pub(crate) yaml: bool,
}

const ACCEPTABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl MediaTypeOptions {
    pub(crate) fn parse(headers: &HeaderMap) -> ApiResult<Self> {
        let plain = Self { form: Form::Plain, yaml: false };
        let mut seen = false;
        for value in headers.get_all(header::ACCEPT) {
            let Ok(text) = value.to_str() else { continue };
            for clause in text.split(',') {
                let mut parts = clause.split(';').map(str::trim);
                let media = parts.next().unwrap_or_default();
                if media.is_empty() {
                    continue;
                }
                seen = true;
                let yaml = media == "application/yaml";
                if !yaml && !matches!(media, "application/json" | "*/*" | "application/*") {
                    continue;
                }
                let mut form = Form::Plain;
                let mut known = true;
                for parameter in parts {
                    match parameter.split_once('=') {
                        Some(("as", "Table")) => form = Form::Table,
                        Some(("as", "PartialObjectMetadata" | "PartialObjectMetadataList")) => form = Form::Metadata,
                        Some(("as", _)) => known = false,
                        Some(("v", version)) if form != Form::Plain && version != "v1" => known = false,
                        _ => {}
                    }
                }
                if known {
                    return Ok(Self { form, yaml });
                }
            }
        }
        if seen { Err(StatusError::not_acceptable(ACCEPTABLE)) } else { Ok(plain) }
    }
}

/// The body's media type, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .map(|v| v.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
        .unwrap_or_default()
}

/// Everything about a request except its body.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) target: RequestInfo,
    pub(crate) query: Query,
    pub(crate) kind: Arc<crate::kinds::Kind>,
    pub(crate) accepted: MediaTypeOptions,
    pub(crate) media_type: String,
    pub(crate) user_agent: String,
    pub(crate) user: crate::authentication::User,
}

impl ApiRequest {
    pub(crate) fn is_watch(&self) -> ApiResult<bool> {
        Ok(self.target.watch_path || self.query.flag("watch")?)
    }

    pub(crate) fn dry_run(&self) -> ApiResult<bool> {
        let mut wanted = false;
        for value in self.query.all("dryRun") {
            if value != "All" {
                return Err(StatusError::invalid(
                    "meta.k8s.io",
                    options_kind(&self.method),
                    "",
                    &[crate::status::Cause::unsupported("dryRun", &serde_json::json!([value]), &["All"])],
                ));
            }
            wanted = true;
        }
        Ok(wanted)
    }

    pub(crate) fn strictness(&self) -> ApiResult<FieldValidation> {
        match self.query.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(StatusError::invalid(
                "meta.k8s.io",
                options_kind(&self.method),
                "",
                &[crate::status::Cause::unsupported(
                    "fieldValidation",
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                )],
            )),
        }
    }

    /// The field manager of this request.
    pub(crate) fn field_manager(&self) -> String {
        match self.query.get("fieldManager") {
            "" => {
                let agent = self.user_agent.split('/').next().unwrap_or_default();
                if agent.is_empty() { "unknown".into() } else { agent.chars().take(128).collect() }
            }
            given => given.to_owned(),
        }
    }

    pub(crate) fn not_found(&self) -> Box<StatusError> {
        StatusError::not_found(&self.kind.group, &self.kind.resource, &self.target.name)
    }
}

fn options_kind(method: &Method) -> &'static str {
    match *method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        _ => "DeleteOptions",
    }
}

/// The kind that a path refers to.
pub(crate) fn kind_of(kinds: &Kinds, target: &RequestInfo) -> ApiResult<Arc<crate::kinds::Kind>> {
    let own = kinds.iter().any(|k| k.custom.is_none() && *k.group == *target.group && *k.version == *target.version);
    let absent = || if own { StatusError::no_such_resource() } else { StatusError::no_such_path() };
    let kind = kinds.find(&target.group, &target.version, &target.resource).ok_or_else(absent)?;
    if !kind.namespaced && !target.namespace.is_empty() {
        return Err(absent());
    }
    if kind.namespaced && target.namespace.is_empty() && !target.name.is_empty() {
        return Err(absent());
    }
    if !target.subresource.is_empty() && !kind.has_subresource(&target.subresource) {
        return Err(StatusError::no_such_path());
    }
    Ok(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> (String, String, String, String, String) {
        let t = RequestInfo::parse(path).expect(path);
        (t.group, t.namespace, t.resource, t.name, t.subresource)
    }

    #[test]
    fn paths_come_apart() {
        let own = |a: &str, b: &str, c: &str, d: &str, e: &str| (a.into(), b.into(), c.into(), d.into(), e.into());
        assert_eq!(parsed("/api/v1/pods"), own("", "", "pods", "", ""));
        assert_eq!(parsed("/api/v1/namespaces/x"), own("", "", "namespaces", "x", ""));
        assert_eq!(parsed("/api/v1/namespaces/x/status"), own("", "", "namespaces", "x", "status"));
        assert_eq!(parsed("/api/v1/namespaces/x/pods/p/log"), own("", "x", "pods", "p", "log"));
        assert_eq!(parsed("/apis/apps/v1/namespaces/x/deployments"), own("apps", "x", "deployments", "", ""));
        assert!(RequestInfo::parse("/api/v1").is_none());
        assert!(RequestInfo::parse("/apis/apps/v1").is_none());
    }
}
