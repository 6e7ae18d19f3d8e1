//! The last output of failed applications, with real Spark: the cause and what to do, not only an exit code.

use super::*;

const BOOM: &str = "\
def rate(total, count):
    # The third line is the one that fails.
    return total / count
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print(rate(spark.range(10).count(), 0))
";

const NO_PATH: &str = "\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.csv('/nowhere/orders.csv', header=True).show()
";

/// The last output, from the last occurrence of `begin`.
fn last_words<'s>(said: &'s Said, begin: &str) -> &'s str {
    said.err.rfind(begin).map_or("", |at| &said.err[at..])
}

#[test]
fn a_failed_run_ends_with_the_cause_and_its_place_in_the_program() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let boom = bed.run(&["run"], &[&bed.write("boom.py", BOOM)]);
    assert_eq!(boom.code, 1, "{boom:?}");
    let words = last_words(&boom, "Failed: ");
    let begin =
        "Failed: the driver ended with exit code 1: ZeroDivisionError: division by zero, at boom.py:3\n  File \"";
    assert!(words.starts_with(begin), "{words}\n{boom:?}");
    assert!(words.ends_with("boom.py\", line 3, in rate\n    return total / count\n"), "{words}");
    let path = bed.run(&["run"], &[&bed.write("path.py", NO_PATH)]);
    assert_eq!(path.code, 1, "{path:?}");
    let words = last_words(&path, "Failed: ");
    assert!(
        words.contains("PATH_NOT_FOUND: the path file:/nowhere/orders.csv does not exist, at path.py:3\n"),
        "{words}"
    );
    assert!(words.contains("\nWhat to do: "), "{words}");
}

/// A service account without a role: a typical first failure.
#[test]
fn a_run_of_a_manifest_and_its_status_say_the_same_of_an_account_without_rights() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    bed.write("boom.py", BOOM);
    let manifest = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: plain, namespace: default}}\n---\n\
         apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {{name: rightless, namespace: default}}\nspec:\n  \
         {{type: Python, mode: cluster, sparkVersion: 4.1.4, image: '{SPARK}', mainApplicationFile: boom.py,\n  \
         driver: {{cores: 1, memory: 512m, serviceAccount: plain}}, executor: {{cores: 1, memory: 512m, instances: 1}}}}\n"
    );
    let said = bed.run(&["run", "--keep"], &[&bed.write("app.yaml", &manifest)]);
    assert_eq!(said.code, 1, "{said:?}");
    let why = "the driver's account `plain` may not get pods in `default`\n\
               What to do: firesteel setup -n default --service-account plain --apply";
    assert_eq!(
        last_words(&said, "Failed: "),
        format!("Failed: the driver ended with exit code 1: {why}\n"),
        "{said:?}"
    );
    let kubeconfig = bed.run(&["local", "kubeconfig"], &[]).out;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let status = runtime.block_on(async {
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await;
        let client = kube::Client::try_from(config.expect("a configuration")).expect("a client");
        let apps: kube::Api<firesteel_api::SparkApplication> = kube::Api::namespaced(client, "default");
        apps.get("rightless").await.expect("the application").status.expect("a status")
    });
    let text = status.application_state.error_message;
    assert_eq!(text, format!("driver container failed with ExitCode: 1, Reason: Error: {why}"));
}

#[test]
fn a_failed_submission_ends_with_the_cause() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let kubeconfig = bed.write("kubeconfig", &bed.run(&["local", "kubeconfig"], &[]).out);
    let server = std::fs::read_to_string(&kubeconfig).expect("kubeconfig");
    let server = server.lines().find_map(|line| line.trim().strip_prefix("server: ")).expect("a server").to_owned();
    let image = format!("spark.kubernetes.container.image={SPARK}");
    let output = Command::new(env!("CARGO_BIN_EXE_firesteel"))
        .args(["submit", "--master", &format!("k8s://{server}"), "--deploy-mode", "cluster", "--name", "nope"])
        .args(["--class", "org.example.Nope", "--conf", &image])
        .args(["--conf", "spark.kubernetes.authenticate.driver.serviceAccountName=spark"])
        .args(["--conf", "spark.kubernetes.driver.request.cores=100m"])
        .arg("local:///opt/spark/examples/jars/spark-examples.jar")
        .env("KUBECONFIG", &kubeconfig)
        .stdin(Stdio::null())
        .output()
        .expect("firesteel runs");
    let said = Said::from(&output, Instant::now());
    assert_eq!(said.code, 101, "{said:?}");
    let words = last_words(&said, "Application nope ");
    let why = " failed: the driver ended with exit code 101: the class org.example.Nope was not found in the application's jar\n\
               What to do: check mainClass (--class)";
    assert!(words.contains(why), "{said:?}");
    assert!(
        words.lines().count() == 3 && words.lines().last().is_some_and(|line| line.starts_with("Next: ")),
        "{words}"
    );
}
