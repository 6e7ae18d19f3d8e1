//! Inputs that a plan depends on but cannot compute: the user, the time, the environment and random ids.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use firesteel_spark::context::submitting_user;
use firesteel_spark::{Files, Ids, PlanContext, Templates};
use rand::RngCore as _;

/// Collects them.
pub(crate) fn look(files: &dyn Files) -> PlanContext<'_> {
    let env = environment();
    PlanContext { ids: ids(now()), user: submitting_user(&env, login), env, files, templates: Templates::default() }
}

/// The environment variables that are valid UTF-8.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Milliseconds since the epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn ids(now: u64) -> Ids {
    let mut bytes = [0; 64];
    rand::rng().fill_bytes(&mut bytes);
    Ids::from_bytes(&bytes, now)
}

/// A random secret.
pub(crate) fn secret() -> String {
    let mut bytes = [0; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The name of the user who runs this process.
fn login() -> String {
    let id = nix::unistd::geteuid();
    nix::unistd::User::from_uid(id).ok().flatten().map_or_else(|| id.to_string(), |user| user.name)
}
