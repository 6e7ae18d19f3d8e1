//! Sharing what may be started now between applications.

/// Shares `slots` between askers: round by round one each, so that a small request is never behind a large one. Gives
/// what each gets, in the same order. Rounds begin at `first`, which the caller moves on, so that a remainder does not
/// always go to the same asker.
pub fn share(asked: &[u32], slots: u32, first: usize) -> Vec<u32> {
    let mut given = vec![0; asked.len()];
    let mut left = slots;
    let mut hungry: Vec<usize> = (0..asked.len()).filter(|i| asked[*i] > 0).collect();
    if !hungry.is_empty() {
        let turn = first % hungry.len();
        hungry.rotate_left(turn);
    }
    while left > 0 && !hungry.is_empty() {
        let each = (left / u32::try_from(hungry.len()).unwrap_or(u32::MAX)).max(1);
        for &index in &hungry {
            let more = each.min(asked[index] - given[index]).min(left);
            given[index] += more;
            left -= more;
        }
        hungry.retain(|i| given[*i] < asked[*i]);
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_request_is_not_behind_a_large_one() {
        assert_eq!(share(&[1000, 3, 0, 5], 20, 0), [12, 3, 0, 5]);
        assert_eq!(share(&[5, 5, 5], 2, 2), [1, 0, 1]);
    }

    proptest! {
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
}
