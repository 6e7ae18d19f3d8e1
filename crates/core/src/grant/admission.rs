//! Whether a grant can be accepted beside the drivers that are there.
//!
//! A driver may write the status of a grant, and RBAC knows it by its service account only. So two drivers of one account have to
//! be kept apart by the admission policy (`firesteel_api::policy`), or trust each other; where neither holds, one of them at a
//! time gets executors. What was accepted once stays accepted.

use firesteel_api::policy;
use k8s_openapi::jiff::Timestamp;

/// A live driver, as far as admission depends on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveDriver {
    pub created: Option<Timestamp>,
    pub uid: String,
    pub name: String,
}

/// Another live driver with a grant, under the same service account in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    pub driver: LiveDriver,
    /// Its grant was accepted.
    pub accepted: bool,
}

/// Whether drivers of one account are kept from each other's grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apart {
    /// By the admission policy.
    Yes,
    /// Nothing does.
    No,
    /// It cannot be found out, and why.
    Unknown(String),
}

/// The neighbour that comes before a driver: one whose grant was accepted, or else one that is older. Of drivers that come at the
/// same time the same one is first, whoever asks.
pub fn first<'a>(driver: &LiveDriver, neighbours: &'a [Neighbour]) -> Option<&'a LiveDriver> {
    let oldest = |comes: &dyn Fn(&Neighbour) -> bool| {
        neighbours.iter().filter(|other| comes(other)).map(|other| &other.driver).min()
    };
    oldest(&|other| other.accepted).or_else(|| oldest(&|other| other.driver < *driver))
}

/// Why a grant is not accepted beside a neighbour that comes before it; `None` if it is.
pub fn refusal(account: &str, first: &LiveDriver, apart: &Apart) -> Option<String> {
    let doubt = match apart {
        Apart::Yes => return None,
        Apart::No => format!("the admission policy {} is not in force", policy::NAME),
        Apart::Unknown(why) => {
            format!("whether the admission policy {} is in force cannot be found out ({why})", policy::NAME)
        }
    };
    Some(format!(
        "driver {} runs under the same service account, {account}, and {doubt}, so that each of the two could take over the \
         other's executors; let an administrator run `{}`, use a service account of its own for this driver, or wait until the \
         other one has ended; if drivers trust each other, start the operator with --drivers-trust-each-other",
        first.name,
        policy::COMMAND
    ))
}
