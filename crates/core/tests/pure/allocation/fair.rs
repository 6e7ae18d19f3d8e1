//! Sharing between applications.

use firesteel_core::allocation::size::{Amount, Size};
use firesteel_core::fair::{Asker, share, share_namespace};
use proptest::prelude::*;

#[test]
fn a_small_request_is_not_behind_a_large_one() {
    assert_eq!(share(&[1000, 3, 0, 5], 20, 0), [12, 3, 0, 5]);
    assert_eq!(share(&[5, 5, 5], 2, 2), [1, 0, 1]);
}

fn size(cores: u64, memory_mib: u64) -> Size {
    Size { cores, memory_mib, ..Size::default() }
}

fn asker(held: u64, asked: u32) -> Asker {
    let mut has = Amount::default();
    has.add(&size(1, 1), held);
    Asker { held: has, asked: vec![(size(1, 1), asked)] }
}

#[test]
fn room_in_a_namespace_goes_to_who_has_least() {
    let limit = Amount { executors: 100, cores: 1000, memory_mib: 1000 };
    let given = |askers: &[Asker]| share_namespace(&limit, Amount::default(), askers);
    assert_eq!(given(&[asker(80, 50), asker(0, 50)]), [[0], [20]]);
    assert_eq!(given(&[asker(0, 1000), asker(0, 1000), asker(0, 4)]), [[48], [48], [4]]);
    assert_eq!(given(&[asker(0, 30), asker(0, 30)]), [[30], [30]]);
    // The limit fits ten large executors by cores and a hundred by number: both applications get about nine tenths.
    let large = Asker { held: Amount::default(), asked: vec![(size(100, 1), 10)] };
    assert_eq!(given(&[large, asker(0, 100)]), [[9], [91]]);
}

proptest! {
    #[test]
    fn a_namespace_never_has_more_than_its_limit_and_nothing_that_fits_is_kept_back(
        limit in (1u64..60, 1u64..200, 1u64..400),
        askers in prop::collection::vec((0u64..20, prop::collection::vec((1u64..5, 1u64..9, 0u32..30), 0..3)), 0..6),
        others in 0u64..30,
    ) {
        let limit = Amount { executors: limit.0, cores: limit.1, memory_mib: limit.2 };
        let mut taken = Amount::default();
        taken.add(&size(1, 1), others);
        let askers: Vec<Asker> = askers.into_iter().map(|(held, asked)| Asker {
            held: asker(held, 0).held,
            asked: asked.into_iter().map(|(cores, memory, count)| (size(cores, memory), count)).collect(),
        }).collect();
        let before = askers.iter().fold(taken, |sum, asker| sum.plus(asker.held));
        let given = share_namespace(&limit, taken, &askers);
        let mut used = before;
        for (asker, given) in askers.iter().zip(&given) {
            for ((size, asked), given) in asker.asked.iter().zip(given) {
                prop_assert!(given <= asked);
                used.add(size, u64::from(*given));
            }
        }
        let most = |limit: u64, before: u64| limit.max(before);
        prop_assert!(used.executors <= most(limit.executors, before.executors));
        prop_assert!(used.cores <= most(limit.cores, before.cores));
        prop_assert!(used.memory_mib <= most(limit.memory_mib, before.memory_mib));
        for (asker, given) in askers.iter().zip(&given) {
            for ((size, asked), given) in asker.asked.iter().zip(given) {
                prop_assert!(given == asked || limit.minus(used).fits(size) == 0);
            }
        }
    }

    #[test]
    fn everything_is_given_and_nobody_starves(
        asked in prop::collection::vec(0u32..50, 0..20), slots in 0u32..300, first in 0usize..40
    ) {
        let given = share(&asked, slots, first);
        let wanted: u32 = asked.iter().sum();
        prop_assert_eq!(given.iter().sum::<u32>(), slots.min(wanted));
        let hungry = asked.iter().filter(|n| **n > 0).count() as u32;
        for (asked, given) in asked.iter().zip(&given) {
            prop_assert!(given <= asked);
            if let Some(share) = slots.checked_div(hungry) {
                prop_assert!(*given >= (*asked).min(share));
            }
        }
    }
}
