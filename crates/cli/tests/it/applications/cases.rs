//! The cases, one function each.

use firesteel_api::{SparkApplication, SparkConnect};
use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::bed::{Bed, IMAGE, SHORT_LIVED, until};
pub(crate) use super::fields::every_field_shows_in_real_executors;
use crate::connect_client::{QUERIES, Running, client};

/// The release in the image.
const VERSION: &str = "4.1.4";

fn message(app: &SparkApplication) -> String {
    app.status.clone().unwrap_or_default().application_state.error_message
}

pub(crate) async fn success(bed: &Bed) {
    let pi = json!({
        "type": "Scala", "mainClass": "org.apache.spark.examples.SparkPi",
        "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar", "executor": {"instances": 2},
    });
    bed.start("success", &["20"], &pi).await;
    let app = bed.state("success", "COMPLETED").await;
    let status = app.status.unwrap();
    let log = bed.log("success-driver").await;
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!((status.execution_attempts, status.submission_attempts), (1, 1));
    let counts = status.executor_counts.clone().unwrap_or_default();
    assert_eq!((counts.completed, counts.failed), (2, 0), "{counts:?} {:?}", status.executor_state);
    assert!(status.conditions.iter().any(|c| c.type_ == "Succeeded" && c.status == "True"));
    for state in ["SUBMITTED", "RUNNING", "SUCCEEDING", "COMPLETED"] {
        assert!(status.state_times.contains_key(state), "{:?}", status.state_times);
    }
    let services: Api<Service> = Api::namespaced(bed.client.clone(), &bed.namespace);
    assert!(services.get_opt("success-ui-svc").await.unwrap().is_none());
}

pub(crate) async fn failing_driver_with_retries(bed: &Bed) {
    let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
    bed.start("failing", &["count-and-fail"], &json!({"restartPolicy": policy})).await;
    let app = bed.state("failing", "FAILED").await;
    let text = message(&app);
    assert!(text.starts_with("driver container failed with ExitCode: 3, Reason: Error"), "{text}");
    assert!(text.contains("last lines of the driver's log:") && text.contains("counted 1000"), "{text}");
    assert!(text.len() < 4096, "{}", text.len());
    assert_eq!(app.status.unwrap().execution_attempts, 2);
}

/// Its driver cannot even get its own pod: a typical first failure.
pub(crate) async fn account_without_rights(bed: &Bed) {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client.clone(), &bed.namespace);
    let account = json!({"metadata": {"name": "plain"}});
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    bed.start("rightless", &["count"], &json!({"driver": {"serviceAccount": "plain"}})).await;
    let text = message(&bed.state("rightless", "FAILED").await);
    let namespace = &bed.namespace;
    let wanted = format!(
        "driver container failed with ExitCode: 1, Reason: Error: the driver's account `plain` may not get pods in `{namespace}`\n\
         What to do: firesteel setup -n {namespace} --service-account plain --apply"
    );
    assert_eq!(text, wanted);
}

pub(crate) async fn failing_submission_with_retries(bed: &Bed) {
    let policy = json!({"type": "OnFailure", "onSubmissionFailureRetries": 2, "onSubmissionFailureRetryInterval": 1});
    bed.start("refused", &["pass"], &json!({"restartPolicy": policy, "driver": {"serviceAccount": "nobody"}})).await;
    let app = bed.state("refused", "FAILED").await;
    let text = message(&app);
    assert!(text.starts_with("failed to run spark-submit: ") && text.contains("nobody"), "{text}");
    let status = app.status.unwrap();
    assert_eq!((status.submission_attempts, status.execution_attempts), (3, 0));
    assert!(bed.pods.get_opt("refused-driver").await.unwrap().is_none());
}

pub(crate) async fn executors_outside_and_one_killed(bed: &Bed) {
    outside_and_one_killed(bed, "outside", "firesteel").await;
}

pub(crate) async fn executors_in_a_replica_set_and_one_killed(bed: &Bed) {
    outside_and_one_killed(bed, "replicas", "firesteel-replicaset").await;
}

pub(crate) async fn executors_in_a_stateful_set_and_one_killed(bed: &Bed) {
    outside_and_one_killed(bed, "stateful", "firesteel-statefulset").await;
}

/// The driver's account has no pod permissions; one of its executors is killed.
async fn outside_and_one_killed(bed: &Bed, app: &str, allocator: &str) {
    let account = format!("account-{app}");
    bed.executors_outside(&account);
    let outside = json!({
        "sparkConf": {"spark.kubernetes.allocation.pods.allocator": allocator},
        "driver": {"serviceAccount": account}, "executor": {"instances": 2, "serviceAccount": "default"},
    });
    bed.start(app, &["lose"], &outside).await;
    let driver = format!("{app}-driver");
    until("two executors are at work", async || bed.log(&driver).await.contains("seen 3").then_some(())).await;
    // Executors in sets get their ids from the driver.
    let id = |pod: &Pod| pod.metadata.labels.as_ref()?.get("spark-exec-id")?.parse::<u32>().ok();
    let victim = until("its executors are labelled", async || {
        let pods = bed.executors(app).await;
        pods.iter().all(|pod| id(pod).is_some()).then(|| pods.into_iter().next().unwrap())
    })
    .await;
    bed.kill_executor(&victim.name_any());
    bed.state(app, "COMPLETED").await;
    let log = bed.log(&driver).await;
    assert!(log.contains("sum 499500"), "{log}");
    let id = id(&victim).unwrap();
    let told = log.lines().find(|l| l.contains(&format!("Lost executor {id} on"))).unwrap_or_default();
    assert!(told.contains("137"), "{told:?}: {log}");
    assert_eq!(log.matches(": Registered executor ").count(), 3, "{log}");
    // The real controllers and garbage collector have cleaned up.
    until("no executor is left", async || bed.executors(app).await.is_empty().then_some(())).await;
}

/// Spark's own Python client, through `firesteel connect` and the real API server's port forwarding. The specification changes
/// while it is connected. It waits for programs, so it runs alone.
pub(crate) async fn connect_client_runs_queries_over_a_rollout(bed: &Bed) {
    let Some(mut python) = client(VERSION) else { return };
    bed.executors_outside("account-connect");
    let template =
        json!({"spec": {"containers": [], "serviceAccountName": "account-connect", "nodeSelector": bed.selector}});
    let connect = json!({
        "apiVersion": "sparkoperator.k8s.io/v1alpha1", "kind": "SparkConnect", "metadata": {"name": "lab"},
        "spec": {
            "sparkVersion": VERSION, "image": IMAGE,
            "sparkConf": {
                "spark.kubernetes.allocation.pods.allocator": "firesteel", "spark.sql.shuffle.partitions": "4",
                "spark.driver.extraJavaOptions": SHORT_LIVED, "spark.executor.extraJavaOptions": SHORT_LIVED,
                "spark.kubernetes.driver.request.cores": "0.1", "spark.kubernetes.executor.request.cores": "0.1",
            },
            "server": {"memory": "1g", "template": template},
            "executor": {
                "instances": 1, "memory": "512m",
                "template": {"spec": {"containers": [], "serviceAccountName": "default", "nodeSelector": bed.selector}},
            },
        },
    });
    let connects: Api<SparkConnect> = Api::namespaced(bed.client.clone(), &bed.namespace);
    connects.create(&PostParams::default(), &serde_json::from_value(connect).unwrap()).await.unwrap();
    let ready = until("the server is ready", async || {
        let status = connects.get("lab").await.unwrap().status?;
        (status.state.as_deref() == Some("Ready")).then_some(status)
    })
    .await;
    let server = ready.server.unwrap();
    assert_eq!((server.pod_name.as_deref(), server.service_name.as_deref()), (Some("lab-server"), Some("lab-server")));
    let first = bed.uid("lab-server").await;

    let mut tunnel = std::process::Command::new(env!("CARGO_BIN_EXE_firesteel"));
    tunnel.args(["connect", "lab", "-n", &bed.namespace, "--kubeconfig"]).arg(TestEnv::get().unwrap().kubeconfig());
    let mut tunnel = Running::start(tunnel);
    let address = tunnel.hear("sc://localhost:");
    let script = bed.directory().join("connect.py");
    std::fs::write(&script, QUERIES).unwrap();
    python.arg(&script).arg(&address);
    let mut python = Running::start(python);
    assert_eq!(python.hear("version"), format!("version {VERSION}"));
    assert_eq!(python.hear("total"), "total 5050");
    python.hear("session works");
    let executors = ListParams::default().labels("sparkoperator.k8s.io/connect-name=lab,spark-role=executor");
    assert_eq!(bed.pods.list(&executors).await.unwrap().items.len(), 1);

    let edit = Patch::Merge(json!({"spec": {"sparkConf": {"spark.sql.shuffle.partitions": "3"}}}));
    connects.patch("lab", &PatchParams::default(), &edit).await.unwrap();
    python.hear("lost");
    assert_eq!(python.hear("total"), "total 5050", "with a new session at the same address");
    python.hear("done");
    assert_ne!(bed.uid("lab-server").await, first);
    assert_eq!(tunnel.interrupt(), 130);
    connects.delete("lab", &DeleteParams::default()).await.unwrap();
    // The real garbage collector cleans up.
    let all = ListParams::default().labels("sparkoperator.k8s.io/connect-name=lab");
    until("no pod is left", async || bed.pods.list(&all).await.unwrap().items.is_empty().then_some(())).await;
}

pub(crate) async fn suspend_and_resume(bed: &Bed) {
    bed.start("paused", &["sleep"], &json!({})).await;
    bed.state("paused", "RUNNING").await;
    let first = bed.uid("paused-driver").await;
    bed.edit("paused", &json!({"suspend": true})).await;
    bed.state("paused", "SUSPENDED").await;
    assert!(bed.pods.get_opt("paused-driver").await.unwrap().is_none());
    bed.edit("paused", &json!({"suspend": false})).await;
    bed.state("paused", "RUNNING").await;
    assert_ne!(bed.uid("paused-driver").await, first);
    bed.state("paused", "COMPLETED").await;
}

pub(crate) async fn driver_pod_deleted_by_hand(bed: &Bed) {
    let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
    bed.start("deleted", &["sleep"], &json!({"restartPolicy": policy})).await;
    bed.state("deleted", "RUNNING").await;
    let first = bed.uid("deleted-driver").await;
    bed.pods.delete("deleted-driver", &DeleteParams::default().grace_period(1)).await.unwrap();
    let app = bed.state("deleted", "COMPLETED").await;
    assert_eq!(app.status.unwrap().execution_attempts, 2);
    assert_ne!(bed.uid("deleted-driver").await, first);
}

pub(crate) async fn bad_image(bed: &Bed) {
    bed.start("image", &["pass"], &json!({"image": "registry.invalid/none:1"})).await;
    until("the image is named as the reason", async || {
        let status = bed.apps.get("image").await.unwrap().status?;
        let running = status.conditions.into_iter().find(|c| c.type_ == "Running")?;
        (running.status == "False" && running.message.contains("image cannot be pulled")).then_some(())
    })
    .await;
    assert_eq!(bed.apps.get("image").await.unwrap().status.unwrap().application_state.state, "SUBMITTED");
    bed.edit("image", &json!({"image": super::bed::IMAGE})).await;
    bed.state("image", "COMPLETED").await;
}

pub(crate) async fn edit_while_running(bed: &Bed) {
    bed.start("edited", &["forever"], &json!({})).await;
    bed.state("edited", "RUNNING").await;
    let first = bed.uid("edited-driver").await;
    bed.edit("edited", &json!({"arguments": ["pass"]})).await;
    let app = bed.state("edited", "COMPLETED").await;
    let status = app.status.unwrap();
    assert_eq!((status.attempt, status.execution_attempts), (Some(2), 1), "a new specification has a new budget");
    assert!(status.state_times.contains_key("INVALIDATING"));
    assert_ne!(bed.uid("edited-driver").await, first);
    assert!(bed.log("edited-driver").await.contains("done pass"));
}

pub(crate) async fn same_manifest_applied_again(bed: &Bed) {
    let manifest = bed.manifest("again", &["sleep"], &json!({}));
    bed.apply(&manifest).await;
    bed.state("again", "RUNNING").await;
    let first = bed.uid("again-driver").await;
    bed.apply(&manifest).await;
    // Explicit defaults and fields that never restart a run do not count as edits.
    bed.edit("again", &json!({"restartPolicy": {"type": "Never"}, "timeToLiveSeconds": 100_000})).await;
    let app = bed.state("again", "COMPLETED").await;
    assert_eq!(app.status.unwrap().attempt, Some(1));
    assert_eq!(bed.uid("again-driver").await, first);
}

pub(crate) async fn delete_while_running(bed: &Bed) {
    bed.start("gone", &["forever"], &json!({})).await;
    bed.state("gone", "RUNNING").await;
    bed.apps.delete("gone", &DeleteParams::background()).await.unwrap();
    bed.no_pods("gone").await;
    let services: Api<Service> = Api::namespaced(bed.client.clone(), &bed.namespace);
    until("its service is gone", async || services.get_opt("gone-ui-svc").await.unwrap().is_none().then_some(())).await;
}

pub(crate) async fn time_to_live(bed: &Bed) {
    bed.start("brief", &["pass"], &json!({"timeToLiveSeconds": 2})).await;
    bed.state("brief", "RUNNING").await;
    until("it is gone", async || bed.apps.get_opt("brief").await.unwrap().is_none().then_some(())).await;
    bed.no_pods("brief").await;
}

pub(crate) async fn node_agent_killed(bed: &Bed) {
    bed.start("survivor", &["sleep"], &json!({})).await;
    bed.state("survivor", "RUNNING").await;
    bed.kill_agent();
    let app = bed.state("survivor", "COMPLETED").await;
    assert_eq!(app.status.unwrap().execution_attempts, 1);
    until("the log is there again", async || bed.log("survivor-driver").await.contains("done sleep").then_some(()))
        .await;
}

pub(crate) async fn sidecar_and_each_kind_of_volume(bed: &Bed) {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client.clone(), &bed.namespace);
    let map = json!({"metadata": {"name": "greeting"}, "data": {"greeting": "hello"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), &bed.namespace);
    let secret = json!({"metadata": {"name": "word"}, "stringData": {"word": "sesame"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bed.client.clone(), &bed.namespace);
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let host = bed.directory().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::set_permissions(&host, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(bed.directory(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let spec = json!({
        "volumes": [
            {"name": "script", "configMap": {"name": "script"}},
            {"name": "empty", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "spark-local-dir-1", "emptyDir": {}},
            {"name": "plain", "secret": {"secretName": "word"}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}}}}}},
            {"name": "down", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "all", "projected": {"sources": [
                {"configMap": {"name": "greeting"}},
                {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
        ],
        "driver": {
            "volumeMounts": [
                mount("script", "/script"), mount("empty", "/v/empty"), mount("memory", "/v/memory"),
                mount("host", "/v/host"), mount("claim", "/v/claim"), mount("spark-local-dir-1", "/v/scratch"),
                mount("down", "/v/down"), mount("all", "/v/all"), mount("plain", "/v/plain"), mount("own", "/v/own"),
            ],
            "configMaps": [{"name": "greeting", "path": "/v/map"}],
            "secrets": [{"name": "word", "path": "/v/secret", "secretType": "Generic"}],
            "sidecars": [{"name": "side", "image": "busybox", "command": ["sleep", "1000"]}],
            "initContainers": [{"name": "init", "image": "busybox", "command": ["sh", "-c", "echo init > /v/empty/init"],
                "volumeMounts": [mount("empty", "/v/empty")]}],
        },
    });
    bed.start("volumes", &["volumes"], &spec).await;
    bed.state("volumes", "COMPLETED").await;
    let log = bed.log("volumes-driver").await;
    assert!(log.contains("done volumes") && log.contains("sesame") && log.contains("volumes-driver"), "{log}");
    assert!(host.join("written").exists(), "the host sees it");
    let pod = bed.pods.get("volumes-driver").await.unwrap();
    let side = pod.status.unwrap().container_statuses.unwrap().into_iter().find(|c| c.name == "side").unwrap();
    assert!(side.state.unwrap().running.is_some(), "the sidecar outlives the driver");
    bed.apps.delete("volumes", &DeleteParams::background()).await.unwrap();
}

/// Our nodes cannot mount NFS: the condition says so, and the driver runs once the volume is replaced.
pub(crate) async fn volume_that_the_node_cannot_mount(bed: &Bed) {
    let volumes = |last: &serde_json::Value| json!([{"name": "script", "configMap": {"name": "script"}}, last]);
    let mounts = json!([{"name": "script", "mountPath": "/script"}, {"name": "export", "mountPath": "/export"}]);
    let nfs = json!({"name": "export", "nfs": {"server": "127.0.0.1", "path": "/export"}});
    bed.start("export", &["pass"], &json!({"volumes": volumes(&nfs), "driver": {"volumeMounts": mounts}})).await;
    let pod = until("the driver has the volume", async || bed.pods.get_opt("export-driver").await.unwrap()).await;
    let volume = pod.spec.unwrap().volumes.unwrap().into_iter().find(|v| v.name == "export").unwrap();
    assert_eq!(volume.nfs.unwrap().path, "/export");
    until("the volume is named as the reason", async || {
        let status = bed.apps.get("export").await.unwrap().status?;
        let running = status.conditions.into_iter().find(|c| c.type_ == "Running")?;
        (running.status == "False" && running.message.contains("export")).then_some(())
    })
    .await;
    let other = json!({"name": "export", "emptyDir": {}});
    bed.edit("export", &json!({"volumes": volumes(&other)})).await;
    bed.state("export", "COMPLETED").await;
}

pub(crate) async fn page_answers_on_its_services_name(bed: &Bed) {
    bed.start("page", &["page"], &json!({})).await;
    bed.state("page", "RUNNING").await;
    // At first the page says that Spark is starting up.
    let ask = "import time, urllib.request\n\
               for _ in range(1000):\n    \
                 try:\n        \
                   text = urllib.request.urlopen('http://page-ui-svc:4040/api/v1/applications', timeout=5).read().decode()\n        \
                   print(text, flush=True)\n        \
                   if '\"id\"' in text: break\n    \
                 except OSError: pass\n    \
                 time.sleep(0.3)\n";
    let pod = json!({"metadata": {"name": "visitor"}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox", "command": ["python3", "-c", ask]}]}});
    bed.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    until("the visitor is back", async || {
        let phase = bed.pods.get("visitor").await.unwrap().status?.phase?;
        (phase == "Succeeded" || phase == "Failed").then_some(())
    })
    .await;
    let said = bed.pods.logs("visitor", &LogParams::default()).await.unwrap();
    let app = bed.apps.get("page").await.unwrap();
    let last = said.lines().last().unwrap_or_default();
    let id = app.status.as_ref().unwrap().spark_application_id.clone().unwrap_or_default();
    assert!(said.contains(&id), "{id:?} is not in {last:?}; {}", message(&app));
    bed.apps.delete("page", &DeleteParams::background()).await.unwrap();
    bed.no_pods("page").await;
}
