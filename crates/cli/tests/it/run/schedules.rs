//! `firesteel run` of a schedule: shows when runs are due, follows them, and leaves nothing behind after Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::Child;

use super::*;

fn schedule(when: &str, policy: &str) -> String {
    format!(
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: ScheduledSparkApplication\nmetadata: {{name: often}}\nspec:\n  \
         schedule: '{when}'\n  timeZone: Asia/Kathmandu\n  concurrencyPolicy: {policy}\n  template:\n    \
         type: Python\n    sparkVersion: 4.1.4\n    image: {SPARK}\n    mainApplicationFile: job.py\n    \
         driver: {{cores: 1, coreRequest: 100m, memory: 512m, serviceAccount: spark}}\n    \
         executor: {{instances: 1, cores: 1, coreRequest: 100m, memory: 512m}}\n"
    )
}

fn interrupt(run: &Child) {
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill").success());
}

#[test]
fn a_schedule_is_followed_from_run_to_run_until_ctrl_c() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    bed.write("job.py", "print('a run was here')\n");
    let file = bed.write("often.yaml", &schedule("@every 3s", "Forbid"));
    let follow = |file: &str| {
        let mut run = bed.command(&["run"]);
        run.arg(file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("firesteel runs")
    };
    let mut run = follow(&file);
    let out = BufReader::new(run.stdout.take().expect("stdout"));
    let said = out.lines().map_while(Result::ok).filter(|line| line == "a run was here").take(2).count();
    interrupt(&run);
    let output = run.wait_with_output().expect("its end");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((said, output.status.code()), (2, Some(130)), "{words}");
    let has = |start: &str, end: &str| words.lines().any(|line| line.starts_with(start) && line.contains(end));
    assert!(has("schedule often: runs at ", " Asia/Kathmandu, … (Ctrl-C ends it)"), "{words}");
    assert!(has("schedule often: run often-", " starts"), "{words}");
    assert!(has("schedule often: run often-", " completed; the next is due at "), "{words}");
    assert!(has("interrupted, stopping schedule often", "its runs"), "{words}");

    // The schedule is gone: the same name is free again. Nothing is due for months.
    let file = bed.write("often.yaml", &schedule("0 0 1 1 *", "Allow"));
    let mut run = follow(&file);
    let err = BufReader::new(run.stderr.take().expect("stderr"));
    let shown = err.lines().map_while(Result::ok).find(|line| line.starts_with("schedule often: runs at "));
    interrupt(&run);
    assert_eq!(run.wait().expect("its end").code(), Some(130));
    let shown = shown.unwrap_or_default();
    assert!(shown.contains("-01-01 00:00:00 Asia/Kathmandu, 20"), "three years: {shown}");
    assert_eq!(bed.run(&["local", "status"], &[]).code, 0, "the cluster was there before and still is");
}
