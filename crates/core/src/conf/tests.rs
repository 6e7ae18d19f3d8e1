//! Every row of the table, in both directions: from the field to the key, and from a bad value back to the field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use firesteel_api::validate::{DENIED_KEYS, Problem};
use firesteel_api::{SparkApplicationSpec, defaults};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fields::Part;
use super::*;
use crate::run::{self, Attempt, Run, RunSettings};
use crate::{monitoring, overlay, template};

/// An application in which every field of the table is set.
fn complete() -> Value {
    let pod = json!({
        "cores": 2, "coreLimit": "3", "coreRequest": "1", "memory": "2g", "memoryOverhead": "400m", "image": "i:2",
        "serviceAccount": "a", "labels": {"l": "1"}, "annotations": {"n": "1"}, "javaOptions": "-Da=b",
        "volumeMounts": [
            {"name": "spark-local-dir-1", "mountPath": "/one", "subPath": "s", "readOnly": false},
            {"name": "spark-local-dir-2", "mountPath": "/two", "subPathExpr": "$(A)"},
        ],
        "envVars": {"E": "1"}, "envSecretKeyRefs": {"S": {"name": "s", "key": "k"}},
        "secrets": [{"name": "s", "path": "/s", "secretType": "GCPServiceAccount"}],
        "terminationGracePeriodSeconds": 7,
        "template": {"spec": {"containers": [{"name": "main"}]}},
    });
    let mut manifest = json!({
        "metadata": {"name": "pi", "namespace": "jobs", "labels": {"team": "a"}},
        "spec": {
            "type": "Scala", "sparkVersion": "4.1.4", "image": "i:1", "mainClass": "Main", "proxyUser": "u",
            "mainApplicationFile": "local:///a.jar", "imagePullPolicy": "Always", "imagePullSecrets": ["p"],
            "pythonVersion": "3", "memoryOverheadFactor": "0.3", "sparkConf": {"spark.x": "1"}, "hadoopConf": {"h": "1"},
            "nodeSelector": {"pool": "a"}, "sparkConfigMap": "c",
            "deps": {
                "jars": ["local:///j"], "files": ["local:///f"], "pyFiles": ["local:///p"], "archives": ["local:///r"],
                "packages": ["g:a:1"], "excludePackages": ["g:b"], "repositories": ["https://r"],
            },
            "dynamicAllocation": {
                "enabled": true, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 5,
                "shuffleTrackingEnabled": false, "shuffleTrackingTimeout": 9,
            },
            "monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": true},
            "volumes": [
                {"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}},
                {"name": "spark-local-dir-2", "nfs": {"path": "/n", "server": "h", "readOnly": true}},
            ],
            "driver": pod, "executor": pod,
        },
    });
    manifest["spec"]["driver"]["podName"] = json!("d");
    manifest["spec"]["driver"]["kubernetesMaster"] = json!("https://k");
    manifest["spec"]["driver"]["serviceLabels"] = json!({"sl": "1"});
    manifest["spec"]["driver"]["serviceAnnotations"] = json!({"sa": "1"});
    manifest["spec"]["executor"]["instances"] = json!(2);
    manifest["spec"]["executor"]["deleteOnTermination"] = json!(false);
    manifest
}

/// A small application with executors outside the driver, so that they are planned too.
fn small() -> Value {
    json!({
        "metadata": {"name": "pi", "namespace": "jobs", "labels": {}},
        "spec": {
            "type": "Scala", "sparkVersion": "4.1.4", "image": "i:1", "mainClass": "Main",
            "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {},
            "sparkConf": {"spark.kubernetes.allocation.pods.allocator": "firesteel"},
        },
    })
}

/// Calls `with` on a manifest as the operator sees it.
fn read<T>(manifest: &Value, with: impl FnOnce(&Subject<'_>) -> T) -> T {
    let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default().to_owned();
    let spec: SparkApplicationSpec = serde_json::from_value(manifest["spec"].clone()).expect("a specification");
    let spec = defaults::defaulted(&spec);
    let labels: BTreeMap<String, String> =
        serde_json::from_value(manifest["metadata"]["labels"].clone()).unwrap_or_default();
    with(&Subject { name: &text("name"), namespace: &text("namespace"), uid: "uid", labels: &labels, spec: &spec })
}

fn plan(manifest: &Value) -> Result<Run, Problem> {
    let created = Timestamp::UNIX_EPOCH;
    let attempt = Attempt { number: 1, generation: 1, created, now: created, nonce: 7 };
    read(manifest, |app| run::plan(app, attempt, &RunSettings::default()))
}

/// What a row writes: place, key and value of each part.
type Written = Vec<(String, String, String)>;

/// Every row by path, and what it writes for a manifest.
fn rows(manifest: &Value) -> Vec<(String, Written)> {
    let written = |key: &str, parts: Vec<Part>| -> Written {
        parts.into_iter().map(|part| (part.place, format!("{key}{}", part.key), part.value)).collect()
    };
    read(manifest, |app| {
        let version = app.spec.spark_version.parse().expect("a version");
        let monitoring = monitoring::monitoring(app.name, app.namespace, app.spec);
        let containers = [overlay::DRIVER_CONTAINERS, overlay::EXECUTOR_CONTAINERS];
        let starts = Role::BOTH.into_iter().zip(containers);
        let starts: Vec<_> =
            starts.map(|(role, usual)| template::start(role.pod(app.spec).template.as_ref(), usual)).collect();
        let extras = Extras {
            labels: &operator_labels(app.name, "id"),
            master: "https://m",
            version: &version,
            driver_container: &starts[0].container,
            executor_container: &starts[1].container,
            monitoring: monitoring.as_ref(),
            proxy_base: None,
        };
        let manifest = Manifest { app, extras: &extras };
        let mut rows = Vec::new();
        for field in FIELDS.iter().chain(LAST_FIELDS) {
            let key = if let Target::Key(key) = field.target { key } else { "" };
            rows.push((field.path.to_owned(), written(key, (field.parts)(&manifest))));
        }
        for field in POD_FIELDS {
            for (at, role) in Role::BOTH.into_iter().enumerate() {
                let pod = PodManifest { manifest, pod: role.pod(app.spec), container: &starts[at].container };
                rows.push((role.path(field.path), written(field.keys[at], (field.parts)(&pod))));
            }
        }
        rows
    })
}

/// A path such as `spec.driver.labels[team]` or `spec.volumes[0].name` as a JSON pointer.
fn pointer(path: &str) -> String {
    let (outer, entry) = match path.split_once('[') {
        Some((outer, rest)) => (outer, rest.split_once(']').expect("a closed bracket")),
        None => (path, ("", "")),
    };
    let plain = |text: &str| text.replace('.', "/");
    let entry_name = if entry.0.is_empty() { String::new() } else { format!("/{}", entry.0) };
    format!("/{}{entry_name}{}", plain(outer), plain(entry.1))
}

#[test]
fn every_row_reads_the_field_at_its_path_and_nothing_else() {
    let complete = complete();
    let before = rows(&complete);
    for (at, (path, written)) in before.iter().enumerate() {
        assert!(!written.is_empty(), "{path} is not set in the complete application, or the row does not read it");
        for (place, key, _) in written {
            let place = pointer(&format!("{path}{place}"));
            assert!(complete.pointer(&place).is_some(), "{key}: there is no {place} in the manifest");
        }
        let mut without = complete.clone();
        let pointer = pointer(path);
        let (parent, name) = pointer.rsplit_once('/').expect("a parent");
        without.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").remove(name);
        let after = rows(&without);
        assert_ne!(after[at].1, *written, "{path}: without the field the row writes the same");
        let same_field = |other: &str| other == path || other.starts_with(&format!("{path}."));
        let changed = |i: &usize| after[*i].1 != before[*i].1 && !same_field(&before[*i].0);
        // The image and scratch volumes belong to both roles, and monitoring uses the application's name.
        let derived = ["spec.image", "spec.monitoring", "spec.volumes", "spec.driver.volumeMounts"];
        let also = |other: &str| derived.contains(&other) || other == "spec.executor.volumeMounts";
        let others: Vec<&str> = (0..before.len()).filter(changed).map(|i| before[i].0.as_str()).collect();
        let switch = path == "spec.dynamicAllocation.enabled";
        let expected = |other: &&str| also(other) || (switch && other.starts_with("spec.dynamicAllocation."));
        assert!(others.iter().all(expected), "{path} also changes {others:?}");
    }
}

#[test]
fn the_setting_that_wins_names_its_field() {
    read(&complete(), |app| {
        let version = app.spec.spark_version.parse().expect("a version");
        let extras = Extras {
            labels: &operator_labels(app.name, "id"),
            master: "https://m",
            version: &version,
            driver_container: "main",
            executor_container: "main",
            monitoring: None,
            proxy_base: Some("/base"),
        };
        let settings = settings(app, &extras);
        let path = |key: &str| settings.path(&firesteel_spark::Input::Key(key.to_owned()));
        for (key, field) in [
            ("spark.kubernetes.driver.pod.name", "spec.driver.podName"),
            ("spark.kubernetes.executor.container.image", "spec.executor.image"),
            ("spark.kubernetes.driver.label.team", "metadata.labels[team]"),
            ("spark.kubernetes.driver.label.l", "spec.driver.labels[l]"),
            ("spark.kubernetes.executor.volumes.nfs.spark-local-dir-2.mount.readOnly", "spec.volumes[1].nfs.readOnly"),
            ("spark.x", "spec.sparkConf[spark.x]"),
            // Nothing sets these: this is where they would be set.
            ("spark.ui.port", "spec.sparkConf[spark.ui.port]"),
            ("spark.ui.proxyBase", "spec.sparkConf[spark.ui.proxyBase]"),
        ] {
            assert_eq!(path(key), field, "{key}");
        }
    });
}

/// The fields that replace a denied key are those that the table says write it.
#[test]
fn fields_to_use_in_place_of_denied_keys_write_them() {
    let rows = rows(&complete());
    for (key, instead) in DENIED_KEYS {
        let Some(field) = instead.strip_prefix("use ").filter(|_| !key.contains("oauthToken")) else { continue };
        let writes =
            |(path, written): &(String, Written)| path == field && written.iter().any(|(_, name, _)| name == key);
        assert!(rows.iter().any(writes), "{field} does not write {key}");
    }
}

/// A row of the table, and what makes the field of a small application bad.
struct Bad {
    row: &'static str,
    /// The path that the error names.
    path: &'static str,
    /// What to merge over the application; `junk` is not a valid name, size or number.
    patch: fn(junk: &str) -> Value,
}

const BAD: &[Bad] = &[
    Bad { row: "metadata.name", path: "metadata.name", patch: |junk| json!({"metadata": {"name": junk}}) },
    Bad {
        row: "metadata.namespace",
        path: "metadata.namespace",
        patch: |junk| json!({"metadata": {"namespace": junk}}),
    },
    Bad {
        row: "metadata.labels",
        path: "metadata.labels[team]",
        patch: |junk| json!({"metadata": {"labels": {"team": junk}}}),
    },
    Bad {
        row: "spec.sparkConf",
        path: "spec.sparkConf[spark.ui.port]",
        patch: |junk| spec(&json!({"sparkConf": {"spark.ui.port": junk}})),
    },
    Bad {
        row: "spec.mainApplicationFile",
        path: "spec.mainApplicationFile",
        patch: |junk| spec(&json!({"mainApplicationFile": format!("local:///{junk} .jar")})),
    },
    Bad { row: "spec.mainClass", path: "spec.mainClass", patch: |_| spec(&json!({"mainClass": null})) },
    Bad {
        row: "spec.proxyUser",
        path: "spec.proxyUser",
        patch: |junk| spec(&json!({"proxyUser": junk, "sparkConf": {"spark.kerberos.principal": "p"}})),
    },
    Bad { row: "spec.deps.jars", path: "spec.deps.jars", patch: |junk| deps("jars", junk) },
    Bad { row: "spec.deps.files", path: "spec.deps.files", patch: |junk| deps("files", junk) },
    Bad { row: "spec.deps.pyFiles", path: "spec.deps.pyFiles", patch: |junk| deps("pyFiles", junk) },
    Bad { row: "spec.deps.archives", path: "spec.deps.archives", patch: |junk| deps("archives", junk) },
    Bad { row: "spec.image", path: "spec.image", patch: |_| spec(&json!({"image": null})) },
    Bad {
        row: "spec.imagePullPolicy",
        path: "spec.imagePullPolicy",
        patch: |junk| spec(&json!({"imagePullPolicy": junk})),
    },
    Bad {
        row: "spec.memoryOverheadFactor",
        path: "spec.memoryOverheadFactor",
        patch: |junk| spec(&json!({"memoryOverheadFactor": junk})),
    },
    Bad {
        row: "spec.nodeSelector",
        path: "spec.nodeSelector[pool]",
        patch: |junk| spec(&json!({"nodeSelector": {"pool": junk}})),
    },
    Bad {
        row: "spec.dynamicAllocation.initialExecutors",
        path: "spec.dynamicAllocation.initialExecutors",
        patch: |junk| dynamic("initialExecutors", junk),
    },
    Bad {
        row: "spec.dynamicAllocation.minExecutors",
        path: "spec.dynamicAllocation.minExecutors",
        patch: |junk| dynamic("minExecutors", junk),
    },
    Bad {
        row: "spec.dynamicAllocation.maxExecutors",
        path: "spec.dynamicAllocation.maxExecutors",
        patch: |junk| dynamic("maxExecutors", junk),
    },
    Bad { row: "spec.driver.podName", path: "spec.driver.podName", patch: |junk| driver(&json!({"podName": junk})) },
    Bad {
        row: "spec.driver.coreRequest",
        path: "spec.driver.coreRequest",
        patch: |junk| driver(&json!({"coreRequest": junk})),
    },
    Bad {
        row: "spec.driver.javaOptions",
        path: "spec.driver.javaOptions",
        patch: |junk| driver(&json!({"javaOptions": format!("-Xmx{junk}")})),
    },
    Bad {
        row: "spec.driver.serviceLabels",
        path: "spec.driver.serviceLabels[a]",
        patch: |junk| driver(&json!({"serviceLabels": {"a": junk}})),
    },
    Bad {
        row: "spec.driver.serviceAnnotations",
        path: "spec.driver.serviceAnnotations[no name]",
        patch: |junk| driver(&json!({"serviceAnnotations": {"no name": junk}})),
    },
    Bad {
        row: "spec.driver.cores",
        path: "spec.driver.cores",
        patch: |junk| driver(&json!({"cores": negative(junk)})),
    },
    Bad {
        row: "spec.driver.coreLimit",
        path: "spec.driver.coreLimit",
        patch: |junk| driver(&json!({"coreLimit": junk})),
    },
    Bad { row: "spec.driver.memory", path: "spec.driver.memory", patch: |junk| driver(&json!({"memory": junk})) },
    Bad {
        row: "spec.driver.memoryOverhead",
        path: "spec.driver.memoryOverhead",
        patch: |junk| driver(&json!({"memoryOverhead": junk})),
    },
    Bad {
        row: "spec.driver.labels",
        path: "spec.driver.labels[spark-role]",
        patch: |junk| driver(&json!({"labels": {"spark-role": junk}})),
    },
    Bad {
        row: "spec.driver.annotations",
        path: "spec.driver.annotations[no name]",
        patch: |junk| driver(&json!({"annotations": {"no name": junk}})),
    },
    Bad {
        row: "spec.driver.volumeMounts",
        path: "spec.driver.volumeMounts[0].subPath",
        patch: |junk| scratch("driver", &json!({"subPath": junk, "subPathExpr": junk}), "1Gi"),
    },
    Bad {
        row: "spec.volumes",
        path: "spec.volumes[1].emptyDir.sizeLimit",
        patch: |junk| scratch("driver", &json!({}), junk),
    },
    Bad {
        row: "spec.driver.envSecretKeyRefs",
        path: "spec.driver.envSecretKeyRefs[A]",
        patch: |junk| driver(&json!({"envSecretKeyRefs": {"A": {"name": "a:b", "key": junk}}})),
    },
    Bad {
        row: "spec.driver.envVars",
        path: "spec.driver.envVars[A=B]",
        patch: |junk| driver(&json!({"envVars": {"A=B": junk}})),
    },
    Bad {
        row: "spec.driver.secrets",
        path: "spec.driver.secrets[1]",
        patch: |junk| driver(&json!({"secrets": [{"name": "a", "path": "/a"}, {"name": junk, "path": "/b"}]})),
    },
    Bad {
        row: "spec.executor.instances",
        path: "spec.executor.instances",
        patch: |junk| executor(&json!({"instances": negative(junk)})),
    },
    Bad {
        row: "spec.executor.coreRequest",
        path: "spec.executor.coreRequest",
        patch: |junk| executor(&json!({"coreRequest": junk})),
    },
    Bad {
        row: "spec.executor.cores",
        path: "spec.executor.cores",
        patch: |junk| executor(&json!({"cores": negative(junk)})),
    },
    Bad {
        row: "spec.executor.coreLimit",
        path: "spec.executor.coreLimit",
        patch: |junk| executor(&json!({"coreLimit": junk})),
    },
    Bad { row: "spec.executor.memory", path: "spec.executor.memory", patch: |junk| executor(&json!({"memory": junk})) },
    Bad {
        row: "spec.executor.memoryOverhead",
        path: "spec.executor.memoryOverhead",
        patch: |junk| executor(&json!({"memoryOverhead": junk})),
    },
    Bad {
        row: "spec.executor.labels",
        path: "spec.executor.labels[team]",
        patch: |junk| executor(&json!({"labels": {"team": junk}})),
    },
    Bad {
        row: "spec.executor.annotations",
        path: "spec.executor.annotations[no name]",
        patch: |junk| executor(&json!({"annotations": {"no name": junk}})),
    },
    Bad {
        row: "spec.executor.volumeMounts",
        path: "spec.executor.volumeMounts[0].subPath",
        patch: |junk| scratch("executor", &json!({"subPath": junk, "subPathExpr": junk}), "1Gi"),
    },
    Bad {
        row: "spec.executor.envSecretKeyRefs",
        path: "spec.executor.envSecretKeyRefs[A]",
        patch: |junk| executor(&json!({"envSecretKeyRefs": {"A": {"name": "a:b", "key": junk}}})),
    },
    Bad {
        row: "spec.executor.secrets",
        path: "spec.executor.secrets[0]",
        patch: |junk| executor(&json!({"secrets": [{"name": junk, "path": "/b"}]})),
    },
    // Parts of templates, and fields that are merged over them.
    Bad {
        row: "spec.executor.template",
        path: "spec.executor.template.spec.volumes[0]",
        patch: |junk| executor(&json!({"template": {"spec": {"containers": [], "volumes": [{"name": junk}]}}})),
    },
    Bad {
        row: "spec.executor.template",
        path: "spec.executor.template.spec.containers[0].env[0]",
        patch: |_| executor(&template(&json!({"env": [{"name": "A=B"}]}))),
    },
    Bad {
        row: "spec.executor.template",
        path: "spec.executor.template",
        patch: |junk| executor(&template(&json!({"resources": {"limits": {"example.com/fpga": junk}}}))),
    },
    Bad {
        row: "spec.driver.template",
        path: "spec.driver.template.spec.containers[0].ports[0]",
        patch: |junk| driver(&template(&json!({"ports": [{"name": junk, "containerPort": 0}]}))),
    },
    Bad {
        row: "spec.executor.template",
        path: "spec.executor.env[0]",
        patch: |_| executor(&json!({"env": [{"name": "A=B", "value": "1"}]})),
    },
    Bad {
        row: "spec.executor.template",
        path: "spec.executor.configMaps[0]",
        patch: |junk| executor(&json!({"configMaps": [{"name": junk, "path": "/c"}]})),
    },
];

/// Rows whose field may hold any value of its type, as far as planning goes. Validation is stricter for some.
const ANY_VALUE: &[&str] = &[
    "spec.hadoopConf",
    "spec.deps.packages",
    "spec.deps.excludePackages",
    "spec.deps.repositories",
    "spec.imagePullSecrets",
    "spec.pythonVersion",
    "spec.dynamicAllocation.enabled",
    "spec.dynamicAllocation.shuffleTrackingEnabled",
    "spec.dynamicAllocation.shuffleTrackingTimeout",
    "spec.driver.kubernetesMaster",
    "spec.driver.image",
    "spec.driver.serviceAccount",
    "spec.executor.javaOptions",
    "spec.executor.terminationGracePeriodSeconds",
    "spec.executor.deleteOnTermination",
    "spec.executor.image",
    "spec.executor.serviceAccount",
    // Spark skips variables that executors cannot have, with a warning.
    "spec.executor.envVars",
    "spec.sparkConfigMap",
    "spec.monitoring",
];

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

fn driver(fields: &Value) -> Value {
    spec(&json!({ "driver": fields }))
}

fn executor(fields: &Value) -> Value {
    spec(&json!({ "executor": fields }))
}

fn deps(list: &str, junk: &str) -> Value {
    spec(&json!({"deps": {list: ["local:///good", format!("local:///{junk} x")]}}))
}

fn dynamic(field: &str, junk: &str) -> Value {
    spec(&json!({"dynamicAllocation": {"enabled": true, field: negative(junk)}}))
}

fn negative(junk: &str) -> i64 {
    -i64::try_from(junk.len()).expect("a short text")
}

/// A volume for scratch space, after another one, and its mount.
fn scratch(role: &str, mount: &Value, size: &str) -> Value {
    let mount = merged(json!({"name": "spark-local-dir-1", "mountPath": "/one"}), mount);
    spec(&json!({
        role: {"volumeMounts": [mount]},
        "volumes": [
            {"name": "other", "emptyDir": {}},
            {"name": "spark-local-dir-1", "emptyDir": {"sizeLimit": size}},
        ],
    }))
}

fn template(container: &Value) -> Value {
    let container = merged(json!({"name": "spark"}), container);
    json!({"template": {"spec": {"containers": [container]}}})
}

/// A JSON merge patch.
fn merged(mut value: Value, patch: &Value) -> Value {
    let (Value::Object(fields), Value::Object(changes)) = (&mut value, patch) else { return patch.clone() };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            let old = fields.remove(name).unwrap_or(Value::Null);
            fields.insert(name.clone(), merged(old, change));
        }
    }
    value
}

impl Bad {
    fn problem(&self, junk: &str) -> Problem {
        match plan(&merged(small(), &(self.patch)(junk))) {
            Err(problem) => problem,
            Ok(_) => panic!("{} is planned with {junk:?}", self.path),
        }
    }
}

#[test]
fn every_row_has_a_bad_value_or_cannot_have_one() {
    assert_eq!(plan(&small()).map(|run| run.warnings), Ok(Vec::new()));
    let rows: BTreeSet<String> = rows(&complete()).into_iter().map(|(path, _)| path).collect();
    let tried: BTreeSet<String> =
        BAD.iter().map(|bad| bad.row).chain(ANY_VALUE.iter().copied()).map(str::to_owned).collect();
    assert_eq!(rows, tried);
    assert!(ANY_VALUE.iter().all(|row| BAD.iter().all(|bad| bad.row != *row)), "a row is in one of the two");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn a_bad_value_is_blamed_on_its_field(junk in "[A-Z]{1,6}[!?]") {
        for bad in BAD {
            let problem = bad.problem(&junk);
            prop_assert_eq!(&problem.path, bad.path, "{}", problem.message);
        }
    }
}

#[test]
fn what_a_person_reads_about_a_bad_value() {
    let mut text = String::new();
    for bad in BAD {
        writeln!(text, "{}", bad.problem("JUNK!")).expect("a string takes everything");
    }
    insta::assert_snapshot!(text);
}
