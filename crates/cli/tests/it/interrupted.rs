//! Submissions killed or interrupted between any two writes.
//!
//! `FIRESTEEL_FAULT` exists only in debug builds, so these tests need one.

use kube::ResourceExt as _;

use crate::place::{NO_WAIT, NOWHERE, Place, gates};
use crate::program::Run as _;

/// The writes of a submission: pod, service, ConfigMap and lifting the gate.
const WRITES: u32 = 4;

#[tokio::test]
async fn killed_after_any_write_leaves_at_most_one_gated_pod_that_kill_removes() {
    for last in 1..=WRITES {
        let Some(place) = Place::new("killed").await else { return };
        let fault = format!("exit-after-write:{last}");
        let ran = place.submission(&[NO_WAIT, NOWHERE]).env("FIRESTEEL_FAULT", fault).run();
        assert_eq!(ran.code, None, "it should have been killed after write {last}: {ran:?}");

        let contents = place.contents().await;
        assert_eq!(contents.iter().filter(|name| name.starts_with("pod/")).count(), 1, "{contents:?}");
        let pod = place.the_pod().await;
        let expected: &[&str] = if last < WRITES { &["firesteel.dev/objects"] } else { &[] };
        assert_eq!(gates(&pod), expected, "after write {last}");

        let id = format!("{}:{}", place.name(), pod.name_any());
        let killed = place.control("--kill", &id);
        assert_eq!(killed.code, Some(0), "{killed:?}");
        place.empties().await;
    }
}

#[tokio::test]
async fn interrupted_while_creating_leaves_nothing() {
    let Some(place) = Place::new("ctrlc").await else { return };
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("FIRESTEEL_FAULT", "interrupt-after-write:1").run();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(ran.refusal(), "firesteel: interrupted before the driver was created; nothing was left behind");
    place.empties().await;
}

#[tokio::test]
async fn panic_is_one_sentence_and_an_exit_code_of_its_own() {
    let Some(place) = Place::new("panic").await else { return };
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("FIRESTEEL_FAULT", "panic-after-write:1").run();
    assert_eq!(ran.code, Some(70), "{ran:?}");
    assert!(ran.refusal().starts_with("firesteel: internal error: a test asked for this ("), "{ran:?}");
}
