//! Names of runs: `<schedule>-<timestamp>`, as the existing operator has them.
//!
//! A name derives from the schedule's uid and the instant the run is due (or the request to run now), so an operator that
//! died after creating a run finds it again. It is a DNS label of at most 63 characters whatever the schedule is called, as
//! a SparkApplication's name must be.

use std::str::FromStr;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// The longest name of a SparkApplication.
const LONGEST: usize = 63;

/// The unit of the timestamp in a run's name (`--scheduled-spark-application-timestamp-precision`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    #[default]
    Nanos,
    Micros,
    Millis,
    Seconds,
    Minutes,
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "nanos" => Precision::Nanos,
            "micros" => Precision::Micros,
            "millis" => Precision::Millis,
            "seconds" => Precision::Seconds,
            "minutes" => Precision::Minutes,
            _ => return Err(format!("`{text}` is not one of nanos, micros, millis, seconds, minutes")),
        })
    }
}

/// The name of the run that is due at an instant. Instants are whole seconds; digits below the second are derived from the
/// uid, so that a schedule deleted and created again does not meet the runs of its predecessor.
pub(super) fn at(schedule: &str, uid: &str, instant: Timestamp, precision: Precision) -> String {
    let second = instant.as_second();
    let seed = format!("{uid}/{second}");
    let within = |units: i128| (i128::from(second) * units + below(&seed, units)).to_string();
    let suffix = match precision {
        Precision::Nanos => within(1_000_000_000),
        Precision::Micros => within(1_000_000),
        Precision::Millis => within(1_000),
        Precision::Seconds => second.to_string(),
        Precision::Minutes if second.rem_euclid(60) == 0 => (second / 60).to_string(),
        // Several runs within a minute.
        Precision::Minutes => format!("{}-{}", second.div_euclid(60), hash(&seed, 4)),
    };
    named(schedule, &suffix)
}

/// The name to use if something else has the name of [`at`].
pub(super) fn apart(schedule: &str, uid: &str, instant: Timestamp) -> String {
    let second = instant.as_second();
    named(schedule, &format!("{second}-{}", hash(&format!("{uid}/{second}"), 4)))
}

/// The name of a run that was asked for by hand. `last` is the name of the run before it.
pub(super) fn by_hand(schedule: &str, uid: &str, request: &str, last: &str) -> String {
    named(schedule, &format!("by-hand-{}", hash(&format!("{uid}/{last}/{request}"), 5)))
}

fn named(schedule: &str, suffix: &str) -> String {
    let room = LONGEST - suffix.len() - 1;
    let is_label = schedule.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && schedule.starts_with(|c: char| c.is_ascii_lowercase());
    if is_label && schedule.len() <= room {
        return format!("{schedule}-{suffix}");
    }
    let hash = hash(schedule, 4);
    let plain = schedule.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' });
    let first = if schedule.starts_with(|c: char| c.is_ascii_lowercase()) { "" } else { "s-" };
    let stem: String = first.chars().chain(plain).take(room - hash.len() - 1).collect();
    format!("{}-{hash}-{suffix}", stem.trim_end_matches('-'))
}

/// A number below `limit` that depends on the text alone.
fn below(text: &str, limit: i128) -> i128 {
    let bytes: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    bytes.iter().take(15).fold(0, |number, byte| number * 256 + i128::from(*byte)).rem_euclid(limit)
}

fn hash(text: &str, bytes: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(bytes).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn names_have_the_timestamp_in_the_chosen_unit() {
        let name = |precision: &str| at("pi", "u", instant(1_790_000_040), precision.parse().unwrap());
        assert!(name("nanos").starts_with("pi-1790000040") && name("nanos").len() == "pi-".len() + 19);
        assert!(name("micros").starts_with("pi-1790000040") && name("micros").len() == "pi-".len() + 16);
        assert!(name("millis").starts_with("pi-1790000040") && name("millis").len() == "pi-".len() + 13);
        assert_eq!(name("seconds"), "pi-1790000040");
        assert_eq!(name("minutes"), "pi-29833334");
        assert!("hours".parse::<Precision>().unwrap_err().contains("nanos, micros, millis, seconds, minutes"));
    }

    #[test]
    fn every_run_has_a_name_of_its_own() {
        for precision in
            [Precision::Nanos, Precision::Micros, Precision::Millis, Precision::Seconds, Precision::Minutes]
        {
            let mut seen = std::collections::BTreeSet::new();
            for second in 1_790_000_000..1_790_000_300 {
                assert!(seen.insert(at("pi", "u", instant(second), precision)), "{precision:?} {second}");
                assert!(seen.insert(apart("pi", "u", instant(second))) || precision == Precision::Minutes);
            }
            let again = (1_790_000_000..1_790_000_300).map(|second| at("pi", "u", instant(second), precision));
            assert!(again.into_iter().all(|name| seen.contains(&name)), "derived anew, a name is the same");
        }
        assert_ne!(
            at("pi", "u", instant(0), Precision::Nanos),
            at("pi", "v", instant(0), Precision::Nanos),
            "a schedule created again"
        );
        assert_ne!(by_hand("pi", "u", "now", "pi-1"), by_hand("pi", "u", "now", "pi-2"), "asked for again");
    }

    #[test]
    fn names_of_runs_are_labels_whatever_the_schedule_is_called() {
        let long = "a".repeat(253);
        let similar = format!("{}b", "a".repeat(252));
        for schedule in [long.as_str(), similar.as_str(), "a.b", "a-b", "1st", "a", &"x".repeat(60)] {
            let names = [
                at(schedule, "u", instant(1_790_000_001), Precision::Nanos),
                at(schedule, "u", instant(1_790_000_001), Precision::Minutes),
                apart(schedule, "u", instant(1_790_000_001)),
                by_hand(schedule, "u", "now", ""),
            ];
            for name in names {
                assert!(name.len() <= LONGEST, "{name}");
                assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
                assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{name}");
                assert!(!name.contains("--"), "{name}");
            }
        }
        let name = |schedule: &str| at(schedule, "u", instant(5), Precision::Seconds);
        assert_ne!(name("a.b"), name("a-b"));
        assert_ne!(name(&long), name(&similar));
    }
}
