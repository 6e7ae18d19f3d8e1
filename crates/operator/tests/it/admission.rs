//! What the API server itself rejects by the CRD's rules, and with which message.

use firesteel_api::{SparkApplicationSpec, crds, validate};
use firesteel_testenv::TestEnv;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::fixture::{Fixture, block_on, install};

fn spec(patch: &Value) -> Value {
    let mut spec = json!({
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar", "driver": {}, "executor": {},
    });
    for (name, value) in patch.as_object().unwrap() {
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(name);
        } else {
            spec[name] = value.clone();
        }
    }
    spec
}

#[test]
fn the_crd_rejects_with_the_controllers_message() {
    block_on(async {
        let Some(mut f) = Fixture::new("rules").await else { return };
        f.stop_operator();
        let dry = PostParams { dry_run: true, field_manager: None };
        f.try_create(&json!({"name": "good"}), &spec(&json!({"driver": {"memory": "1g"}})), &dry).await.unwrap();
        let cases = [
            json!({"mode": "client"}),
            json!({"mainClass": null}),
            json!({"type": "Java", "mainClass": ""}),
            json!({"mainApplicationFile": ""}),
            json!({"image": null}),
            json!({"sparkConf": {"spark.master": "x"}}),
            json!({"sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "x"}}),
            json!({"nodeSelector": {"a": "b"}, "driver": {"nodeSelector": {"a": "c"}}}),
            json!({"nodeSelector": {"a": "b"}, "executor": {"nodeSelector": {"a": "c"}}}),
            json!({"driver": {"memory": "lots"}}),
            json!({"executor": {"memoryOverhead": "1.5g"}}),
            json!({"executor": {"gpu": {"name": "", "quantity": 1}}}),
            json!({"driver": {"gpu": {"name": "x", "quantity": 0}}}),
            json!({"dynamicAllocation": {"enabled": true, "minExecutors": 3, "maxExecutors": 2}}),
            json!({"dynamicAllocation": {"enabled": true, "initialExecutors": 3, "maxExecutors": 2}}),
            json!({"timeToLiveSeconds": -1}),
        ];
        for patch in cases {
            let spec = spec(&patch);
            let refused = f.try_create(&json!({"name": "bad"}), &spec, &dry).await;
            let words = refused.expect_err(&format!("{patch} was accepted")).to_string();
            let typed: SparkApplicationSpec = serde_json::from_value(spec).unwrap();
            let problems = validate::problems("bad", "n", &typed);
            assert!(!problems.is_empty(), "{patch}");
            for problem in problems {
                assert!(words.contains(&problem.message), "{patch}: {problem} is not in {words}");
                let field = problem.path.split('[').next().unwrap();
                assert!(words.contains(field), "{patch}: {field} is not in {words}");
            }
        }
        for name in ["1pi", "a.b", &"a".repeat(64)] {
            let words = f.try_create(&json!({"name": name}), &spec(&json!({})), &dry).await.unwrap_err().to_string();
            let problem = &validate::problems(name, "n", &serde_json::from_value(spec(&json!({}))).unwrap())[0];
            assert!(words.contains(&problem.message), "{words}");
        }
    });
}

#[test]
fn crds_can_be_applied_repeatedly_with_kubectl() {
    let Some(env) = TestEnv::get() else { return };
    // Other tests would create them at the same time.
    block_on(async { install(&env.client().await).await });
    let mut list = String::new();
    for crd in crds::manifests() {
        list += &format!("---\n{crd}\n");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), list).unwrap();
    for _ in 0..2 {
        let mut kubectl = std::process::Command::new(env.kubectl());
        let said = kubectl.arg("--kubeconfig").arg(env.kubeconfig()).args(["apply", "-f"]).arg(file.path());
        let said = said.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
}
