//! Ids derived from (application uid, attempt), so that every derivation gives the same result.

use firesteel_api::SparkApplicationSpec;
use firesteel_api::defaults::canonical;
use firesteel_spark::Ids;
use sha2::{Digest, Sha256, Sha512};
use uuid::Uuid;

use crate::grant::live;

/// The UUID namespace of submission ids.
const SUBMISSIONS: Uuid = Uuid::from_u128(0x6f0f_5a4b_8c11_5d3e_9a57_0f3c_f1e5_7ee1);

/// The id of one submission, also used as a label of its pods.
pub fn submission_id(uid: &str, attempt: i64) -> String {
    Uuid::new_v5(&SUBMISSIONS, format!("{uid}/{attempt}").as_bytes()).to_string()
}

/// How many attempts [`attempt_of`] tries: a fraction of a second.
const SEARCHED_ATTEMPTS: usize = 100_000;

/// The attempt, at least `at_least`, that a submission id of this application belongs to.
pub fn attempt_of(uid: &str, id: &str, at_least: i64) -> Option<i64> {
    // The existing operator's ids are random.
    let id = Uuid::parse_str(id).ok().filter(|id| id.get_version_num() == 5)?;
    let mut numbers = (at_least.max(1)..).take(SEARCHED_ATTEMPTS);
    numbers.find(|number| Uuid::new_v5(&SUBMISSIONS, format!("{uid}/{number}").as_bytes()) == id)
}

/// The unique parts of the names of one attempt's objects. `created_ms` is when the application was created.
pub fn ids(uid: &str, attempt: i64, created_ms: u64) -> Ids {
    let bytes: [u8; 64] = Sha512::digest(format!("firesteel/{uid}/{attempt}").as_bytes()).into();
    Ids::from_bytes(&bytes, created_ms)
}

/// A short hash of everything in a specification whose edit needs another run.
pub fn fingerprint(spec: &SparkApplicationSpec, partial_restart: bool) -> String {
    digest(&canonical(&live::without(spec, partial_restart)))
}

/// The same of everything that affects a run.
pub fn whole_fingerprint(spec: &SparkApplicationSpec) -> String {
    digest(&canonical(spec))
}

/// A short hash of a value.
pub fn digest(value: &serde_json::Value) -> String {
    let hash = Sha256::digest(value.to_string().as_bytes());
    hash.iter().take(10).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A name of at most `max` characters: longer ones are cut and end in a hash of the whole name.
pub fn bounded_name(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    let hash = hash.iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let kept: String = name.chars().take(max - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_uid_and_attempt_alone() {
        assert_eq!(submission_id("u", 1), submission_id("u", 1));
        assert_ne!(submission_id("u", 1), submission_id("u", 2));
        assert_ne!(submission_id("u", 1), submission_id("v", 1));
        assert_eq!(ids("u", 1, 5), ids("u", 1, 5));
        assert_ne!(ids("u", 1, 5).app_id, ids("u", 2, 5).app_id);
    }

    #[test]
    fn the_attempt_can_be_read_back_from_the_id() {
        assert_eq!(attempt_of("u", &submission_id("u", 1), 0), Some(1));
        assert_eq!(attempt_of("u", &submission_id("u", 4711), 12), Some(4711));
        assert_eq!(attempt_of("v", &submission_id("u", 1), 0), None, "of another application");
        assert_eq!(attempt_of("u", &Uuid::from_u128(7).to_string(), 0), None, "of another operator");
        assert_eq!(attempt_of("u", "", 0), None);
    }

    #[test]
    fn d23_long_names_are_cut_and_stay_distinct() {
        let name = |c: char| format!("{}{c}-driver-8080", "a".repeat(60));
        assert_eq!(bounded_name("short", 63), "short");
        assert_eq!(bounded_name(&name('x'), 63).len(), 63);
        assert_ne!(bounded_name(&name('x'), 63), bounded_name(&name('y'), 63));
    }
}
