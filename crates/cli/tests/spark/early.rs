//! Executors created together with their driver, for programs that change their mind about them before they create their
//! context: what was withdrawn, that Spark met only those it asked for, and that results are right.

use crate::bed::{Bed, SHORT_LIVED};
use crate::cases::{Case, case, registered};
use crate::cluster::said;
use crate::outside::{Way, assert_no_refusals, ledger, nothing_is_left, submit_script};

pub(crate) const CASES: [Case; 7] = [
    case("early_executors_of_a_program_that_wants_fewer", |bed, version| {
        changes(bed, version, Way::Pods, &["spark.executor.instances=1"], 1, 1);
    }),
    case("early_executors_of_a_program_with_other_memory", |bed, version| {
        changes(bed, version, Way::Pods, &["spark.executor.memory=600m"], 2, 2);
    }),
    case("early_executors_of_a_program_with_other_java_options", |bed, version| {
        let options = format!("spark.executor.extraJavaOptions={SHORT_LIVED} -Dmind=changed");
        changes(bed, version, Way::ReplicaSet, &[&options], 2, 2);
    }),
    case("early_executors_of_a_program_that_wants_fewer_of_a_set", |bed, version| {
        changes(bed, version, Way::StatefulSet, &["spark.executor.instances=1"], 1, 1);
    })
    .rare(),
    case("early_executors_of_a_program_with_other_cores", |bed, version| {
        changes(bed, version, Way::Pods, &["spark.executor.cores=2"], 2, 2);
    })
    .rare(),
    case("early_executors_of_a_program_with_another_environment", |bed, version| {
        changes(bed, version, Way::StatefulSet, &["spark.executorEnv.MIND=changed"], 2, 2);
    })
    .rare(),
    case("early_executors_of_a_program_that_authenticates_by_itself", authenticates).rare(),
];

/// A program with two executors that sets something: how many of the early ones are withdrawn, and how many register.
fn changes(bed: &Bed, version: &str, way: Way, settings: &[&str], withdrawn: u32, registering: usize) {
    let script = ("mind.py", include_str!("mind.py"));
    // What the program may ask for beyond the default profile's size.
    let room = [("spark.firesteel.executors.maxMemory", "4g"), ("spark.firesteel.executors.maxCores", "8")];
    let conf = [&[way.allocator()][..], &room[..]].concat();
    let said = said(submit_script(bed, version, "mind", script, &conf, settings));
    let log = bed.log("mind");
    assert_eq!(said.code, 0, "{}\n{log}", said.err);
    assert!(log.contains("the sum is 332833500"), "{log}");
    assert_eq!(registered(&log), registering, "{log}");
    assert_no_refusals(&log);
    let ledger = ledger(bed, "mind").unwrap();
    let early = ledger.early.expect("executors were created early");
    assert_eq!((early.withdrawn, ledger.counts.lost, early.closed), (withdrawn, 0, None), "{log}");
    nothing_is_left(bed);
}

/// The secret must be known at submission: the driver says so and ends, and its executors with it.
fn authenticates(bed: &Bed, version: &str) {
    let script = ("mind.py", include_str!("mind.py"));
    let said = said(submit_script(bed, version, "mind", script, &[], &["spark.authenticate=true"]));
    assert_ne!(said.code, 0);
    assert!(bed.log("mind").contains("Set it when the application is submitted"), "{}", bed.log("mind"));
    nothing_is_left(bed);
}
