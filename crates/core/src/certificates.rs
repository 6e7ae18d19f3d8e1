//! When the certificates of the webhook are renewed, and when a new one may be served. A pure function of the certificates and
//! the time.
//!
//! A server certificate is renewed before it expires, by the same authority as long as that one outlives the new certificate;
//! otherwise together with a new authority. Authorities stay in the bundle until they expire, so whatever a replica still
//! serves is trusted. A replica serves a certificate of a new authority only after API servers had time to learn of it.

use jiff::{SignedDuration, Timestamp};

/// The longest time that API servers get to learn of a new bundle.
const LONGEST_SETTLING: SignedDuration = SignedDuration::from_secs(30);
/// The part of the renewal period that they get at most.
const SETTLING_SHARE: i32 = 4;

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Validity {
    pub fn covers(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// The authority that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority {
    pub validity: Validity,
    /// Whether its key is there and can be used.
    pub can_sign: bool,
}

/// The server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    pub validity: Validity,
    /// Whether it has the names that API servers call.
    pub is_for_us: bool,
    /// Whether the authority issued it, and its key belongs to it.
    pub is_sound: bool,
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    pub authority: Option<Authority>,
    pub server: Option<Server>,
}

/// How long certificates are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub server: SignedDuration,
    pub renew_before: SignedDuration,
    pub authority: SignedDuration,
}

/// What to do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then.
    Keep { until: Timestamp },
    /// A new server certificate by the same authority.
    IssueServer { why: &'static str },
    /// A new authority, and a server certificate by it.
    Renew { why: &'static str },
}

/// Decides what to do.
pub fn step(stored: &Stored, policy: &Policy, now: Timestamp) -> Step {
    let Some(authority) = stored.authority else { return Step::Renew { why: "there is no authority" } };
    if !authority.validity.covers(now) {
        return Step::Renew { why: "the authority is not valid now" };
    }
    let why = match &stored.server {
        None => "there is no server certificate",
        Some(server) if !server.is_sound => "certificate, key and authority do not belong together",
        Some(server) if !server.is_for_us => "it is for other names",
        Some(server) if !server.validity.covers(now) => "it is not valid now",
        Some(server) => {
            let due = earlier(server.validity.until, policy.renew_before);
            if now < due {
                return Step::Keep { until: due };
            }
            "it expires soon"
        }
    };
    // Otherwise the new certificate would expire with its authority.
    let outlives = authority.validity.until.duration_since(now) >= policy.server;
    if authority.can_sign && outlives { Step::IssueServer { why } } else { Step::Renew { why } }
}

/// How long API servers get to learn of a new authority before it is used.
pub fn settling(policy: &Policy) -> SignedDuration {
    LONGEST_SETTLING.min(policy.renew_before / SETTLING_SHARE)
}

/// Whether a replica may serve a new certificate. `trusted_since` says since when the bundle has its authority; `serving` is the
/// certificate that is served now.
pub fn may_serve(
    trusted_since: Option<Timestamp>,
    serving: Option<&Validity>,
    policy: &Policy,
    now: Timestamp,
) -> bool {
    let Some(serving) = serving else { return true };
    // Better a certificate that may not be trusted yet than one that certainly is not.
    let expires = now >= earlier(serving.until, settling(policy));
    expires || trusted_since.is_some_and(|since| now.duration_since(since) >= settling(policy))
}

fn earlier(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(hours * HOUR)
    }

    fn policy() -> Policy {
        let hours = |n: i64| SignedDuration::from_secs(n * HOUR);
        Policy { server: hours(90), renew_before: hours(30), authority: hours(1000) }
    }

    fn stored(authority: (i64, i64), server: (i64, i64)) -> Stored {
        let validity = |(from, until)| Validity { from: at(from), until: at(until) };
        Stored {
            authority: Some(Authority { validity: validity(authority), can_sign: true }),
            server: Some(Server { validity: validity(server), is_for_us: true, is_sound: true }),
        }
    }

    #[test]
    fn certificates_are_renewed_in_time_and_not_before() {
        let good = stored((0, 1000), (0, 90));
        assert_eq!(step(&good, &policy(), at(1)), Step::Keep { until: at(60) });
        assert_eq!(step(&good, &policy(), at(59)), Step::Keep { until: at(60) });
        assert_eq!(step(&good, &policy(), at(60)), Step::IssueServer { why: "it expires soon" });
        assert_eq!(step(&good, &policy(), at(91)), Step::IssueServer { why: "it is not valid now" });
    }

    #[test]
    fn an_authority_is_renewed_when_it_would_not_outlive_what_it_issues() {
        assert!(matches!(step(&stored((0, 150), (0, 90)), &policy(), at(60)), Step::IssueServer { .. }));
        assert!(matches!(step(&stored((0, 149), (0, 90)), &policy(), at(60)), Step::Renew { .. }));
        assert!(matches!(step(&stored((0, 50), (0, 90)), &policy(), at(50)), Step::Renew { .. }), "it has expired");
        let mut locked = stored((0, 1000), (0, 90));
        locked.authority.as_mut().unwrap().can_sign = false;
        assert_eq!(step(&locked, &policy(), at(1)), Step::Keep { until: at(60) }, "what there is can be served");
        assert!(matches!(step(&locked, &policy(), at(60)), Step::Renew { .. }));
    }

    #[test]
    fn what_is_missing_or_wrong_is_replaced_at_once() {
        let renewed = |change: fn(&mut Stored)| {
            let mut stored = stored((0, 1000), (0, 90));
            change(&mut stored);
            step(&stored, &policy(), at(1))
        };
        assert_eq!(step(&Stored::default(), &policy(), at(1)), Step::Renew { why: "there is no authority" });
        assert!(matches!(renewed(|s| s.server = None), Step::IssueServer { .. }));
        assert!(matches!(renewed(|s| s.server.as_mut().unwrap().is_sound = false), Step::IssueServer { .. }));
        assert!(matches!(renewed(|s| s.server.as_mut().unwrap().is_for_us = false), Step::IssueServer { .. }));
        assert!(matches!(renewed(|s| s.server.as_mut().unwrap().validity.from = at(2)), Step::IssueServer { .. }));
        assert!(matches!(renewed(|s| s.authority.as_mut().unwrap().validity.from = at(2)), Step::Renew { .. }));
    }

    #[test]
    fn a_certificate_waits_until_its_authority_is_known() {
        let serving = Validity { from: at(0), until: at(90) };
        let ask = |since: Option<Timestamp>, now: Timestamp| may_serve(since, Some(&serving), &policy(), now);
        assert!(may_serve(None, None, &policy(), at(0)), "nothing else is there to serve");
        assert!(!ask(None, at(60)));
        assert!(!ask(Some(at(60)), at(60) + SignedDuration::from_secs(29)));
        assert!(ask(Some(at(60)), at(60) + SignedDuration::from_secs(30)));
        assert!(ask(None, at(90)), "an expired certificate is worse");
        let quick = Policy { renew_before: SignedDuration::from_secs(4), ..policy() };
        assert_eq!(settling(&quick), SignedDuration::from_secs(1));
        assert_eq!(settling(&policy()), LONGEST_SETTLING);
    }
}
