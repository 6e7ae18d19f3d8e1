//! Leader election: of several operators, one acts.

use std::time::Duration;

use firesteel_operator::{LabelNames, LeaderOptions, Listen, Options, ServeMetrics};
use firesteel_testenv::TestEnv;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;

use crate::counted::{free, scrape, wait_for_gauges};
use crate::fixture::{Fixture, PATIENCE, block_on, options, start_with};
use crate::killer::{self, Point};

fn candidate(namespace: &str, identity: &str) -> Options {
    Options {
        leader: Some(LeaderOptions {
            namespace: namespace.to_owned(),
            name: "lock".to_owned(),
            identity: identity.to_owned(),
            lease: Duration::from_secs(6),
            renew: Duration::from_secs(4),
            retry: Duration::from_millis(500),
        }),
        ..options(namespace)
    }
}

async fn holder(leases: &Api<Lease>) -> String {
    let lease = leases.get_opt("lock").await.unwrap();
    lease.and_then(|l| l.spec?.holder_identity).unwrap_or_default()
}

async fn wait_holder(leases: &Api<Lease>, name: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while holder(leases).await != name {
        assert!(tokio::time::Instant::now() < deadline, "{name} never held the lease");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_leader_that_ends_hands_over_at_once_and_one_that_dies_is_replaced() {
    block_on(async {
        let Some(mut f) = Fixture::new("leader").await else { return };
        f.stop_operator();
        let namespace = f.namespace.name().to_owned();
        let leases: Api<Lease> = Api::namespaced(f.client.clone(), &namespace);
        let first = start_with(f.client.clone(), candidate(&namespace, "first"));
        wait_holder(&leases, "first").await;
        // After a while the second one dies silently at its next write.
        let env = TestEnv::get().unwrap();
        let read = kube::config::Kubeconfig::read_from(env.kubeconfig()).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap();
        let (mortal, death) = killer::client(config, Point { write: usize::MAX, after: false });
        let _second = start_with(mortal, candidate(&namespace, "second"));
        f.create("pi", &json!({})).await;
        let pod = f.driver("pi", 1).await;

        let began = tokio::time::Instant::now();
        drop(first);
        wait_holder(&leases, "second").await;
        assert!(began.elapsed() < Duration::from_secs(5), "it waited for the lease to expire: {:?}", began.elapsed());
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;

        let _third = start_with(f.client.clone(), candidate(&namespace, "third"));
        death.token.cancel();
        wait_holder(&leases, "third").await;
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        assert_eq!(app.status.unwrap().execution_attempts, 1);
        assert_eq!(f.pods.get("pi-driver").await.unwrap().metadata.uid, pod.metadata.uid);
    });
}

#[test]
fn d22_a_new_leader_counts_nothing_again_and_its_gauges_are_right_at_once() {
    block_on(async {
        let Some(mut f) = Fixture::new("counting").await else { return };
        f.stop_operator();
        let namespace = f.namespace.name().to_owned();
        let leases: Api<Lease> = Api::namespaced(f.client.clone(), &namespace);
        let ports = [free(), free()];
        let start = |identity: &str, port: u16| {
            let mut options = candidate(&namespace, identity);
            options.metrics = Some(ServeMetrics::plain(Listen::At("127.0.0.1".to_owned(), port)));
            options.metrics_options.labels = LabelNames::new(["namespace"]).unwrap();
            start_with(f.client.clone(), options)
        };
        let first = start("first", ports[0]);
        wait_holder(&leases, "first").await;
        let _second = start("second", ports[1]);
        for name in ["ended", "running"] {
            f.create(name, &json!({})).await;
            f.driver(name, 1).await;
            f.run_driver(name).await;
            let app = f.wait_state(name, "RUNNING").await;
            f.executor(&app, 1, "Running").await;
        }
        f.executor(&f.apps.get("ended").await.unwrap(), 1, "Succeeded").await;
        f.end_driver("ended", 0).await;
        f.wait_state("ended", "COMPLETED").await;
        wait_for_gauges(ports[0], &namespace, 1, 1).await;
        let count = async |port: u16, name: &str| -> String {
            let text = scrape(port).await.unwrap();
            let start = format!("spark_{name}_count{{namespace=\"{namespace}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("none").to_owned()
        };
        for (name, by_leader) in [("application", "2"), ("application_submit", "2"), ("application_success", "1")] {
            assert_eq!(count(ports[0], name).await, by_leader, "{name}");
            assert_eq!(count(ports[1], name).await, "none", "{name} on standby");
        }
        assert!(scrape(ports[1]).await.unwrap().contains("leader_election_master_status{name=\"lock\"} 0\n"));

        drop(first);
        wait_holder(&leases, "second").await;
        wait_for_gauges(ports[1], &namespace, 1, 1).await;
        assert!(scrape(ports[1]).await.unwrap().contains("leader_election_master_status{name=\"lock\"} 1\n"));
        for name in ["application", "application_submit", "application_success", "executor_success"] {
            assert_eq!(count(ports[1], name).await, "0", "{name} was counted by the first leader");
        }
        f.end_driver("running", 0).await;
        f.wait_state("running", "COMPLETED").await;
        wait_for_gauges(ports[1], &namespace, 0, 1).await;
        assert_eq!(count(ports[1], "application_success").await, "1");
    });
}
