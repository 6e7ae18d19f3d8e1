//! `gateway.networking.k8s.io/v1` HTTPRoute, as far as the operator writes it: an address that a Gateway serves, and the
//! Service behind it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group and version of HTTPRoute.
pub const GROUP_VERSION: &str = "gateway.networking.k8s.io/v1";
/// Its plural, as in discovery.
pub const PLURAL: &str = "httproutes";

/// Which Gateways serve a route, and what it serves.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// A Gateway, or one of its listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParentRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub matches: Vec<Match>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    pub backend_refs: Vec<BackendRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    pub path: PathMatch,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathMatch {
    #[serde(rename = "type")]
    pub type_: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    #[serde(rename = "type")]
    pub type_: String,
    pub url_rewrite: UrlRewrite,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UrlRewrite {
    pub path: PathRewrite,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathRewrite {
    #[serde(rename = "type")]
    pub type_: String,
    pub replace_prefix_match: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendRef {
    pub name: String,
    pub port: i32,
}

/// A route to one port of a Service. A path is removed on the way, as the web UI expects it.
pub fn to_service(parents: &[ParentRef], host: &str, path: &str, service: &str, port: i32) -> HttpRouteSpec {
    let rewrite = PathRewrite { type_: "ReplacePrefixMatch".to_owned(), replace_prefix_match: "/".to_owned() };
    let filter = Filter { type_: "URLRewrite".to_owned(), url_rewrite: UrlRewrite { path: rewrite } };
    let value = if path.is_empty() { "/" } else { path };
    HttpRouteSpec {
        parent_refs: parents.to_vec(),
        hostnames: Some(host.to_owned()).filter(|host| !host.is_empty()).into_iter().collect(),
        rules: vec![Rule {
            matches: vec![Match { path: PathMatch { type_: "PathPrefix".to_owned(), value: value.to_owned() } }],
            filters: if path.is_empty() { Vec::new() } else { vec![filter] },
            backend_refs: vec![BackendRef { name: service.to_owned(), port }],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_route_is_what_the_gateway_api_defines() {
        let parents: Vec<ParentRef> =
            serde_json::from_value(json!([{"name": "web", "namespace": "infra", "sectionName": "https"}])).unwrap();
        let spec = to_service(&parents, "spark.example", "/team/pi", "pi-ui-svc", 4040);
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "parentRefs": [{"name": "web", "namespace": "infra", "sectionName": "https"}],
                "hostnames": ["spark.example"],
                "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": "/team/pi"}}],
                    "filters": [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}],
                    "backendRefs": [{"name": "pi-ui-svc", "port": 4040}],
                }],
            })
        );
        let root = serde_json::to_value(to_service(&parents, "", "", "s", 80)).unwrap();
        assert_eq!(root["rules"][0]["matches"][0]["path"]["value"], "/");
        assert!(root.get("hostnames").is_none() && root["rules"][0].get("filters").is_none(), "{root}");
    }
}
