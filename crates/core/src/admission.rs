//! Admission: whether an object may be stored, and what to say if not.
//!
//! The checks are those of the controllers: [`legible`] for fields that cannot be read, `validate` and the plan for what
//! cannot work. So an object is refused with the same message with a webhook and without one; with one, it is refused before it
//! is stored. An edit that leaves the specification as it was is always allowed, as is one that only suspends, and anything on
//! an object that is being deleted.

use std::collections::BTreeMap;

use firesteel_api::validate::{self, Problem, embedded};
use firesteel_api::{defaults, names};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::conf::Subject;
use crate::connect::{self, application, plan};
use crate::footprint::Footprint;
use crate::legible;
use crate::quota::Against;
use crate::run::{self, Attempt, RunSettings};
use crate::schedule::{self, Zones};

/// How many warnings an answer has at most.
const MOST_WARNINGS: usize = 10;
/// How many problems a message names.
const NAMED_PROBLEMS: usize = 10;

/// A kind that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Application,
    Schedule,
    Connect,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Application, Kind::Schedule, Kind::Connect];

    /// The version of the API, and the plural name.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Kind::Application => ("v1beta2", "sparkapplications"),
            Kind::Schedule => ("v1beta2", "scheduledsparkapplications"),
            Kind::Connect => ("v1alpha1", "sparkconnects"),
        }
    }

    /// The path at which the existing operator serves the webhook for this kind.
    pub fn path(self) -> String {
        let (version, plural) = self.resource();
        let group = names::GROUP.replace('.', "-");
        format!("/validate-{group}-{version}-{}", plural.trim_end_matches('s'))
    }
}

/// A write to judge.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub kind: Kind,
    pub name: &'a str,
    pub namespace: &'a str,
    pub object: &'a Value,
    /// What is stored, if this is an edit.
    pub old: Option<&'a Value>,
}

/// What a decision depends on besides the object.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub runs: &'a RunSettings,
    pub zones: &'a Zones,
    pub now: Timestamp,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It may be stored, as far as the object itself is concerned.
    Allowed {
        warnings: Vec<String>,
        /// What must fit the quotas of the namespace.
        needs: Option<(Footprint, Against)>,
    },
    Refused(Vec<Problem>),
}

impl Answer {
    fn unasked() -> Self {
        Answer::Allowed { warnings: Vec::new(), needs: None }
    }
}

/// Judges a write.
pub fn review(question: &Question<'_>, settings: &Settings<'_>) -> Answer {
    let spec = &question.object["spec"];
    if !question.object["metadata"]["deletionTimestamp"].is_null() {
        return Answer::unasked();
    }
    let suspended = |spec: &Value| spec["suspend"] == Value::Bool(true);
    if let Some(old) = question.old.map(|old| &old["spec"]) {
        let stops = suspended(spec) && without_suspend(old) == without_suspend(spec);
        if old == spec || stops {
            return Answer::unasked();
        }
    }
    let judged = match question.kind {
        Kind::Application => application(question, settings),
        Kind::Schedule => schedule(question, settings),
        Kind::Connect => connect_server(question, settings),
    };
    match judged {
        Ok(mut accepted) => {
            let of_pods = accepted.needs.iter_mut().flat_map(|(needs, _)| std::mem::take(&mut needs.warnings));
            accepted.warnings.extend(of_pods);
            let more = accepted.warnings.len().saturating_sub(MOST_WARNINGS);
            accepted.warnings.truncate(MOST_WARNINGS);
            if more > 0 {
                accepted.warnings.push(format!("and {more} more warnings"));
            }
            // What is suspended takes nothing; it is asked again when it resumes.
            let needs = accepted.needs.filter(|_| !suspended(spec));
            Answer::Allowed { warnings: accepted.warnings, needs }
        }
        Err(problems) => Answer::Refused(problems),
    }
}

/// One sentence about everything that is wrong.
pub fn sentence(problems: &[Problem]) -> String {
    let named: Vec<String> = problems.iter().take(NAMED_PROBLEMS).map(ToString::to_string).collect();
    match problems.len().saturating_sub(NAMED_PROBLEMS) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

fn without_suspend(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    spec
}

/// An object that may be stored.
struct Accepted {
    warnings: Vec<String>,
    needs: Option<(Footprint, Against)>,
}

fn application(question: &Question<'_>, settings: &Settings<'_>) -> Result<Accepted, Vec<Problem>> {
    let given = &question.object["spec"];
    let (spec, faults) = legible::application(given);
    if !faults.is_empty() {
        return Err(faults);
    }
    nothing_wrong(validate::problems(question.name, question.namespace, &spec))?;
    let about = About::of(question);
    let subject = about.application(question.name, question.namespace, &defaults::defaulted(&spec), settings)?;
    let mut warnings = unknown(given, &spec);
    warnings.extend(subject.warnings);
    Ok(Accepted { warnings, needs: Some((subject.needs, Against::Free)) })
}

fn schedule(question: &Question<'_>, settings: &Settings<'_>) -> Result<Accepted, Vec<Problem>> {
    let given = &question.object["spec"];
    let spec = legible::schedule(given)?;
    nothing_wrong(schedule::problems(&spec, question.namespace, settings.zones))?;
    let about = About::of(question);
    let template = defaults::defaulted(&spec.template);
    let planned = about.application("run", question.namespace, &template, settings).map_err(|problems| {
        let of_template = |text: &str| text.replace("spec.", "spec.template.");
        let problems = problems.into_iter();
        problems.map(|p| Problem { path: of_template(&p.path), message: of_template(&p.message) }).collect::<Vec<_>>()
    })?;
    let mut needs = planned.needs;
    for group in &mut needs.pods {
        group.path = group.path.replacen("spec", "spec.template", 1);
    }
    let mut warnings = unknown(given, &spec);
    warnings.extend(planned.warnings);
    // Its runs start later, when other things use the quota.
    Ok(Accepted { warnings, needs: Some((needs, Against::Hard)) })
}

fn connect_server(question: &Question<'_>, settings: &Settings<'_>) -> Result<Accepted, Vec<Problem>> {
    let given = &question.object["spec"];
    let spec = legible::connect(given).map_err(|fault| vec![fault])?;
    let about = About::of(question);
    let subject = connect::Subject {
        name: question.name,
        namespace: question.namespace,
        uid: &about.uid,
        labels: &about.labels,
        spec: &spec,
    };
    nothing_wrong(application::problems(&subject))?;
    let (planned, needs) =
        plan::footprint(&subject, about.attempt(settings), &settings.runs.master).map_err(|problem| vec![problem])?;
    let mut warnings = unknown(given, &spec);
    warnings.extend(planned.run.warnings);
    Ok(Accepted { warnings, needs: Some((needs, Against::Free)) })
}

fn nothing_wrong(problems: Vec<Problem>) -> Result<(), Vec<Problem>> {
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A planned application.
struct Planned {
    warnings: Vec<String>,
    needs: Footprint,
}

/// The metadata that a plan depends on.
struct About {
    uid: String,
    labels: BTreeMap<String, String>,
}

impl About {
    fn of(question: &Question<'_>) -> Self {
        let metadata = &question.object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        About {
            // A new object may not have one yet; any will do for a plan that is thrown away.
            uid: Some(text(&metadata["uid"])).filter(|uid| !uid.is_empty()).unwrap_or_else(|| "new".to_owned()),
            labels: labels.map(|(name, value)| (name.clone(), text(value))).collect(),
        }
    }

    fn attempt(&self, settings: &Settings<'_>) -> Attempt {
        Attempt { number: 1, generation: 1, created: settings.now, now: settings.now, nonce: 0 }
    }

    fn application(
        &self,
        name: &str,
        namespace: &str,
        spec: &firesteel_api::SparkApplicationSpec,
        settings: &Settings<'_>,
    ) -> Result<Planned, Vec<Problem>> {
        let subject = Subject { name, namespace, uid: &self.uid, labels: &self.labels, spec };
        let (run, needs) =
            run::footprint(&subject, self.attempt(settings), settings.runs).map_err(|problem| vec![problem])?;
        let lost = run.lost.iter().map(|(field, why)| format!("{field} has no effect: {why}"));
        Ok(Planned { warnings: lost.chain(run.warnings).collect(), needs })
    }
}

/// Fields that were written but not understood.
fn unknown(given: &Value, read: &impl Serialize) -> Vec<String> {
    let mut found = Vec::new();
    embedded::unknown(given, &serde_json::to_value(read).unwrap_or_default(), "spec", &mut found);
    found.into_iter().map(|path| format!("unknown field {path:?} has no effect")).collect()
}
