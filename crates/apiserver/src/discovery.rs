//! Non-resource paths: discovery in both forms, version, health, OpenAPI.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, header};
use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, StatusError};

/// The Kubernetes release whose behaviour this server implements.
const VERSION: (&str, &str, &str) = ("1", "35", "v1.35.8");

const STORED_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(crate) fn serve(state: &Arc<State>, parts: &Parts) -> ApiResult<ApiResponse> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(StatusError::method_not_allowed());
    }
    let path = parts.uri.path().trim_end_matches('/');
    let kinds = state.kinds.load_full();
    let pieces: Vec<&str> = path.split('/').skip(1).collect();
    match pieces.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(health(parts)),
        ["version"] => Ok(response::value(None, 200, &version())),
        ["api"] if wants_aggregated(parts) => Ok(aggregated(&kinds, true)),
        ["apis"] if wants_aggregated(parts) => Ok(aggregated(&kinds, false)),
        ["api"] => Ok(response::value(
            None,
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        )),
        ["apis"] => {
            let groups: Vec<Value> = kinds
                .groups()
                .iter()
                .filter(|(g, _)| !g.is_empty())
                .map(|(group, versions)| api_group(group, versions))
                .collect();
            Ok(response::value(None, 200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        ["apis", group] => {
            let groups = kinds.groups();
            let (group, versions) =
                groups.iter().find(|(g, _)| **g == **group).ok_or_else(StatusError::no_such_path)?;
            let mut object = api_group(group, versions);
            object["kind"] = "APIGroup".into();
            object["apiVersion"] = "v1".into();
            Ok(response::value(None, 200, &object))
        }
        ["api", version] => resource_list(&kinds, "", version),
        ["apis", group, version] => resource_list(&kinds, group, version),
        ["openapi", "v3"] => Ok(response::value(None, 200, &state.documents.index(&kinds))),
        ["openapi", "v3", rest @ ..] => {
            let (group, version) = match rest {
                ["api", version] => ("", *version),
                ["apis", group, version] => (*group, *version),
                _ => return Err(StatusError::no_such_path()),
            };
            if !kinds.has_group_version(group, version) {
                return Err(StatusError::no_such_path());
            }
            Ok(response::json_bytes(200, state.documents.document(&kinds, group, version)))
        }
        [".well-known", "openid-configuration"] => Ok(response::value(None, 200, &crate::tokens::configuration())),
        ["openid", "v1", "jwks"] => Ok(response::value(None, 200, &crate::tokens::keys(state))),
        [""] | [] => {
            let mut paths: Vec<String> = vec!["/api".into(), "/api/v1".into(), "/apis".into()];
            for (group, versions) in kinds.groups() {
                if group.is_empty() {
                    continue;
                }
                paths.push(format!("/apis/{group}"));
                paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
            }
            paths.extend(["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
            Ok(response::value(None, 200, &json!({"paths": paths})))
        }
        _ => Err(StatusError::no_such_path()),
    }
}

fn health(parts: &Parts) -> ApiResponse {
    let name = parts.uri.path().trim_matches('/').split('/').next().unwrap_or_default();
    if parts.uri.query().is_some_and(|q| q.contains("verbose")) {
        return response::plain_text(200, format!("[+]ping ok\n[+]log ok\n[+]etcd ok\n{name} check passed\n"));
    }
    response::plain_text(200, "ok")
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major,
        "minCompatibilityMinor": "34", "gitVersion": git, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, platform()),
    })
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn wants_aggregated(parts: &Parts) -> bool {
    let accepts = parts.headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    accepts.flat_map(|v| v.split(',')).any(|clause| {
        clause.contains("as=APIGroupDiscoveryList") && clause.contains("v=v2") && !clause.contains("v=v2beta1")
    })
}

fn api_group(group: &str, versions: &[Arc<str>]) -> Value {
    let list: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": &**v})).collect();
    json!({"name": group, "versions": list, "preferredVersion": list.first()})
}

/// The verbs of a subresource.
fn subresource_verbs(kind: &Kind) -> Vec<(String, String, String, Vec<&'static str>)> {
    let mut out = Vec::new();
    let own = kind.api_version();
    for sub in kind.others {
        out.push((sub.name.to_owned(), sub.group_version.to_owned(), sub.kind.to_owned(), sub.verbs.to_vec()));
    }
    if kind.scale {
        out.push(("scale".into(), "autoscaling/v1".into(), "Scale".into(), vec!["get", "patch", "update"]));
    }
    if kind.status {
        out.push(("status".into(), own, kind.kind.to_string(), vec!["get", "patch", "update"]));
    }
    out.sort();
    if kind.custom.is_some() {
        // Custom resources list status before scale.
        out.reverse();
    }
    out
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.virtual_ {
        return vec!["create"];
    }
    if kind.custom.is_some() {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    let no_collection = kind.is("", "namespaces");
    STORED_VERBS.into_iter().filter(|v| !(no_collection && *v == "deletecollection")).collect()
}

fn resource_list(kinds: &Kinds, group: &str, version: &str) -> ApiResult<ApiResponse> {
    if !kinds.has_group_version(group, version) {
        return Err(StatusError::no_such_path());
    }
    let mut resources = Vec::new();
    for kind in kinds.iter().filter(|k| *k.group == *group && *k.version == *version) {
        let mut entry = json!({
            "name": &*kind.resource, "singularName": &*kind.singular, "namespaced": kind.namespaced, "kind": &*kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.virtual_ {
            entry["storageVersionHash"] = storage_hash(kind).into();
        }
        if !kind.short.is_empty() {
            entry["shortNames"] = kind.short.iter().map(|s| &**s).collect::<Vec<_>>().into();
        }
        if !kind.categories.is_empty() {
            entry["categories"] = kind.categories.iter().map(|s| &**s).collect::<Vec<_>>().into();
        }
        resources.push(entry);
        for (name, group_version, sub_kind, verbs) in subresource_verbs(kind) {
            let mut entry = json!({
                "name": format!("{}/{name}", kind.resource), "singularName": "", "namespaced": kind.namespaced, "kind": sub_kind,
                "verbs": verbs,
            });
            if group_version != kind.api_version() {
                let (group, version) = group_version.split_once('/').unwrap_or(("", &group_version));
                if !group.is_empty() {
                    entry["group"] = group.into();
                }
                entry["version"] = version.into();
            }
            resources.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Ok(response::value(None, 200, &list))
}

/// Eight bytes that identify the storage version.
fn storage_hash(kind: &Kind) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let version = kind.custom.as_ref().map_or(&*kind.version, |c| c.storage_version.as_str());
    let digest = sha2::Sha256::digest(format!("{}/{version}/{}", kind.group, kind.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

fn aggregated(kinds: &Kinds, core: bool) -> ApiResponse {
    let mut items = Vec::new();
    for (group, versions) in kinds.groups().into_iter().filter(|(g, _)| g.is_empty() == core) {
        let mut listed = Vec::new();
        for version in versions {
            let mut resources = Vec::new();
            for kind in kinds.iter().filter(|k| k.group == group && k.version == version) {
                let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
                let mut entry = json!({
                    "resource": &*kind.resource,
                    "responseKind": {"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind},
                    "scope": scope,
                    "singularResource": &*kind.singular,
                    "verbs": verbs(kind),
                });
                if !kind.short.is_empty() {
                    entry["shortNames"] = kind.short.iter().map(|s| &**s).collect::<Vec<_>>().into();
                }
                if !kind.categories.is_empty() {
                    entry["categories"] = kind.categories.iter().map(|s| &**s).collect::<Vec<_>>().into();
                }
                let subs: Vec<Value> = subresource_verbs(kind)
                    .into_iter()
                    .map(|(name, group_version, sub_kind, verbs)| {
                        let (group, version) = group_version.split_once('/').unwrap_or(("", &group_version));
                        json!({
                            "subresource": name,
                            "responseKind": {"group": group, "version": version, "kind": sub_kind},
                            "verbs": verbs,
                        })
                    })
                    .collect();
                if !subs.is_empty() {
                    entry["subresources"] = subs.into();
                }
                resources.push(entry);
            }
            listed.push(json!({"version": &*version, "resources": resources, "freshness": "Current"}));
        }
        let metadata = if group.is_empty() { json!({}) } else { json!({"name": &*group}) };
        items.push(json!({"metadata": metadata, "versions": listed}));
    }
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    response::typed(200, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", list.to_string())
}
