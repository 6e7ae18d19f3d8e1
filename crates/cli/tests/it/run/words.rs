//! How the arguments of `firesteel run` are interpreted, and what is printed for invalid ones.

use super::*;

#[test]
fn bad_input_is_said_before_anything_is_started() {
    let bed = Bed::new();
    let empty = bed.write("empty.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    let broken = bed.write("broken.yaml", "a: [");
    let never = bed.write(
        "never.yaml",
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: ScheduledSparkApplication\nmetadata: {name: a}\n\
         spec: {schedule: '61 * * * *', template: {}}\n",
    );
    for (arguments, words) in [
        (vec!["nowhere.yaml"], "cannot read nowhere.yaml"),
        (vec![empty.as_str()], "nothing to run"),
        (vec![broken.as_str()], "is not YAML"),
        (vec![never.as_str()], "never.yaml: spec.schedule: the minute \"61\" is not valid: 61 is above 59"),
        (vec!["--class"], "--class"),
        (vec!["nowhere.py"], "there is no file"),
        (vec!["--dry-run", "x.py"], "belong to `firesteel submit`"),
        (vec!["--kill", "a:b"], "needs an application"),
        (vec![empty.as_str(), "1000"], "`1000` after the manifest"),
        (vec![empty.as_str(), "--conf", "a=b"], "`--conf` after the manifest"),
        (vec![empty.as_str(), "--data-dir", "other"], "--data-dir is given twice"),
        (vec!["--conf", "spark.a=b", empty.as_str()], "spark-submit options cannot be used with a manifest"),
        (vec!["--class", "Main", "--keep", "app.jar"], "--keep is an option of `firesteel run`"),
    ] {
        let said = bed.run(&["run"], &arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        assert!(said.err.contains(words), "{arguments:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "one sentence: {said:?}");
    }
    assert!(!bed.data().exists(), "nothing was started");
}

/// Runs `firesteel run` with these arguments in a fresh data home.
fn run_words(bed: &Bed, words: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel"));
    command.arg("run").args(words).current_dir(bed.directory.path()).stdin(Stdio::null());
    let output = command.env("XDG_DATA_HOME", bed.directory.path().join("usual")).output().expect("firesteel runs");
    Said::from(&output, Instant::now())
}

#[test]
fn options_behind_a_manifest_are_taken_like_those_before_it() {
    let bed = Bed::new();
    let usual = bed.directory.path().join("usual");
    let data = bed.data().to_string_lossy().into_owned();
    bed.write("pod.yaml", &(pod("said", "jobs", "echo said") + WORDS));
    let said = run_words(&bed, &["pod.yaml", "--data-dir", &data, "--keep"]);
    assert_eq!((said.code, said.out.as_str()), (0, "said\n"), "{said:?}");
    assert_eq!(bed.run(&["local", "status"], &[]).code, 0, "it was kept, in the directory named behind it");
    assert!(!usual.exists(), "and nothing is anywhere else");
    let help = run_words(&bed, &["pod.yaml", "--help"]);
    assert_eq!(help.code, 0, "{help:?}");
    assert!(help.out.contains("--data-dir <DIR>"), "{help:?}");
}

#[test]
fn words_behind_a_script_are_the_scripts() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    let script = bed.write("words.py", "import sys\nprint('words:', *sys.argv[1:], flush=True)\n");
    let said = bed.run(&["run"], &[&script, "conf.yaml", "--data-dir", "elsewhere", "--keep", "-"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("words: conf.yaml --data-dir elsewhere --keep -\n"), "{said:?}");
    assert!(!bed.directory.path().join("elsewhere").exists(), "{said:?}");
    bed.assert_nothing_left();
}
