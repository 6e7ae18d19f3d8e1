//! An API server that refuses, loses answers, cuts watches short and goes away: the operator goes on and catches up.

use std::time::Duration;

use firesteel_testenv::TestEnv;
use serde_json::json;

use crate::fixture::{Fixture, block_on, install};
use crate::kubelet::{Drivers, first_fails, play};
use crate::proxy::Proxy;

const APPLICATIONS: usize = 6;

#[test]
fn an_operator_goes_on_whatever_its_api_server_does() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let proxy = Proxy::start(client, 20_261_115).await;
        let f = Fixture::with("faults", proxy.client()).await;
        let seen = Drivers::default();
        let kubelet = tokio::spawn(play(f.pods.clone(), first_fails, seen.clone()));
        let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1,
            "onSubmissionFailureRetries": 3, "onSubmissionFailureRetryInterval": 1});
        for i in 0..APPLICATIONS {
            f.create(&format!("app-{i}"), &json!({"restartPolicy": policy})).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.down_for(Duration::from_secs(4)).await;
        // Made while it was away, or while a watch was cut.
        f.create("late", &json!({"restartPolicy": policy})).await;
        proxy.down_for(Duration::from_secs(2)).await;
        let names: Vec<String> = (0..APPLICATIONS).map(|i| format!("app-{i}")).chain(["late".to_owned()]).collect();
        for name in &names {
            let app = f.wait_patiently(name, "COMPLETED", Duration::from_secs(180)).await;
            let status = app.status.unwrap();
            assert_eq!((status.execution_attempts, status.attempt), (2, Some(2)), "{name}");
        }
        kubelet.abort();
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 2 * names.len(), "{seen:?}");
        assert!(seen.values().all(|uids: &Vec<String>| uids.len() == 1), "one driver for each attempt: {seen:?}");
        let (refused, cut) = proxy.counts();
        assert!(refused > 20 && cut > 3, "there was trouble: {refused} refused, {cut} cut");
    });
}
