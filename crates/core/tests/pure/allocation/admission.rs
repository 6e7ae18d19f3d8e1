//! Which of two drivers takes precedence.

use firesteel_core::grant::admission::{Apart, LiveDriver, Neighbour, first, refusal};
use k8s_openapi::jiff::Timestamp;

fn driver(second: i64, name: &str) -> LiveDriver {
    LiveDriver { created: Timestamp::from_second(second).ok(), uid: format!("u-{name}"), name: name.to_owned() }
}

#[test]
fn of_drivers_that_come_together_exactly_one_is_first_and_who_was_accepted_stays_first() {
    let (old, new) = (driver(1, "old"), driver(2, "new"));
    let beside = |driver: &LiveDriver, accepted| vec![Neighbour { driver: driver.clone(), accepted }];
    assert_eq!(first(&new, &beside(&old, false)), Some(&old));
    assert_eq!(first(&old, &beside(&new, false)), None);
    assert_eq!(first(&old, &beside(&new, true)), Some(&new));
    // In the same second, the uid decides.
    let (one, two) = (driver(1, "one"), driver(1, "two"));
    let (beside_one, beside_two) = (beside(&two, false), beside(&one, false));
    let firsts = [first(&one, &beside_one), first(&two, &beside_two)];
    assert_eq!(firsts.into_iter().flatten().count(), 1);
}

#[test]
fn what_is_not_known_to_be_kept_apart_is_refused_with_the_command_that_changes_it() {
    assert_eq!(refusal("spark", &driver(1, "old"), &Apart::Yes), None);
    for apart in [Apart::No, Apart::Unknown("forbidden".to_owned())] {
        let words = refusal("spark", &driver(1, "old"), &apart).unwrap();
        assert!(words.contains("`firesteel crds | kubectl apply --server-side -f -`"), "{words}");
        assert!(words.contains("driver old") && words.contains("account, spark,"), "{words}");
    }
}
