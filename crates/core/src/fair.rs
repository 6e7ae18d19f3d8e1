//! Sharing between applications: slots for starting executors, and the limit of a namespace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::allocation::size::{Amount, Size};

/// Shares `slots` round-robin, so that a small request never waits behind a large one. Returns each asker's slots, in the
/// same order. Rounds begin at `first`, which the caller advances, so that a remainder does not always go to the same asker.
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

/// An application that asks for executors in a namespace with a limit.
#[derive(Debug, Clone, Default)]
pub struct Asker {
    /// What it has.
    pub held: Amount,
    /// What it asks for in addition: how many of each size, in this order.
    pub asked: Vec<(Size, u32)>,
}

/// Shares the rest of a namespace's limit by dominant resource fairness: each next executor goes to the asker with the
/// smallest dominant share (the largest of its shares in executors, cores and memory). `others` is held by applications that
/// do not ask. Returns how many of each size every asker gets, in the same order.
pub fn share_namespace(limit: &Amount, others: Amount, askers: &[Asker]) -> Vec<Vec<u32>> {
    let mut used = askers.iter().fold(others, |sum, asker| sum.plus(asker.held));
    let mut given: Vec<Vec<u32>> = askers.iter().map(|asker| vec![0; asker.asked.len()]).collect();
    let mut held: Vec<Amount> = askers.iter().map(|asker| asker.held).collect();
    // The smallest share first; ties go to the first in the list.
    let mut turns: BinaryHeap<Reverse<(u64, usize, usize)>> =
        (0..askers.len()).map(|index| Reverse((largest_share(&held[index], limit), index, 0))).collect();
    while let Some(Reverse((_, index, place))) = turns.pop() {
        let Some((size, asked)) = askers[index].asked.get(place) else { continue };
        if given[index][place] == *asked || limit.minus(used).fits(size) == 0 {
            turns.push(Reverse((largest_share(&held[index], limit), index, place + 1)));
            continue;
        }
        given[index][place] += 1;
        held[index].add(size, 1);
        used.add(size, 1);
        turns.push(Reverse((largest_share(&held[index], limit), index, place)));
    }
    given
}

/// The largest of an application's shares, in millionths of the limit.
fn largest_share(held: &Amount, limit: &Amount) -> u64 {
    let share = |held: u64, limit: u64| {
        let millionths = u128::from(held) * 1_000_000 / u128::from(limit.max(1));
        u64::try_from(millionths).unwrap_or(u64::MAX)
    };
    let parts = [(held.executors, limit.executors), (held.cores, limit.cores), (held.memory_mib, limit.memory_mib)];
    parts.into_iter().map(|(held, limit)| share(held, limit)).max().unwrap_or_default()
}
