//! The created objects: pods like Spark executors.

use anyhow::Result;
use serde_json::{Value, json};

use crate::connection::Server;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// The pod's text around its name.
pub(crate) struct Pod {
    before: String,
    after: String,
}

impl Pod {
    pub(crate) fn template() -> Self {
        const MARK: &str = "@name@";
        let environment: Vec<Value> = [
            ("SPARK_DRIVER_URL", "spark://CoarseGrainedScheduler@spark-pi-driver-svc.default.svc:7078"),
            ("SPARK_EXECUTOR_CORES", "1"),
            ("SPARK_EXECUTOR_MEMORY", "1g"),
            ("SPARK_APPLICATION_ID", "spark-0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
            ("SPARK_CONF_DIR", "/opt/spark/conf"),
            ("SPARK_EXECUTOR_ID", "1"),
            ("SPARK_RESOURCE_PROFILE_ID", "0"),
            ("SPARK_JAVA_OPT_0", "-Dspark.driver.port=7078"),
            ("SPARK_JAVA_OPT_1", "-Djava.net.preferIPv6Addresses=false"),
            ("SPARK_LOCAL_DIRS", "/var/data/spark-2a9c0f4e"),
        ]
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": MARK, "namespace": "default",
                "labels": {"spark-app-name": "spark-pi", "spark-app-selector": "spark-0f1e2d3c4b5a69788796a5b4c3d2e1f0",
                           "spark-exec-id": "1", "spark-exec-resourceprofile-id": "0", "spark-role": "executor", "spark-version": "4.1.4"},
            },
            "spec": {
                "restartPolicy": "Never", "hostname": "executor-1", "terminationGracePeriodSeconds": 30,
                "containers": [{
                    "name": "spark-kubernetes-executor", "image": "apache/spark:4.1.4", "imagePullPolicy": "IfNotPresent",
                    "args": ["executor"], "env": environment,
                    "ports": [{"containerPort": 7079, "name": "blockmanager", "protocol": "TCP"}],
                    "resources": {"requests": {"cpu": "1", "memory": "1408Mi"}, "limits": {"memory": "1408Mi"}},
                    "volumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/var/data/spark-2a9c0f4e"},
                                     {"name": "spark-conf-volume-exec", "mountPath": "/opt/spark/conf"}],
                }],
                "volumes": [{"name": "spark-local-dir-1", "emptyDir": {}},
                            {"name": "spark-conf-volume-exec", "configMap": {"name": "spark-exec-conf-map", "defaultMode": 420,
                             "items": [{"key": "spark.properties", "mode": 420, "path": "spark.properties"}]}}],
            },
        });
        let text = pod.to_string();
        let (before, after) = text.split_once(MARK).unwrap_or((&text, ""));
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}{name}{}", self.before, self.after)
    }
}

/// Pods need a service account, which a controller would create.
pub(crate) async fn prepare(server: &Server) -> Result<()> {
    let mut connection = server.connect().await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).to_string();
    connection.request("POST", ACCOUNTS, "application/json", &account).await?.expect(&[201, 409])?;
    Ok(())
}
