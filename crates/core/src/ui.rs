//! The driver's exposure while it runs: Services for its web UI and other ports, an Ingress or an HTTPRoute for each, and the
//! PodDisruptionBudget that protects it from voluntary disruptions.

use std::collections::BTreeMap;

use firesteel_api::http_route::{self, HTTPRoute, ParentRef};
use firesteel_api::names;
use firesteel_api::spark_application::{IngressTls, SparkUiConfiguration};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS as KubeTls, ServiceBackendPort,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::conf::Subject;
use crate::identity::bounded_name;

const DEFAULT_PORT: i32 = 4040;
const MAX_NAME: usize = 63;
const REWRITE: &str = "nginx.ingress.kubernetes.io/rewrite-target";

/// The operator's settings for exposing drivers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UiSettings {
    /// Whether each driver gets a Service for its web UI.
    pub service: bool,
    /// A template for `{{$appName}}`, `{{$appNamespace}}` and `{{$appId}}`; empty for no address.
    pub url_format: String,
    pub class_name: Option<String>,
    pub tls: Vec<IngressTls>,
    pub annotations: BTreeMap<String, String>,
    /// The Gateways that serve the addresses. If there are any, HTTPRoutes take the place of Ingresses.
    pub gateways: Vec<ParentRef>,
    /// Create no PodDisruptionBudgets, whatever applications request.
    pub no_budgets: bool,
}

/// The exposure of one driver; owners are not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposure {
    pub services: Vec<Service>,
    pub ingresses: Vec<Ingress>,
    pub routes: Vec<HTTPRoute>,
    pub budget: Option<PodDisruptionBudget>,
    /// Name, port and Ingress or HTTPRoute of the web UI, for the status.
    pub web_service: Option<String>,
    pub web_port: Option<i32>,
    pub web_ingress: Option<String>,
    pub web_url: Option<String>,
}

/// A host and a path on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    url: String,
    host: String,
    path: String,
}

/// The path at which an Ingress or HTTPRoute serves the driver's web UI, unless at its root.
pub fn proxy_base(app: &Subject<'_>, app_id: &str, settings: &UiSettings) -> Option<String> {
    if settings.url_format.is_empty() {
        return None;
    }
    Some(address(&settings.url_format, app, app_id).path).filter(|p| !p.is_empty())
}

/// The whole exposure of one run's driver.
pub fn exposure(app: &Subject<'_>, app_id: &str, submission_id: &str, settings: &UiSettings) -> Exposure {
    let mut out = Exposure::default();
    let none = SparkUiConfiguration::default();
    let ui = app.spec.spark_ui_options.as_ref().unwrap_or(&none);
    let maker = Maker { app, submission_id, settings };
    if settings.service {
        let target =
            app.spec.spark_conf.get("spark.ui.port").and_then(|p| p.trim().parse().ok()).unwrap_or(DEFAULT_PORT);
        let port = ui.service_port.unwrap_or(target);
        let name = bounded_name(&format!("{}-ui-svc", app.name), MAX_NAME);
        let port_name = ui.service_port_name.as_deref().unwrap_or("spark-driver-ui-port");
        out.services.push(maker.service(
            &name,
            (port_name, port, target),
            ui.service_type.as_deref(),
            &ui.service_labels,
            &ui.service_annotations,
        ));
        if !settings.url_format.is_empty() {
            let address = address(&settings.url_format, app, app_id);
            let names = (format!("{}-ui-ingress", app.name), format!("{}-ui-route", app.name));
            let options = (&ui.ingress_annotations, ui.ingress_tls.as_slice());
            out.web_ingress = Some(maker.address(&mut out, names, &address, (&name, port), options));
            out.web_url = Some(address.url);
        }
        out.web_service = Some(name);
        out.web_port = Some(port);
    }
    for option in &app.spec.driver_ingress_options {
        let port = option.service_port;
        let name = bounded_name(&format!("{}-driver-{port}", app.name), MAX_NAME);
        out.services.push(maker.service(
            &name,
            (&option.service_port_name, port, port),
            option.service_type.as_deref(),
            &option.service_labels,
            &option.service_annotations,
        ));
        let address = address(&option.ingress_url_format, app, app_id);
        let names = (format!("{}-ing-{port}", app.name), format!("{}-route-{port}", app.name));
        let options = (&option.ingress_annotations, option.ingress_tls.as_slice());
        maker.address(&mut out, names, &address, (&name, port), options);
    }
    if app.spec.driver_pod_disruption_budget == Some(true) && !settings.no_budgets {
        out.budget = Some(maker.budget());
    }
    out
}

struct Maker<'a> {
    app: &'a Subject<'a>,
    submission_id: &'a str,
    settings: &'a UiSettings,
}

impl Maker<'_> {
    /// Adds the Ingress or the HTTPRoute of an address; returns its name. What an application does not set is as the operator
    /// was told.
    fn address(
        &self,
        out: &mut Exposure,
        (ingress, route): (String, String),
        address: &Address,
        service: (&str, i32),
        (annotations, tls): (&BTreeMap<String, String>, &[IngressTls]),
    ) -> String {
        let annotations = if annotations.is_empty() { &self.settings.annotations } else { annotations };
        if self.settings.gateways.is_empty() {
            let name = bounded_name(&ingress, MAX_NAME);
            let tls = if tls.is_empty() { &self.settings.tls } else { tls };
            let class = self.settings.class_name.as_deref();
            out.ingresses.push(self.ingress(&name, address, service, class, annotations, tls));
            return name;
        }
        let name = bounded_name(&route, MAX_NAME);
        let (host, path) = (&address.host, &address.path);
        let spec = http_route::to_service(&self.settings.gateways, host, path, service.0, service.1);
        let metadata = self.metadata(&name, &BTreeMap::new(), annotations.clone());
        out.routes.push(HTTPRoute { metadata, spec });
        name
    }

    fn metadata(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) -> ObjectMeta {
        // The operator's labels come last: user labels must not hide who owns the object.
        let mut labels = labels.clone();
        labels.extend([
            (names::LABEL_APP_NAME.to_owned(), self.app.name.to_owned()),
            (names::LABEL_CREATED_BY.to_owned(), "true".to_owned()),
            (names::LABEL_EXPOSES.to_owned(), "driver".to_owned()),
            (names::LABEL_SUBMISSION_ID.to_owned(), self.submission_id.to_owned()),
        ]);
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.app.namespace.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            ..ObjectMeta::default()
        }
    }

    /// The labels of the driver pod.
    fn driver(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (names::LABEL_APP_NAME.to_owned(), self.app.name.to_owned()),
            (names::LABEL_ROLE.to_owned(), "driver".to_owned()),
        ])
    }

    fn budget(&self) -> PodDisruptionBudget {
        PodDisruptionBudget {
            metadata: self.metadata(&self.app.driver_pod_name(), &BTreeMap::new(), BTreeMap::new()),
            spec: Some(PodDisruptionBudgetSpec {
                min_available: Some(IntOrString::Int(1)),
                selector: Some(LabelSelector { match_labels: Some(self.driver()), match_expressions: None }),
                ..PodDisruptionBudgetSpec::default()
            }),
            status: None,
        }
    }

    fn service(
        &self,
        name: &str,
        (port_name, port, target): (&str, i32, i32),
        kind: Option<&str>,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Service {
        Service {
            metadata: self.metadata(name, labels, annotations.clone()),
            spec: Some(ServiceSpec {
                type_: Some(kind.unwrap_or("ClusterIP").to_owned()),
                selector: Some(self.driver()),
                ports: Some(vec![ServicePort {
                    name: Some(port_name.to_owned()).filter(|n| !n.is_empty()),
                    port,
                    target_port: Some(IntOrString::Int(target)),
                    protocol: Some("TCP".to_owned()),
                    ..ServicePort::default()
                }]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    fn ingress(
        &self,
        name: &str,
        address: &Address,
        (service, port): (&str, i32),
        class: Option<&str>,
        annotations: &BTreeMap<String, String>,
        tls: &[IngressTls],
    ) -> Ingress {
        let mut annotations = annotations.clone();
        let path = if address.path.is_empty() {
            "/".to_owned()
        } else {
            annotations.entry(REWRITE.to_owned()).or_insert_with(|| "/$2".to_owned());
            format!("{}(/|$)(.*)", address.path)
        };
        let backend = IngressBackend {
            service: Some(IngressServiceBackend {
                name: service.to_owned(),
                port: Some(ServiceBackendPort { number: Some(port), name: None }),
            }),
            resource: None,
        };
        let http = HTTPIngressRuleValue {
            paths: vec![HTTPIngressPath { path: Some(path), path_type: "ImplementationSpecific".to_owned(), backend }],
        };
        let rule = IngressRule { host: Some(address.host.clone()).filter(|h| !h.is_empty()), http: Some(http) };
        let tls: Vec<KubeTls> = tls
            .iter()
            .map(|t| KubeTls {
                hosts: Some(t.hosts.clone()).filter(|h| !h.is_empty()),
                secret_name: t.secret_name.clone(),
            })
            .collect();
        Ingress {
            metadata: self.metadata(name, &BTreeMap::new(), annotations),
            spec: Some(IngressSpec {
                ingress_class_name: class.map(str::to_owned),
                rules: Some(vec![rule]),
                tls: Some(tls).filter(|t| !t.is_empty()),
                ..IngressSpec::default()
            }),
            status: None,
        }
    }
}

/// Expands a URL format and splits the result.
fn address(format: &str, app: &Subject<'_>, app_id: &str) -> Address {
    let url = fill(format, &[("$appName", app.name), ("$appNamespace", app.namespace), ("$appId", app_id)]);
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    // The port is that of the Ingress controller or the Gateway; neither Ingress nor HTTPRoute has a place for it.
    let host = host.split(':').next().unwrap_or_default();
    let path = path.trim_matches('/');
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    Address { host: host.to_owned(), path, url }
}

/// Replaces `{{name}}`; spaces inside the braces are allowed.
fn fill(format: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once("{{") {
        out += before;
        let Some((inside, tail)) = after.split_once("}}") else {
            out += "{{";
            rest = after;
            continue;
        };
        match values.iter().find(|(name, _)| *name == inside.trim()) {
            Some((_, value)) => out += value,
            None => out += &format!("{{{{{inside}}}}}"),
        }
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use firesteel_api::SparkApplicationSpec;

    fn with_app<T>(spec: serde_json::Value, name: &str, test: impl FnOnce(&Subject<'_>) -> T) -> T {
        let spec: SparkApplicationSpec = serde_json::from_value(spec).unwrap();
        test(&Subject { name, namespace: "team", uid: "u", labels: &BTreeMap::new(), spec: &spec })
    }

    #[test]
    fn url_formats_are_filled_in() {
        with_app(serde_json::json!({}), "pi", |app| {
            let got = address("https://{{$appName}}.x.org/{{ $appNamespace }}/{{$appId}}/", app, "spark-1");
            assert_eq!(got.host, "pi.x.org");
            assert_eq!(got.path, "/team/spark-1");
            assert_eq!(address("{{$appName}}.x.org", app, "").path, "");
            assert_eq!(address("x/{{$other}}", app, "").path, "/{{$other}}");
        });
    }

    #[test]
    fn d16_labels_of_users_do_not_replace_the_operators() {
        let spec =
            serde_json::json!({"sparkUIOptions": {"serviceLabels": {"team": "a", names::LABEL_APP_NAME: "evil"}}});
        with_app(spec, "pi", |app| {
            let settings = UiSettings { service: true, ..UiSettings::default() };
            let labels = exposure(app, "spark-1", "sub", &settings).services[0].metadata.labels.clone().unwrap();
            assert_eq!(labels[names::LABEL_APP_NAME], "pi");
            assert_eq!(labels["team"], "a");
        });
    }

    #[test]
    fn with_budgets_disabled_none_is_made_and_the_field_is_named() {
        with_app(serde_json::json!({"driverPodDisruptionBudget": true}), "pi", |app| {
            for no_budgets in [false, true] {
                let settings = UiSettings { no_budgets, ..UiSettings::default() };
                assert_eq!(exposure(app, "spark-1", "sub", &settings).budget.is_none(), no_budgets);
                let lost = crate::ineffective_fields::ineffective_fields(
                    app.spec,
                    firesteel_spark::version::Line::V4_1,
                    &settings,
                );
                assert_eq!(lost.iter().any(|(field, _)| field == "spec.driverPodDisruptionBudget"), no_budgets);
            }
        });
    }

    #[test]
    fn a_gateway_gets_routes_in_place_of_ingresses() {
        let spec = serde_json::json!({
            "sparkUIOptions": {"ingressAnnotations": {"a": "b"}},
            "driverIngressOptions": [{"servicePort": 8080, "servicePortName": "x", "ingressURLFormat": "more.example"}]});
        with_app(spec, "pi", |app| {
            let gateways =
                vec![ParentRef { name: "web".to_owned(), namespace: Some("infra".to_owned()), ..ParentRef::default() }];
            let url_format = "https://spark.example:8443/{{$appNamespace}}/{{$appName}}".to_owned();
            let settings = UiSettings { service: true, url_format, gateways, ..UiSettings::default() };
            let exposure = exposure(app, "spark-1", "sub", &settings);
            assert!(exposure.ingresses.is_empty());
            assert_eq!(exposure.web_ingress.as_deref(), Some("pi-ui-route"));
            assert_eq!(exposure.web_url.as_deref(), Some("https://spark.example:8443/team/pi"));
            let [page, more] = exposure.routes.as_slice() else { panic!("{:?}", exposure.routes) };
            assert_eq!(page.metadata.annotations.as_ref().unwrap()["a"], "b");
            assert_eq!(page.metadata.labels.as_ref().unwrap()[names::LABEL_EXPOSES], "driver");
            assert_eq!(page.spec.hostnames, ["spark.example"], "a route has no place for a port");
            assert_eq!(page.spec.rules[0].matches[0].path.value, "/team/pi");
            assert_eq!(page.spec.rules[0].backend_refs[0].name, "pi-ui-svc");
            assert_eq!(page.spec.parent_refs[0].namespace.as_deref(), Some("infra"));
            assert_eq!(more.metadata.name.as_deref(), Some("pi-route-8080"));
            assert!(more.spec.rules[0].filters.is_empty(), "nothing to rewrite at the root");
            assert_eq!(proxy_base(app, "spark-1", &settings).as_deref(), Some("/team/pi"));
        });
    }

    #[test]
    fn tls_of_a_route_is_the_gateways() {
        let tls = serde_json::json!([{"secretName": "s"}]);
        let spec = serde_json::json!({"sparkUIOptions": {"ingressTLS": tls}, "driverIngressOptions": [
            {"servicePort": 8080, "servicePortName": "x", "ingressURLFormat": "h", "ingressTLS": tls}]});
        with_app(spec, "pi", |app| {
            for routes in [false, true] {
                let gateways = if routes { vec![ParentRef::default()] } else { Vec::new() };
                let settings = UiSettings { service: true, url_format: "h".into(), gateways, ..UiSettings::default() };
                let line = firesteel_spark::version::Line::V4_1;
                let lost = crate::ineffective_fields::ineffective_fields(app.spec, line, &settings);
                let paths: Vec<&str> = lost.iter().map(|(path, _)| path.as_str()).collect();
                let expected: &[&str] = if routes {
                    &["spec.sparkUIOptions.ingressTLS", "spec.driverIngressOptions[0].ingressTLS"]
                } else {
                    &[]
                };
                assert_eq!(paths, expected);
            }
        });
    }

    #[test]
    fn d23_names_of_services_and_ingresses_fit() {
        let spec = serde_json::json!({"driverIngressOptions": [
            {"servicePort": 8080, "servicePortName": "x", "ingressURLFormat": "h/{{$appName}}"}]});
        with_app(spec, &"a".repeat(63), |app| {
            let settings = UiSettings { service: true, url_format: "h".into(), ..UiSettings::default() };
            let exposure = exposure(app, "spark-1", "sub", &settings);
            assert_eq!((exposure.services.len(), exposure.ingresses.len()), (2, 2));
            let names =
                exposure.services.iter().map(|s| &s.metadata).chain(exposure.ingresses.iter().map(|i| &i.metadata));
            for meta in names {
                assert!(meta.name.as_ref().unwrap().len() <= 63);
            }
            let settings = UiSettings { gateways: vec![ParentRef::default()], ..settings };
            let exposure = super::exposure(app, "spark-1", "sub", &settings);
            assert_eq!(exposure.routes.len(), 2);
            assert!(exposure.routes.iter().all(|route| route.metadata.name.as_ref().unwrap().len() <= 63));
        });
    }
}
