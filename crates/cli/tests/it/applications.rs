//! Applications with real Spark and the real operator, as processes: all cases on the local cluster, and the first five plus
//! three with executors outside the driver and a Connect server on a real control plane with our agent as its node (ignored by
//! default; `tests/real` runs them).
//!
//! One cluster serves all cases; each case is a function that panics on failure. `FIRESTEEL_CASES=page` runs only cases whose
//! name contains `page`.

mod bed;
mod cases;
mod fields;

use std::rc::Rc;
use std::time::Instant;

use futures::StreamExt;
use futures::future::LocalBoxFuture;

use self::bed::Bed;

/// Concurrent cases: each runs at least one JVM.
const AT_ONCE: usize = 3;

type Case = (&'static str, fn(Rc<Bed>) -> LocalBoxFuture<'static, ()>);

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        [$((stringify!($name), (|bed| Box::pin(async move { cases::$name(&bed).await })) as fn(Rc<Bed>) -> LocalBoxFuture<'static, ()>)),+]
    };
}

fn first_five() -> Vec<Case> {
    cases![
        success,
        failing_driver_with_retries,
        failing_submission_with_retries,
        suspend_and_resume,
        driver_pod_deleted_by_hand,
    ]
    .to_vec()
}

fn others() -> Vec<Case> {
    cases![
        bad_image,
        account_without_rights,
        edit_while_running,
        same_manifest_applied_again,
        delete_while_running,
        time_to_live,
        sidecar_and_each_kind_of_volume,
        volume_that_the_node_cannot_mount,
        page_answers_on_its_services_name,
        every_field_shows_in_real_executors,
    ]
    .to_vec()
}

/// Runs cases concurrently and prints each result.
async fn run(bed: &Rc<Bed>, cases: Vec<Case>) {
    let only = std::env::var("FIRESTEEL_CASES").unwrap_or_default();
    let running = cases.into_iter().filter(|(name, _)| name.contains(&only)).map(|(name, case)| {
        let bed = bed.clone();
        async move {
            let began = Instant::now();
            let outcome = tokio::task::spawn_local(case(bed)).await;
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            eprintln!("case {name} ... {word} ({:.0} s)", began.elapsed().as_secs_f32());
            outcome.err().map(|_| name)
        }
    });
    let failed: Vec<_> =
        futures::stream::iter(running).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    if !failed.is_empty() {
        eprintln!("{}", bed.operator_log());
    }
    assert!(failed.is_empty(), "these cases failed: {failed:?}");
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn applications_on_the_local_cluster() {
    block_on(async {
        let Some(bed) = Bed::local().await else { return };
        let bed = Rc::new(bed);
        run(&bed, first_five().into_iter().chain(others()).collect()).await;
        run(&bed, cases![node_agent_killed].to_vec()).await;
    });
}

#[test]
#[ignore = "tests/real: needs root, Spark and minutes"]
fn spark_applications_on_a_real_control_plane() {
    block_on(async {
        let Some(bed) = Bed::real().await else { return };
        let bed = Rc::new(bed);
        run(&bed, first_five()).await;
        let outside = cases![
            executors_outside_and_one_killed,
            executors_in_a_replica_set_and_one_killed,
            executors_in_a_stateful_set_and_one_killed,
        ];
        run(&bed, outside.to_vec()).await;
        run(&bed, cases![connect_client_runs_queries_over_a_rollout].to_vec()).await;
    });
}
