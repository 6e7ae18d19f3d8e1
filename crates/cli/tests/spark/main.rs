//! Real Spark on the local cluster, from the outside: `firesteel submit` and `firesteel run` of real applications.
//!
//! All cases share one running cluster, each in its own namespace, and as many run at once as the machine can handle
//! (`schedule.rs`): starting a cluster per case would take most of the time. So this test has its own main function instead of
//! the standard harness, with the usual options (`--test-threads=N` runs N cases at a time):
//!   spark [FILTER]                     every case but the rare ones, with the main release
//!   spark --ignored [FILTER]           what `tests/real` adds: Pi with every other release, losses in a set with one, `run` of every kind of
//!                                      file with every allocator, and Pi and a script that reads and writes files as an ordinary user
//!   spark --full [FILTER]              all cases with all releases, as the current user and as an ordinary user; `tests/full`
//! With FIRESTEEL_SPARK_REPORT=FILE a table of the results is written or updated; with `--full`, cases that passed at this commit
//! are not run again.
#![allow(clippy::unwrap_used, reason = "a test")]

mod bed;
mod cases;
mod cluster;
mod connect;
#[path = "../clients/connect.rs"]
mod connect_client;
mod directory;
mod early;
mod hopeless;
mod losses;
mod lost;
mod outside;
mod report;
mod schedule;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bed::Bed;
use cases::Case;
use cluster::{Cluster, Who, is_root};
use report::Report;
use schedule::Run;

const MAIN: &str = "4.1.4";
const OTHERS: [&str; 4] = ["3.5.9", "4.0.5", "4.2.1", "4.3.0"];
/// The one case that other releases run in CI.
const PI: &str = "pi_on_the_jvm_through_submit";

/// One line of the result.
pub(crate) struct Ran {
    who: Who,
    version: String,
    case: &'static str,
    took: Duration,
    failure: Option<String>,
}

impl Ran {
    fn of(who: Who, version: &str, case: &'static str, began: Instant, failure: Option<String>) -> Self {
        Ran { who, version: version.to_owned(), case, took: began.elapsed(), failure }
    }

    fn show(&self) {
        let word = if self.failure.is_none() { "ok" } else { "FAILED" };
        println!("test {} ... {word} <{:.3}s>", title(self.who, &self.version, self.case), self.took.as_secs_f64());
    }
}

/// Cases that share a cluster.
struct Round {
    who: Who,
    runs: Vec<Run>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    // The last two ask the standard harness for times, which this one always prints.
    let known = [
        "--ignored",
        "--include-ignored",
        "--full",
        "--list",
        "--nocapture",
        "--quiet",
        "--exact",
        "-Zunstable-options",
        "--report-time",
    ];
    let filter = words.iter().find(|w| !w.starts_with('-')).cloned().unwrap_or_default();
    if let Some(strange) =
        words.iter().find(|w| w.starts_with('-') && !w.starts_with("--test-threads") && !known.contains(&w.as_str()))
    {
        panic!("unknown option {strange}");
    }
    let at_once = words.iter().find_map(|w| w.strip_prefix("--test-threads=")?.parse().ok());
    let at_once = at_once.unwrap_or_else(schedule::at_once);
    let rounds =
        if has("--full") { full() } else { rounds(has("--ignored") || has("--include-ignored"), !has("--ignored")) };
    let report = Report::of_environment();
    let rounds: Vec<Round> = rounds
        .into_iter()
        .map(|Round { who, mut runs }| {
            runs.retain(|(case, version)| title(who, version, case.name).contains(&filter));
            runs.retain(|(case, version)| !(has("--full") && report.has_passed(who, version, case.name)));
            Round { who, runs }
        })
        .filter(|round| !round.runs.is_empty())
        .collect();
    if has("--list") {
        for round in &rounds {
            round.runs.iter().for_each(|(case, version)| println!("{}: test", title(round.who, version, case.name)));
        }
        return;
    }
    println!("\nrunning {} tests", rounds.iter().map(|r| r.runs.len()).sum::<usize>());
    let report = Mutex::new(report);
    let ran: Vec<Ran> = rounds.iter().flat_map(|round| run(round, at_once, &report)).collect();
    let failed: Vec<&Ran> = ran.iter().filter(|r| r.failure.is_some()).collect();
    for one in &failed {
        let words = one.failure.as_deref().unwrap_or_default();
        println!("\n---- {} ----\n{words}", title(one.who, &one.version, one.case));
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out\n",
        ran.len() - failed.len(),
        failed.len()
    );
    std::process::exit(i32::from(!failed.is_empty()));
}

fn title(who: Who, version: &str, case: &str) -> String {
    format!("{who}::spark_{}::{case}", version.replace('.', "_"))
}

/// All cases.
fn cases() -> impl Iterator<Item = &'static Case> {
    let all = cases::CASES.iter().chain(&directory::CASES).chain(&outside::CASES);
    let all = all.chain(&losses::CASES).chain(&hopeless::CASES).chain(&lost::CASES);
    all.chain(&early::CASES).chain(&connect::CASES)
}

/// What CI runs: the usual cases, and those that `tests/real` adds.
fn rounds(more: bool, usual: bool) -> Vec<Round> {
    let mut all = Vec::new();
    let mut mine: Vec<(&Case, &str)> = Vec::new();
    if usual {
        mine.extend(cases().filter(|c| c.runs_on(MAIN) && !c.is_rare).map(|c| (c, MAIN)));
    }
    if more {
        let others = |case: &&Case| case.name == PI || !case.runs_on(MAIN);
        for version in OTHERS {
            // A case that the main release does not support runs with the first that does.
            let first = |case: &Case| case.name == PI || OTHERS.iter().find(|v| case.runs_on(v)) == Some(&version);
            mine.extend(cases().filter(others).filter(|c| c.runs_on(version) && first(c)).map(|c| (c, version)));
        }
        mine.extend(cases().filter(|c| c.name == losses::IN_A_REPLICA_SET).map(|c| (c, OTHERS[0])));
        mine.extend(directory::CASES.iter().filter(|c| c.is_rare).map(|c| (c, MAIN)));
    }
    all.push(Round { who: Who::Us, runs: mine });
    if more && is_root() {
        let few =
            cases().filter(|c| c.name == PI || c.name == "pi_in_python_through_run" || directory::is_for_users(c));
        all.push(Round { who: Who::OrdinaryUser, runs: few.map(|c| (c, MAIN)).collect() });
    }
    all
}

fn full() -> Vec<Round> {
    let of = |version| cases().filter(move |c| c.runs_on(version)).map(move |c| (c, version));
    let runs: Vec<Run> = std::iter::once(MAIN).chain(OTHERS).flat_map(of).collect();
    let mut all = vec![Round { who: Who::Us, runs: runs.clone() }];
    if is_root() {
        all.push(Round { who: Who::OrdinaryUser, runs });
    }
    all
}

fn run(round: &Round, at_once: usize, report: &Mutex<Report>) -> Vec<Ran> {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    round.runs.iter().for_each(|(_, version)| *versions.entry(version).or_default() += 1);
    let began = Instant::now();
    let cluster = match Cluster::up(round.who, &versions) {
        Ok(Some(cluster)) => Arc::new(cluster),
        Ok(None) => return Vec::new(),
        Err(failure) => {
            let ran = Ran::of(round.who, MAIN, "a_cluster_comes_up", began, Some(failure));
            ran.show();
            return vec![ran];
        }
    };
    let all = Mutex::new(Vec::new());
    let end = |ran: Ran| {
        ran.show();
        report.lock().unwrap().add(&ran);
        all.lock().unwrap().push(ran);
    };
    schedule::run_all(&round.runs, at_once, |(case, version)| {
        let began = Instant::now();
        let bed = Bed::new(&cluster, &namespace(version, case.name));
        let failure = schedule::failure_of(|| (case.run)(&bed, version));
        let left = schedule::failure_of(|| bed.clear());
        drop(bed);
        end(Ran::of(round.who, version, case.name, began, failure.or(left)));
    });
    let began = Instant::now();
    let failure = Arc::into_inner(cluster).expect("no case is running").down().err();
    end(Ran::of(round.who, MAIN, "nothing_is_left_after_it", began, failure));
    all.into_inner().unwrap()
}

/// A name for a case's namespace: short and unique.
fn namespace(version: &str, case: &str) -> String {
    let number = cases().position(|c| c.name == case).unwrap_or_default();
    let words: String = case.replace('_', "-").chars().take(40).collect();
    format!("{}-{number}-s{}", words.trim_end_matches('-'), version.replace('.', "-"))
}
