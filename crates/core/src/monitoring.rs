//! `spec.monitoring`: application metrics through the JMX exporter.

use std::collections::BTreeMap;

use firesteel_api::spark_application::SparkApplicationSpec;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::identity::bounded_name;

pub(crate) const MOUNT_PATH: &str = "/etc/metrics/conf";
const DEFAULT_PORT: i32 = 8090;
const DEFAULT_PORT_NAME: &str = "jmx-exporter";

const DEFAULT_PROPERTIES: &str = "\
*.sink.jmx.class=org.apache.spark.metrics.sink.JmxSink
driver.source.jvm.class=org.apache.spark.metrics.source.JvmSource
executor.source.jvm.class=org.apache.spark.metrics.source.JvmSource
";

/// Bean names are `<namespace>.<application>.<driver or executor id>.<source>.<metric>`; the patterns take them apart.
const DEFAULT_RULES: &str = r"lowercaseOutputName: true
attrNameSnakeCase: true
rules:
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.driver\.spark\.streaming\.(\S+?)\.(\S+), type=gauges><>Value'
    name: spark_structured_streaming_driver_$4
    type: GAUGE
    labels: {app_namespace: $1, app_id: $2, query_name: $3}
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.driver\.(\S+?)\.StreamingMetrics\.streaming\.(\S+), type=gauges><>Value'
    name: spark_streaming_driver_$4
    type: GAUGE
    labels: {app_namespace: $1, app_id: $2}
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.driver\.(\S+), type=gauges><>Value'
    name: spark_driver_$3
    type: GAUGE
    labels: {app_namespace: $1, app_id: $2}
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.driver\.(\S+), type=(?:counters|timers|histograms|meters)><>(Count|Value)'
    name: spark_driver_$3_$4
    type: COUNTER
    labels: {app_namespace: $1, app_id: $2}
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.(\d+)\.(\S+), type=gauges><>Value'
    name: spark_executor_$4
    type: GAUGE
    labels: {app_namespace: $1, app_id: $2, executor_id: $3}
  - pattern: 'metrics<name=(\S+?)\.(\S+?)\.(\d+)\.(\S+), type=(?:counters|timers|histograms|meters)><>(Count|Value)'
    name: spark_executor_$4_$5
    type: COUNTER
    labels: {app_namespace: $1, app_id: $2, executor_id: $3}
";

/// What monitoring adds to a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitoring {
    pub driver: bool,
    pub executor: bool,
    pub conf: BTreeMap<String, String>,
    pub driver_java_option: Option<String>,
    pub executor_java_option: Option<String>,
    /// Name and number of the exporter's port.
    pub port: Option<(String, i32)>,
    /// The exporter's files, unless the image has all of them. The owner is not set.
    pub config_map: Option<ConfigMap>,
}

/// Reads `spec.monitoring`.
pub(crate) fn monitoring(name: &str, namespace: &str, spec: &SparkApplicationSpec) -> Option<Monitoring> {
    let wanted = spec.monitoring.as_ref()?;
    let (driver, executor) = (wanted.expose_driver_metrics, wanted.expose_executor_metrics);
    let mut data = BTreeMap::new();
    let mut conf = BTreeMap::new();

    let properties = match &wanted.metrics_properties_file {
        Some(file) => file.clone(),
        None => {
            let text = wanted.metrics_properties.clone().unwrap_or_else(|| DEFAULT_PROPERTIES.to_owned());
            data.insert("metrics.properties".to_owned(), text);
            format!("{MOUNT_PATH}/metrics.properties")
        }
    };
    conf.insert("spark.metrics.namespace".to_owned(), format!("{namespace}.{name}"));
    conf.insert("spark.metrics.conf".to_owned(), properties);

    let mut port = None;
    let mut agent = None;
    if let Some(prometheus) = &wanted.prometheus {
        let number = prometheus.port.unwrap_or(DEFAULT_PORT);
        let config = match &prometheus.config_file {
            Some(file) => file.clone(),
            None => {
                let text = prometheus.configuration.clone().unwrap_or_else(|| DEFAULT_RULES.to_owned());
                data.insert("prometheus.yaml".to_owned(), text);
                format!("{MOUNT_PATH}/prometheus.yaml")
            }
        };
        agent = Some(format!("-javaagent:{}={number}:{config}", prometheus.jmx_exporter_jar));
        port = Some((prometheus.port_name.clone().unwrap_or_else(|| DEFAULT_PORT_NAME.to_owned()), number));
        for (role, _) in [("driver", driver), ("executor", executor)].iter().filter(|(_, exposed)| *exposed) {
            for (key, value) in
                [("scrape", "true".to_owned()), ("port", number.to_string()), ("path", "/metrics".to_owned())]
            {
                conf.insert(format!("spark.kubernetes.{role}.annotation.prometheus.io/{key}"), value);
            }
        }
    }

    let config_map = (!data.is_empty()).then(|| ConfigMap {
        metadata: ObjectMeta {
            name: Some(bounded_name(&format!("{name}-prom-conf"), 253)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    });
    Some(Monitoring {
        driver,
        executor,
        conf,
        driver_java_option: agent.clone().filter(|_| driver),
        executor_java_option: agent.filter(|_| executor),
        port,
        config_map,
    })
}
