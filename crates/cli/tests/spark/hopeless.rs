//! Applications whose executors never work end with the reason. Most of the time is spent waiting, so all of them run at once:
//! single pods, ReplicaSet and StatefulSet; submitted, and as a SparkApplication.

use std::process::Child;

use firesteel_api::SparkApplication;
use firesteel_api::executors::Verdict;
use serde_json::json;

use crate::bed::Bed;
use crate::cases::{Case, JAR, PI, case};
use crate::outside::{ACCOUNT, Way, ledger, start, submit};

pub(crate) const CASES: [Case; 1] =
    [case("outside_applications_whose_executors_never_work_end_with_the_reason", never_work)];

/// Spark's exit code for executors that keep failing.
const CODE: i32 = 11;
const NO_IMAGE: &str = "no.such/image:1";

fn never_work(bed: &Bed, version: &str) {
    let looked_after = LookedAfter::start(bed, version);
    let image = [Way::ReplicaSet.allocator(), ("spark.kubernetes.executor.container.image", NO_IMAGE)];
    let image = start(submit(bed, version, "out-image", &image, &["--class", PI, JAR, "20"]));
    let failing = [("fail-pods", Way::Pods), ("fail-set", Way::ReplicaSet), ("fail-stateful", Way::StatefulSet)];
    let failing = failing.map(|(name, way)| {
        let conf = [
            way.allocator(),
            ("spark.executor.extraJavaOptions", "-agentpath:/there/is/no/such/agent"),
            ("spark.executor.maxNumFailures", "2"),
        ];
        (name, start(submit(bed, version, name, &conf, &["--class", PI, JAR, "20"])))
    });
    for (name, client) in failing {
        let verdict = ended(bed, name, client);
        assert_eq!(verdict.reason, "ExecutorsKeepFailing", "{name}: {verdict:?}");
        assert!(verdict.message.contains("spark.executor.maxNumFailures"), "{name}: {verdict:?}");
        assert!(verdict.message.contains("exit code 1"), "{name}: {verdict:?}");
        assert!(ledger(bed, name).unwrap().failures.count > 2, "{name}");
    }
    let verdict = ended(bed, "out-image", image);
    assert_no_image(bed, "out-image", &verdict);
    looked_after.end();
}

/// Waits for a client; returns the driver's verdict, which its log has too.
fn ended(bed: &Bed, name: &str, mut client: Child) -> Verdict {
    let code = bed.until("the client to end", || client.try_wait().unwrap());
    assert_eq!(code.code(), Some(CODE), "{name}: {}", bed.log(name));
    told(bed, name)
}

fn told(bed: &Bed, driver: &str) -> Verdict {
    let verdict = ledger(bed, driver).unwrap().verdict.expect("a verdict");
    let log = bed.log(driver);
    assert!(log.contains(&verdict.message), "{driver}: the driver says it too: {verdict:?} {log}");
    verdict
}

fn assert_no_image(bed: &Bed, driver: &str, verdict: &Verdict) {
    assert_eq!(verdict.reason, "NoExecutorStarts", "{driver}: {verdict:?}");
    assert!(verdict.message.contains("6 attempts in a row"), "{driver}: {verdict:?}");
    assert!(verdict.message.contains("image") && verdict.message.contains(NO_IMAGE), "{driver}: {verdict:?}");
    assert_eq!(ledger(bed, driver).unwrap().failures.count, 0, "{driver}: not the application's fault");
}

/// A SparkApplication whose executor image cannot be pulled.
struct LookedAfter<'a> {
    bed: &'a Bed,
    name: String,
}

impl<'a> LookedAfter<'a> {
    fn start(bed: &'a Bed, version: &str) -> Self {
        crate::outside::set_up(bed);
        let name = format!("hopeless-{}", version.replace('.', "-"));
        let (allocator, value) = Way::Pods.allocator();
        let app = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": name},
            "spec": {
                "type": "Scala", "mode": "cluster", "sparkVersion": version, "image": format!("apache/spark:{version}"),
                "mainClass": PI, "mainApplicationFile": JAR, "restartPolicy": {"type": "Never"},
                "sparkConf": {allocator: value},
                "driver": {"coreRequest": "100m", "memory": "512m", "serviceAccount": ACCOUNT},
                "executor": {"instances": 2, "coreRequest": "100m", "memory": "512m", "image": NO_IMAGE, "serviceAccount": "default"},
            },
        });
        bed.create::<SparkApplication>(&serde_json::from_value(app).unwrap());
        LookedAfter { bed, name }
    }

    /// Its status has the exit code and the reason.
    fn end(&self) {
        let state = self.bed.until("the application to fail", || {
            let state = self.bed.get::<SparkApplication>(&self.name)?.status?.application_state;
            (state.state == "FAILED").then_some(state)
        });
        let driver = format!("{}-driver", self.name);
        let verdict = told(self.bed, &driver);
        assert_no_image(self.bed, &driver, &verdict);
        let words = &state.error_message;
        assert!(words.contains(&format!("ExitCode: {CODE}")), "{words}");
        assert!(words.contains(&verdict.message), "{words}\nlacks {}", verdict.message);
    }
}

impl Drop for LookedAfter<'_> {
    fn drop(&mut self) {
        self.bed.delete::<SparkApplication>(&self.name);
    }
}
