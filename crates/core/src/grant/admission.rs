//! Whether a grant can be accepted next to the drivers that exist.
//!
//! A driver may write the status of a grant, and RBAC identifies it only by its service account. So two drivers of one account
//! have to be isolated by the admission policy (`firesteel_api::policy`) or trust each other; otherwise one of them at a time
//! gets executors. An accepted grant stays accepted.

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

/// Whether drivers of one account are denied access to each other's grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Apart {
    /// By the admission policy.
    Yes,
    /// Nothing prevents it.
    No,
    /// It cannot be determined, and why.
    Unknown(String),
}

/// The neighbour that takes precedence over a driver: one whose grant was accepted, or else an older one. The order is total,
/// so drivers created at the same time agree on the first.
pub fn first<'a>(driver: &LiveDriver, neighbours: &'a [Neighbour]) -> Option<&'a LiveDriver> {
    let oldest = |comes: &dyn Fn(&Neighbour) -> bool| {
        neighbours.iter().filter(|other| comes(other)).map(|other| &other.driver).min()
    };
    oldest(&|other| other.accepted).or_else(|| oldest(&|other| other.driver < *driver))
}

/// Why a grant is not accepted next to a neighbour that takes precedence; `None` if it is.
pub fn refusal(account: &str, first: &LiveDriver, apart: &Apart) -> Option<String> {
    let doubt = match apart {
        Apart::Yes => return None,
        Apart::No => format!("the admission policy {} is not in force", policy::NAME),
        Apart::Unknown(why) => {
            format!("whether the admission policy {} is in force cannot be determined ({why})", policy::NAME)
        }
    };
    Some(format!(
        "driver {} runs under the same service account, {account}, and {doubt}, so either could take over the other's \
         executors; ask an administrator to run `{}`, use a separate service account for this driver, or wait until the other \
         driver has ended; if drivers trust each other, start the operator with --drivers-trust-each-other",
        first.name,
        policy::COMMAND
    ))
}
