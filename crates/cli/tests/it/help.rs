//! Help output.

use crate::program::{Run as _, firesteel};

#[test]
fn help_of_submit_lists_every_option() {
    let ran = firesteel(["submit", "--help"]).run();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn submit_without_arguments_is_a_failure_with_the_same_text() {
    let (asked, none) = (firesteel(["submit", "--help"]).run(), firesteel(["submit"]).run());
    assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""), "{none:?}");
    assert_eq!(none.stderr.trim_end(), asked.stdout.trim_end());
}

#[test]
fn help_lists_the_verbs() {
    let ran = firesteel(["--help"]).run();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    insta::assert_snapshot!(ran.stdout);
}
