//! Logs of drivers that actually died, with Spark 3.5 and 4.1, and their diagnoses. Only long runs of frames and of INFO
//! records were removed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use firesteel_core::diagnosis::{Cause, CauseKind, Facts, Log, MOST_BYTES, cause};
use firesteel_core::pod::Ended;
use firesteel_spark::redaction::Redaction;
use proptest::prelude::*;

const FACTS: Facts<'_> = Facts { namespace: "default", service_account: "plain" };

struct Death {
    exit_code: i32,
    log: String,
}

/// All logs, by name and version; the file name holds the exit code.
fn deaths() -> BTreeMap<String, Death> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pure/deaths");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let (name, code) = name.strip_suffix(".log").unwrap().split_once(".exit-").unwrap();
            let log = std::fs::read_to_string(&path).unwrap();
            (name.to_owned(), Death { exit_code: code.parse().unwrap(), log })
        })
        .collect()
}

fn ended(exit_code: i32) -> Ended {
    Ended { exit_code, signal: None, reason: "Error".to_owned(), message: String::new(), at: None }
}

fn diagnose(death: &Death) -> Option<Cause> {
    cause(&ended(death.exit_code), &Log::new(death.log.as_bytes(), &Redaction::default()), FACTS)
}

#[test]
fn every_common_death_is_named_with_its_cause_and_what_to_do() {
    let mut told = String::new();
    for (name, death) in deaths() {
        let cause = diagnose(&death).unwrap_or_else(|| panic!("{name}: no cause"));
        told += &format!("{name}: {:?}\n{cause}\n\n", cause.kind);
    }
    insta::assert_snapshot!(told);
}

#[test]
fn each_kind_of_death_is_recognized() {
    let deaths = deaths();
    for (name, kind, words) in [
        ("divide", CauseKind::Exception, "ZeroDivisionError: division by zero, at boom.py:3"),
        ("chain", CauseKind::Exception, "NumberFormatException: For input string: \"x\", at Boom.java:41"),
        ("forbidden", CauseKind::Forbidden, "the driver's account `plain` may not get pods in `default`"),
        ("structured", CauseKind::Exception, "NumberFormatException: For input string: \"x\", at Boom.java:41"),
        ("task", CauseKind::Exception, "IllegalArgumentException: row 0 has no date, at Boom.java:16"),
        ("udf", CauseKind::Exception, "ZeroDivisionError: division by zero, at udf.py:6"),
        ("column", CauseKind::Exception, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("class-missing", CauseKind::ClassNotFound, "org.example.Nope"),
        ("class-missing-inside", CauseKind::ClassNotFound, "org.example.lib.Gone was not found, at Boom.java:22"),
        ("source", CauseKind::ClassNotFound, "no data source `delta`"),
        ("s3-class", CauseKind::ClassNotFound, "the image cannot read s3a://"),
        ("module", CauseKind::ModuleNotFound, "`pandas_is_not_here` is not installed, at module.py:1"),
        ("jar-missing", CauseKind::FileNotFound, "the application's jar /opt/spark/work/none.jar is not in the image"),
        ("script-missing", CauseKind::FileNotFound, "the script /opt/spark/work/none.py is not in the image"),
        (
            "path-missing",
            CauseKind::FileNotFound,
            "PATH_NOT_FOUND: the path file:/data/in/orders.csv does not exist, at path.py:3",
        ),
        ("no-python", CauseKind::NoPython, "the image has no Python: `/usr/local/bin/python9` cannot be run"),
        ("heap", CauseKind::HeapFull, "Java heap space"),
        ("heap-python", CauseKind::HeapFull, "Java heap space), at heap.py:6"),
        ("result", CauseKind::ResultTooLarge, "at result.py:3"),
        ("port", CauseKind::PortInUse, "port 36311 for sparkDriver is in use"),
        ("bind", CauseKind::BadAddress, "cannot listen"),
        ("api-host", CauseKind::UnknownHost, "the API server's name kubernetes.default.svc is not known"),
        (
            "driver-host",
            CauseKind::UnknownHost,
            "the name of the driver's service pi-driver-svc.default.svc is not known",
        ),
        ("events", CauseKind::EventLogDirectory, "file:/tmp/spark-events, does not exist"),
        ("s3-none", CauseKind::Credentials, "there are no credentials, at s3.py:3"),
        ("s3-wrong", CauseKind::Credentials, "S3 refused access to s3a://lake/orders (403), at s3.py:3"),
        ("python-mismatch", CauseKind::VersionMismatch, "different versions of Python"),
        (
            "executor-mismatch",
            CauseKind::VersionMismatch,
            "driver and executors have different versions of org.apache.spark.rpc.netty.RpcEndpointVerifier$CheckExistence",
        ),
        ("exit", CauseKind::ExitCode, "the program itself ended with exit code 3"),
        ("exit-jvm", CauseKind::ExitCode, "the program itself ended with exit code 4"),
    ] {
        let mut found = 0;
        for version in ["3.5.9", "4.1.4"] {
            let Some(death) = deaths.get(&format!("{name}-{version}")) else { continue };
            let cause = diagnose(death).unwrap_or_else(|| panic!("{name}: no cause"));
            assert_eq!(cause.kind, kind, "{name} of {version}: {cause}");
            assert!(cause.sentence.contains(words), "{name} of {version}: {cause}");
            found += 1;
        }
        assert!(found > 0, "there is a log of {name}");
    }
}

proptest! {
    #[test]
    fn no_log_breaks_it_and_its_output_is_bounded(
        parts in proptest::collection::vec((0_usize..64, 0_usize..400, 1_usize..30), 0..12),
        noise in proptest::collection::vec(any::<u8>(), 0..400),
        exit_code in 1..160,
    ) {
        static LOGS: LazyLock<Vec<String>> =
            LazyLock::new(|| deaths().into_values().map(|death| death.log).collect());
        let logs = &*LOGS;
        let mut log = noise.clone();
        for (which, from, count) in parts {
            let lines = logs[which % logs.len()].lines().skip(from).take(count);
            log.extend(lines.flat_map(|line| line.bytes().chain([b'\n'])));
            log.extend(noise.iter().take(3));
        }
        let found = cause(&ended(exit_code), &Log::new(&log, &Redaction::default()), FACTS);
        if let Some(cause) = found {
            let text = cause.to_string();
            prop_assert!(text.len() <= MOST_BYTES, "{} bytes: {}", text.len(), text);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}

#[test]
fn hostile_lines_cost_neither_time_nor_memory() {
    let deep =
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File \"x\", line 1, in f\n";
    let frames = "Exception in thread \"main\" a.Error: x\n".to_owned() + &"\tat a.b(c)\n".repeat(50_000);
    let causes = "Caused by: a.b.C: x\n".repeat(50_000);
    let lines = [
        deep.repeat(5_000),
        frames,
        causes,
        "Traceback (most recent call last):\n".repeat(10_000),
        "(".repeat(300_000),
    ];
    for log in lines {
        let began = std::time::Instant::now();
        let found = cause(&ended(1), &Log::new(log.as_bytes(), &Redaction::default()), FACTS);
        assert!(found.is_none_or(|cause| cause.to_string().len() <= MOST_BYTES));
        assert!(began.elapsed().as_secs() < 10);
    }
}

/// A program may write anything into its log.
#[test]
fn a_command_is_suggested_only_for_the_pods_own_account() {
    let says = |account: &str, namespace: &str| {
        let line = format!(
            "Exception in thread \"main\" io.fabric8.kubernetes.client.KubernetesClientException: pods \"x\" is forbidden: User \
             \"system:serviceaccount:{account}\" cannot get resource \"pods\" in API group \"\" in the namespace \"{namespace}\"."
        );
        cause(&ended(1), &Log::new(line.as_bytes(), &Redaction::default()), FACTS).unwrap()
    };
    let own = says("default:plain", "default");
    assert_eq!(own.sentence, "the driver's account `plain` may not get pods in `default`");
    assert_eq!(own.remedy.as_deref(), Some("firesteel setup -n default --service-account plain --apply"));
    for (account, namespace) in
        [("kube-system:plain", "kube-system"), ("default:other", "default"), ("default:plain", "other")]
    {
        let cause = says(account, namespace);
        assert_eq!(cause.kind, CauseKind::Forbidden);
        assert!(!cause.remedy.as_deref().unwrap_or_default().contains("firesteel setup"), "{cause}");
    }
}

#[test]
fn secrets_in_a_log_are_not_in_its_cause() {
    let log = "Traceback (most recent call last):\n  File \"/w/job.py\", line 9, in <module>\n    \
               connect(user=\"a\", password=\"hunter2\")\nValueError: cannot open https://bob:hunter2@db.example/x?wages=hunter2\n";
    let shown = |pattern: Option<&str>| {
        cause(&ended(1), &Log::new(log.as_bytes(), &Redaction::new(pattern)), FACTS).map(|cause| cause.to_string())
    };
    let text = shown(Some("(?i)wages|password")).unwrap();
    assert!(
        text.contains("ValueError: cannot open https://*********(redacted)@db.example") && !text.contains("hunter2"),
        "{text}"
    );
    assert_eq!(shown(Some("(unreadable")), None, "an invalid pattern leaves nothing to show");
}
