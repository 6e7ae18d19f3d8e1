//! What the operator counts.

use kube::api::DeleteParams;
use serde_json::json;

use crate::fixture::{Fixture, block_on};

#[test]
fn executors_whose_pods_vanish_keep_their_last_phase_and_are_not_live() {
    block_on(async {
        let Some(f) = Fixture::tuned("vanish", |options| options.limits.tracked_executors = 4).await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait_state("pi", "RUNNING").await;
        let row = |app: &firesteel_api::SparkApplication, id: u32| {
            let table = &app.status.as_ref().unwrap().executor_state;
            table.get(&format!("pi-exec-{id}")).cloned().unwrap_or_default()
        };
        for id in 1..=8 {
            f.executor(&app, id, "Running").await;
        }
        f.wait("pi", "running on eight", |app| {
            app.status.as_ref().unwrap().executor_counts.as_ref().is_some_and(|counts| counts.running == 8)
        })
        .await;
        // They end and are deleted at once: a pass may see none of it.
        let at_once = DeleteParams::default().grace_period(0);
        f.executor(&app, 8, "Succeeded").await;
        f.pods.delete("pi-exec-8", &at_once).await.unwrap();
        f.executor(&app, 7, "Failed").await;
        f.pods.delete("pi-exec-7", &at_once).await.unwrap();
        for id in 3..=6 {
            f.pods.delete(&format!("pi-exec-{id}"), &at_once).await.unwrap();
        }
        let app = f
            .wait("pi", "told of all that went", |app| {
                let counts = app.status.as_ref().unwrap().executor_counts.clone().unwrap_or_default();
                (counts.running, counts.completed, counts.failed, counts.unknown) == (2, 1, 1, 4)
            })
            .await;
        assert_eq!((row(&app, 1), row(&app, 2)), ("RUNNING".to_owned(), "RUNNING".to_owned()), "live ones come first");
        assert_eq!((row(&app, 8), row(&app, 7)), ("COMPLETED".to_owned(), "FAILED".to_owned()));
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        assert_eq!(app.status.unwrap().executor_counts.unwrap().completed, 5, "the rest ended with the application");
    });
}
