//! `--dry-run` and `--explain`: no cluster, no kubeconfig, no network.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::Place;
use crate::program::{Ran, Run as _, firesteel, pi};

const MASTER: &str = "k8s://https://192.0.2.1:6443";

fn dry_run(own: &[&str], conf: &[(&str, &str)]) -> Ran {
    let mut arguments = pi(MASTER, conf);
    arguments.splice(1..1, own.iter().map(|word| (*word).to_owned()));
    firesteel(arguments).run()
}

#[test]
fn stdout_is_one_list_with_the_namespace_on_everything() {
    let ran = dry_run(&["--dry-run", "-o", "json"], &[("spark.kubernetes.namespace", "etl")]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let list: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((list["apiVersion"].as_str(), list["kind"].as_str()), (Some("v1"), Some("List")));
    let items = list["items"].as_array().expect("items");
    let mut kinds: Vec<_> = items.iter().map(|item| item["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["ConfigMap", "Pod", "Service"]);
    for item in items {
        assert_eq!(item["metadata"]["namespace"], "etl");
        assert_eq!(item["metadata"].get("ownerReferences"), None);
        assert_eq!(item["spec"].get("schedulingGates"), None);
    }
}

#[test]
fn yaml_says_the_same_as_json() {
    let (json, yaml) = (dry_run(&["--dry-run", "-o", "json"], &[]), dry_run(&["-o", "yaml", "--dry-run"], &[]));
    let shape = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items").iter();
        items.map(|item| format!("{}{}", item["kind"], item["spec"]["containers"][0]["args"])).collect()
    };
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).expect("YAML");
    assert_eq!(shape(&json), shape(&yaml));
}

#[tokio::test]
async fn list_is_ready_for_kubectl_create() {
    let Some(place) = Place::new("dryrun").await else { return };
    for format in ["json", "yaml"] {
        let ran = dry_run(&["--dry-run", "-o", format], &[("spark.kubernetes.namespace", place.name())]);
        let mut kubectl = Command::new(place.env.kubectl())
            .args(["create", "-f", "-"])
            .env("KUBECONFIG", place.env.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        std::io::Write::write_all(&mut kubectl.stdin.take().expect("stdin"), ran.stdout.as_bytes()).expect("written");
        let output = kubectl.wait_with_output().expect("kubectl ends");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
    }
}

#[test]
fn nothing_is_uploaded_and_the_uri_that_would_be_used_stands_in_the_objects() {
    let dir = tempfile::tempdir().expect("a directory");
    let (jar, target) = (dir.path().join("dep.jar"), dir.path().join("up"));
    std::fs::write(&jar, "jar").expect("written");
    let (jar, up) = (jar.display().to_string(), format!("file://{}", target.display()));
    let ran = dry_run(&["--dry-run", "--jars", &jar], &[("spark.kubernetes.file.upload.path", &up)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("/up/spark-upload-"), "{}", ran.stdout);
    assert!(!target.exists());
}

#[test]
fn explanation_tells_where_each_setting_came_from_and_hides_secrets() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("app.properties");
    std::fs::write(&file, "spark.executor.memory 3g\nspark.hadoop.fs.s3a.secret.key s3cr3t\n").expect("written");
    let file = file.display().to_string();
    let own = ["--explain", "--properties-file", &file, "--executor-cores", "2"];
    let ran = dry_run(&own, &[("spark.executor.instances", "5")]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let row = |key: &str| -> Vec<&str> {
        let line = ran.stdout.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("{key} is missing in {}", ran.stdout)).split_whitespace().collect()
    };
    assert_eq!(row("spark.executor.memory"), ["spark.executor.memory", "3g", "--properties-file", &file]);
    assert_eq!(row("spark.executor.cores"), ["spark.executor.cores", "2", "--executor-cores"]);
    assert_eq!(row("spark.executor.instances"), ["spark.executor.instances", "5", "--conf"]);
    assert!(!ran.stdout.contains("s3cr3t"), "{}", ran.stdout);
    // Together with a dry run, stdout stays one List.
    let both = dry_run(&["--dry-run", "--explain", "-o", "json"], &[]);
    assert!(serde_json::from_str::<Value>(&both.stdout).is_ok() && both.stderr.contains("SETTING"), "{both:?}");
}

#[test]
fn tag_that_is_no_version_makes_no_object_that_only_newer_sparks_have() {
    let image = |image: &'static str| ("spark.kubernetes.container.image", image);
    let planned = |ran: &Ran| -> (Vec<String>, Value) {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let list: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let items = list["items"].as_array().expect("items");
        let mut kinds: Vec<_> = items.iter().map(|item| item["kind"].as_str().expect("a kind").to_owned()).collect();
        kinds.sort_unstable();
        let pod = items.iter().find(|item| item["kind"] == "Pod").expect("a pod");
        (kinds, pod["metadata"]["labels"]["spark-version"].clone())
    };
    let ran = dry_run(&["--dry-run", "-o", "json"], &[image("team/etl:latest")]);
    assert_eq!(planned(&ran), (["ConfigMap", "Pod", "Service"].map(str::to_owned).to_vec(), Value::Null));
    assert!(
        ran.stderr.starts_with("Warning: the Spark version in team/etl:latest is unknown: planning for Spark 3.5"),
        "{ran:?}"
    );
    // The version of the Spark on this machine is used.
    let home = tempfile::tempdir().expect("a directory");
    std::fs::write(home.path().join("RELEASE"), "Spark 4.2.1 (git revision 1) built for Hadoop 3.4.2\n")
        .expect("written");
    let mut arguments = pi(MASTER, &[image("team/etl:latest")]);
    arguments.splice(1..1, ["--dry-run", "-o", "json"].map(str::to_owned));
    let ran = firesteel(arguments).env("SPARK_HOME", home.path()).run();
    assert_eq!(
        planned(&ran),
        (["ConfigMap", "NetworkPolicy", "Pod", "Service"].map(str::to_owned).to_vec(), "4.2.1".into())
    );
    assert_eq!(ran.stderr, "");
}

/// As real Spark 3.5 to 4.3 prints with `--verbose` for the same settings: the pattern applies to keys and values.
#[test]
fn explanation_and_verbose_mask_what_the_redaction_pattern_matches() {
    let masked = "*********(redacted)";
    let settings = [
        ("spark.my.password", "geheim-1"),
        ("spark.my.plain", "geheim-2-has-a-token-in-it"),
        ("spark.kubernetes.driverEnv.DB_PASSWORD", "geheim-3"),
        ("spark.driver.extraJavaOptions", "-Dmy.password=geheim-4"),
    ];
    let shown = |text: &str, key: &str| -> String {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key)).expect("a row");
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    let explained = dry_run(&["--explain"], &settings);
    let verbose = dry_run(&["--verbose", "--dry-run"], &settings);
    for (text, key) in settings.iter().flat_map(|(key, _)| [(&explained.stdout, key), (&verbose.stderr, key)]) {
        assert_eq!(shown(text, key), masked, "{key} in {text}");
        assert!(!text.contains("geheim"), "{text}");
    }
    // The user's pattern replaces Spark's.
    let own = dry_run(
        &["--explain"],
        &[
            ("spark.redaction.regex", "(?i)^spark\\.acme\\.|geheim-2"),
            settings[0],
            settings[1],
            ("spark.acme.pin", "1234"),
        ],
    );
    assert_eq!(shown(&own.stdout, "spark.my.password"), "geheim-1");
    assert_eq!(shown(&own.stdout, "spark.my.plain"), masked);
    assert_eq!(shown(&own.stdout, "spark.acme.pin"), masked);
    // An unsupported pattern masks everything.
    let unread = dry_run(&["--explain"], &[("spark.redaction.regex", "(?<!un)secret")]);
    assert!(unread.stderr.contains("spark.redaction.regex: this pattern is not supported here"), "{unread:?}");
    assert_eq!(shown(&unread.stdout, "spark.app.name"), masked);
}

#[test]
fn reader_that_goes_away_is_no_failure() {
    let mut child =
        firesteel(["submit", "--help"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}

#[test]
fn a_kerberos_cluster_without_keytab_or_tokens_is_warned_about() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = "<configuration><property><name>hadoop.security.authentication</name><value>kerberos</value></property></configuration>";
    std::fs::write(directory.path().join("core-site.xml"), site).expect("written");
    let mut arguments = pi(MASTER, &[]);
    arguments.insert(1, "--dry-run".to_owned());
    let ran = firesteel(&arguments).env("HADOOP_CONF_DIR", directory.path()).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.stderr.trim_end(),
        "Warning: the Hadoop configuration asks for Kerberos, but Firesteel does not obtain delegation tokens: set --principal and \
         --keytab, or name a Secret that holds tokens with spark.kubernetes.kerberos.tokenSecret.name and .itemKey"
    );
    let secret = [
        ("spark.kubernetes.kerberos.tokenSecret.name", "tokens"),
        ("spark.kubernetes.kerberos.tokenSecret.itemKey", "hadoop.token"),
    ];
    let mut arguments = pi(MASTER, &secret);
    arguments.insert(1, "--dry-run".to_owned());
    let ran = firesteel(&arguments).env("HADOOP_CONF_DIR", directory.path()).run();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
}
