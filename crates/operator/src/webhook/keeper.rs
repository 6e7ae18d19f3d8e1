//! Keeps the webhook's certificates and its configuration current.
//!
//! Every replica runs the same loop: it watches the Secret and the configuration, asks `firesteel_core::certificates` what to do,
//! and acts. A write names the version it was decided on, so one replica writes and the others read what it wrote. The order
//! is always: authority into the Secret, authority into the bundle, certificate to the server. What cannot be used is reported,
//! and the certificate that was served before stays.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use firesteel_core::certificates::{self, Policy, Step, Validity};
use firesteel_core::event_reason::webhook as reason;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::pki::{MANAGED, Material};
use super::{Served, configuration};
use crate::error::words;
use crate::events::{EventRecorder, Reporter};
use crate::fair_queue::FairQueue;
use crate::metrics::{Census, Metrics, Tally};
use crate::options::{Certificates, Options, WebhookOptions};
use crate::serve::Ready;
use crate::writes;

/// How soon to look again after a write that failed or came too late, and the longest that this grows to.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often files are read.
const FILES: Duration = Duration::from_secs(1);
/// The longest sleep. Timers do not notice when the clock is set or the machine was asleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);
/// The shortest wait, so that a setting of zero does not keep a processor busy.
const MINIMUM: Duration = Duration::from_millis(50);
/// Events are published one at a time.
const PUBLISHING: usize = 1;

type Watch<T> = BoxStream<'static, Result<Option<T>, watcher::Error>>;

/// What is known about an object that is watched.
#[derive(Debug)]
enum Seen<T> {
    NotYet,
    Is(Option<T>),
}

/// For the metrics: when the certificate that is served expires, and whether there is one that cannot be used.
#[derive(Debug, Default)]
struct Gauges {
    state: Mutex<(Option<Timestamp>, bool)>,
}

impl Census for Gauges {
    fn count(&self, tally: &mut Tally<'_>) {
        let (expires, unusable) = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        tally.certificate(expires.unwrap_or(Timestamp::UNIX_EPOCH), unusable);
    }
}

pub(super) struct Keeper {
    client: Client,
    options: WebhookOptions,
    namespaces: Vec<String>,
    selector: Option<String>,
    /// What API servers call the server.
    names: Vec<String>,
    secret: Seen<Secret>,
    configuration: Seen<ValidatingWebhookConfiguration>,
    /// What is served, and when it is valid.
    serving: Option<(Material, Validity)>,
    /// Since when API servers trust an authority.
    trusted: BTreeMap<String, Timestamp>,
    served: Arc<Served>,
    ready: Ready,
    events: EventRecorder,
    gauges: Arc<Gauges>,
    /// The last fault that was reported.
    reported: Option<String>,
    /// Whether the last attempt to write the configuration failed.
    complained: bool,
    failures: u32,
}

impl Keeper {
    pub(super) fn new(
        client: &Client,
        all: &Options,
        options: &WebhookOptions,
        served: Arc<Served>,
        metrics: &Metrics,
        ready: Ready,
    ) -> Result<Self, String> {
        let (namespaces, selector) = (all.namespaces.clone(), all.namespace_selector.clone());
        // Refuses a selector at startup rather than later.
        configuration::wanted(options, &namespaces, selector.as_deref(), None)?;
        let gauges = Arc::new(Gauges::default());
        let weak: Weak<Gauges> = Arc::downgrade(&gauges);
        metrics.follow(weak);
        Ok(Keeper {
            client: client.clone(),
            namespaces,
            selector,
            names: options.names(),
            secret: Seen::NotYet,
            configuration: Seen::NotYet,
            serving: None,
            trusted: BTreeMap::new(),
            served,
            ready,
            events: EventRecorder::start(client, &FairQueue::new(PUBLISHING)),
            gauges,
            reported: None,
            complained: false,
            failures: 0,
            options: options.clone(),
        })
    }

    /// Keeps everything current until the token is cancelled.
    pub(super) async fn keep(mut self, until: CancellationToken) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.options.secret.0);
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut secrets: Watch<Secret> = match self.options.certificates {
            Certificates::Files { .. } => futures::stream::pending().boxed(),
            Certificates::Own(_) | Certificates::Managed => {
                watch_object(secrets, &self.options.secret.1).default_backoff().boxed()
            }
        };
        let mut configurations: Watch<ValidatingWebhookConfiguration> =
            watch_object(configurations, &self.options.configuration).default_backoff().boxed();
        loop {
            let wait = self.pass().await;
            tokio::select! {
                seen = secrets.next() => match seen {
                    Some(Ok(secret)) => self.secret = Seen::Is(secret),
                    Some(Err(error)) => self.interrupted("Secret", &error),
                    None => tokio::time::sleep(FIRST_WAIT).await,
                },
                seen = configurations.next() => match seen {
                    Some(Ok(found)) => self.configuration = Seen::Is(found),
                    Some(Err(error)) => self.interrupted("ValidatingWebhookConfiguration", &error),
                    None => tokio::time::sleep(FIRST_WAIT).await,
                },
                () = tokio::time::sleep(wait) => {}
                () = until.cancelled() => break,
            }
        }
        self.events.publish_rest().await;
    }

    fn interrupted(&mut self, kind: &str, error: &watcher::Error) {
        if !self.complained {
            tracing::warn!(
                %error,
                "cannot watch the webhook's {kind}; the operator needs the permissions of deploy/operator-role.yaml for it"
            );
            self.complained = true;
        }
    }

    /// Does what is due now; returns how long nothing else is.
    async fn pass(&mut self) -> Duration {
        let now = Timestamp::now();
        let mut wait = LONGEST_SLEEP;
        let candidate = match &self.options.certificates {
            Certificates::Own(policy) => self.own(*policy, now, &mut wait).await,
            Certificates::Managed => self.managed(now),
            Certificates::Files { directory, certificate, key } => {
                wait = FILES;
                let files = read_files(directory, certificate, key);
                self.given(files, &format!("the certificate in {}", directory.display()), now)
            }
        };
        if let Some(candidate) = candidate {
            wait = wait.min(self.publish(&candidate, now).await);
            wait = wait.min(self.serve(candidate, now));
        }
        wait
    }

    /// Certificates of our own: the Secret's, or new ones if it is time.
    async fn own(&mut self, policy: Policy, now: Timestamp, wait: &mut Duration) -> Option<Material> {
        let Seen::Is(secret) = &self.secret else { return None };
        let stored = secret.as_ref().and_then(|secret| secret.data.as_ref()).map(Material::read).unwrap_or_default();
        let step = certificates::step(&stored.stored(&self.names, now), &policy, now);
        let (why, made) = match step {
            Step::Keep { until } => {
                *wait = (*wait).min(time_to(until, now));
                self.usable();
                return Some(stored);
            }
            Step::IssueServer { why } | Step::Renew { why } if self.has_better(&policy, now) => {
                // Someone deleted or changed the Secret; API servers trust what is being served.
                (why, Ok(self.serving.as_ref().map(|(material, _)| material.clone()).unwrap_or_default()))
            }
            Step::IssueServer { why } => (why, stored.issue(&self.names, &policy, now)),
            Step::Renew { why } => (why, stored.renew(&self.names, &policy, now)),
        };
        let at = self.place();
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                self.unusable(format!(
                    "{at}: cannot issue a certificate: {error}; check --webhook-svc-name and --webhook-url"
                ));
                *wait = self.backoff();
                return None;
            }
        };
        let damaged = !stored.certificate.is_empty() && why != "it expires soon";
        match writes::write_secret(
            &self.client,
            &self.options.secret.0,
            &self.options.secret.1,
            secret.as_ref(),
            made.data(),
        )
        .await
        {
            Ok(Some(written)) => {
                self.failures = 0;
                let until = made.validity().map(|validity| validity.until.to_string()).unwrap_or_default();
                let note = format!("new certificate until {until}, because {why}");
                tracing::info!(secret = at, "{note}");
                if damaged {
                    self.unusable(format!("{at} could not be used: {why}; it was replaced"));
                } else {
                    self.events.record(Reporter::Webhook, &self.about(), false, reason::RENEWED, &note);
                }
                self.secret = Seen::Is(Some(written));
                *wait = Duration::ZERO;
            }
            // Another replica was faster; its write will be seen.
            Ok(None) => *wait = FIRST_WAIT,
            Err(error) => {
                let why = words(&error);
                self.unusable(format!(
                    "{at} cannot be written: {why}; the operator needs the permissions of deploy/operator-role.yaml for it"
                ));
                *wait = self.backoff();
            }
        }
        None
    }

    /// Whether what is served is good for longer than what is stored.
    fn has_better(&self, policy: &Policy, now: Timestamp) -> bool {
        self.serving.as_ref().is_some_and(|(material, _)| {
            matches!(certificates::step(&material.stored(&self.names, now), policy, now), Step::Keep { .. })
        })
    }

    /// What cert-manager wrote.
    fn managed(&mut self, now: Timestamp) -> Option<Material> {
        let Seen::Is(secret) = &self.secret else { return None };
        let at = self.place();
        let found = match secret.as_ref().and_then(|secret| secret.data.as_ref()) {
            Some(data) => Ok(Material::read_managed(data)),
            None => Err(format!(
                "it does not exist or is empty; create a Certificate with secretName {}",
                self.options.secret.1
            )),
        };
        self.given(found, &at, now)
    }

    /// A certificate of somebody else, if it can be used.
    fn given(&mut self, found: Result<Material, String>, at: &str, now: Timestamp) -> Option<Material> {
        let fault = match &found {
            Ok(material) => material.fault(&self.names, now),
            Err(problem) => Some(problem.clone()),
        };
        match (found, fault) {
            (Ok(material), None) => {
                self.usable();
                Some(material)
            }
            (_, fault) => {
                let kept = if self.serving.is_some() { "; the one before is still served" } else { "" };
                self.unusable(format!("{at} cannot be used: {}{kept}", fault.unwrap_or_default()));
                None
            }
        }
    }

    /// Has API servers ask us, and trust what we serve. Returns when to look again.
    async fn publish(&mut self, candidate: &Material, now: Timestamp) -> Duration {
        let Seen::Is(found) = &self.configuration else { return LONGEST_SLEEP };
        let mut bundle: Vec<String> = candidate.unexpired(now).collect();
        if let Some((serving, _)) = &self.serving {
            let earlier: Vec<String> = serving.unexpired(now).filter(|pem| !bundle.contains(pem)).collect();
            bundle.extend(earlier);
        }
        let bundle: String = bundle.concat();
        let given = Some(bundle.as_str()).filter(|bundle| self.options.injected_from.is_none() && !bundle.is_empty());
        let wanted = configuration::wanted(&self.options, &self.namespaces, self.selector.as_deref(), given);
        let Ok(wanted) = wanted else { return LONGEST_SLEEP };
        if found.as_ref().is_some_and(|found| configuration::is_in_force(&wanted, found)) {
            self.failures = 0;
            self.complained = false;
        } else {
            match writes::apply_webhook(&self.client, &self.options.configuration, &wanted).await {
                Ok(written) => {
                    tracing::info!(
                        name = self.options.configuration,
                        "the ValidatingWebhookConfiguration is up to date"
                    );
                    self.configuration = Seen::Is(Some(written));
                    self.complained = false;
                }
                Err(error) => {
                    if !self.complained {
                        tracing::warn!(
                            error = words(&error),
                            name = self.options.configuration,
                            "cannot write the ValidatingWebhookConfiguration; the operator needs the permissions of deploy/operator-role.yaml for it"
                        );
                        self.complained = true;
                    }
                    let wait = self.backoff();
                    self.note_trusted(&wanted, now);
                    return wait;
                }
            }
        }
        self.note_trusted(&wanted, now);
        LONGEST_SLEEP
    }

    /// Remembers since when API servers trust which authorities.
    fn note_trusted(&mut self, wanted: &Value, now: Timestamp) {
        let Seen::Is(Some(found)) = &self.configuration else { return self.trusted.clear() };
        let trusted = configuration::trusted(wanted, found);
        self.trusted.retain(|pem, _| trusted.contains(pem));
        for pem in trusted {
            self.trusted.entry(pem).or_insert(now);
        }
    }

    /// Serves a certificate as soon as it is trusted. Returns when to look again.
    fn serve(&mut self, candidate: Material, now: Timestamp) -> Duration {
        let is_new = self.serving.as_ref().is_none_or(|(serving, _)| {
            (&serving.certificate, &serving.key) != (&candidate.certificate, &candidate.key)
        });
        let Some(validity) = candidate.validity() else { return LONGEST_SLEEP };
        if is_new {
            let since = match candidate.authority() {
                Some(authority) => self.trusted.get(&authority).copied(),
                // Nobody knows whom to trust, so there is nothing to wait for.
                None => Some(Timestamp::UNIX_EPOCH),
            };
            let (policy, serving) = (self.policy(), self.serving.as_ref().map(|(_, validity)| validity));
            if !certificates::may_serve(since, serving, &policy, now) {
                return Duration::try_from(certificates::settling(&policy)).unwrap_or(FIRST_WAIT).max(MINIMUM);
            }
            let Ok(certified) = candidate.certified() else { return LONGEST_SLEEP };
            self.served.set(certified);
            tracing::info!(until = %validity.until, "serving a new certificate");
        }
        self.serving = Some((candidate, validity));
        self.set_gauges(|gauges| gauges.0 = Some(validity.until));
        self.ready.webhook_serves();
        LONGEST_SLEEP
    }

    fn policy(&self) -> Policy {
        match self.options.certificates {
            Certificates::Own(policy) => policy,
            Certificates::Managed | Certificates::Files { .. } => {
                let some = SignedDuration::from_secs(4 * i64::try_from(FIRST_WAIT.as_secs()).unwrap_or(1));
                Policy { server: some, renew_before: some, authority: some }
            }
        }
    }

    fn place(&self) -> String {
        format!("Secret {}/{}", self.options.secret.0, self.options.secret.1)
    }

    fn about(&self) -> ObjectReference {
        let uid = match &self.secret {
            Seen::Is(Some(secret)) => secret.uid(),
            Seen::Is(None) | Seen::NotYet => None,
        };
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.options.secret.0.clone()),
            name: Some(self.options.secret.1.clone()),
            uid,
            ..ObjectReference::default()
        }
    }

    fn usable(&mut self) {
        self.reported = None;
        self.set_gauges(|gauges| gauges.1 = false);
    }

    /// Reports what cannot be used, once.
    fn unusable(&mut self, problem: String) {
        self.set_gauges(|gauges| gauges.1 = true);
        if self.reported.as_ref() != Some(&problem) {
            tracing::error!("{problem}");
            self.events.record(Reporter::Webhook, &self.about(), true, reason::UNUSABLE, &problem);
            self.reported = Some(problem);
        }
    }

    fn set_gauges(&self, change: impl FnOnce(&mut (Option<Timestamp>, bool))) {
        change(&mut self.gauges.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn backoff(&mut self) -> Duration {
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(5)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        wait
    }
}

fn time_to(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default().max(MINIMUM)
}

fn read_files(directory: &Path, certificate: &str, key: &str) -> Result<Material, String> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    Ok(Material {
        // A certificate may have come without its authority.
        authorities: read(MANAGED[0]).unwrap_or_default(),
        authority_key: String::new(),
        certificate: read(certificate)?,
        key: read(key)?,
    })
}
