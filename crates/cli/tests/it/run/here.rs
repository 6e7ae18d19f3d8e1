//! What a run sees of the current directory, without Spark; and pandas, with Spark.

use super::*;

/// A pod that prints what it sees.
fn looking(script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: looking, namespace: default}}\nspec:\n  restartPolicy: Never\n  \
         containers: [{{name: c, image: 'busybox:1', command: [sh, -c, '{script}']}}]\n"
    )
}

#[test]
fn a_pod_sees_what_mount_names_with_the_rights_of_whoever_runs_it_and_nothing_without() {
    let bed = Bed::new();
    let here = bed.directory.path().canonicalize().expect("a path").join("here");
    let data = here.with_file_name("numbers");
    for directory in [&here, &data] {
        std::fs::create_dir(directory).expect("a directory");
    }
    std::fs::write(data.join("in.csv"), "flint\n").expect("a file");
    let script = format!(
        "pwd; id -u; cat {data}/in.csv; echo x > made; echo x > {data}/made || echo refused",
        data = data.display()
    );
    std::fs::write(here.join("pod.yaml"), looking(&script)).expect("a file");
    let run = |mounts: &[&str]| {
        let began = Instant::now();
        let mut command = bed.command(&["run"]);
        command.args(mounts).arg("pod.yaml").current_dir(&here);
        Said::from(&command.output().expect("firesteel runs"), began)
    };
    let up = bed.run(&["local", "up"], &[]);
    assert_eq!(up.code, 0, "{up:?}");
    let said = run(&[]);
    assert!(said.out.starts_with("/\n") && !said.out.contains("flint"), "{said:?}");
    assert!(!here.join("made").exists());
    let said = run(&["--mount", ".", "--mount", "../numbers:ro"]);
    let user = nix::unistd::geteuid();
    let lines: Vec<&str> = said.out.lines().collect();
    let (place, user) = (here.to_string_lossy().into_owned(), user.to_string());
    assert_eq!(lines[..3], [place.as_str(), user.as_str(), "flint"], "{said:?}");
    assert!(said.out.contains("refused") && !data.join("made").exists(), "{said:?}");
    assert!(here.join("made").exists(), "what it writes stays");
    let said = run(&["--mount", "/opt"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("--mount /opt: /opt cannot be mounted into a pod"), "{said:?}");
}

#[test]
fn the_help_fits_a_terminal_and_its_example_is_one_that_works() {
    let help = Command::new(env!("CARGO_BIN_EXE_firesteel")).args(["run", "--help"]).env("COLUMNS", "80").output();
    let text = String::from_utf8_lossy(&help.expect("firesteel runs").stdout).into_owned();
    assert!(text.contains("firesteel run script.py input.csv out.parquet"), "{text}");
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(long, Vec::<&str>::new());
}

/// A virtual environment with pandas and pyarrow, created once. `None` if they cannot be installed.
fn pandas() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from).join("firesteel");
    let version = Command::new("python3").args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).output();
    let version = String::from_utf8_lossy(&version.ok()?.stdout).trim().to_owned();
    let environment = cache.join(format!("test-venv-{version}"));
    let whole = environment.join("whole");
    if !whole.is_file() {
        let done = |command: &mut Command| command.stdout(Stdio::null()).status().is_ok_and(|status| status.success());
        let made = done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
            && done(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "pandas", "pyarrow"]));
        if !made {
            return None;
        }
        std::fs::write(whole, "").ok()?;
    }
    Some(environment)
}

#[test]
#[ignore = "tests/real: fetches pandas"]
fn a_pandas_udf_runs_with_the_active_environment() {
    if !spark() {
        return;
    }
    let Some(environment) = pandas() else {
        eprintln!("SKIPPED, pandas and pyarrow cannot be installed");
        return;
    };
    let bed = Bed::new();
    let script = "import pandas as pd\nfrom pyspark.sql import SparkSession, functions as f\n\
                  spark = SparkSession.builder.getOrCreate()\n\
                  @f.pandas_udf('double')\ndef half(v: pd.Series) -> pd.Series:\n    return v / 2\n\
                  print('half:', spark.range(10).select(f.sum(half('id'))).first()[0])\n";
    let script = bed.write("job.py", script);
    for allocator in ["direct", "firesteel"] {
        let setting = format!("spark.kubernetes.allocation.pods.allocator={allocator}");
        let mut command = bed.command(&["run"]);
        command.args(["--conf", "spark.executor.instances=1", "--conf", &setting, &script]);
        command.env("VIRTUAL_ENV", &environment).env_remove("PYSPARK_PYTHON");
        let said = Said::from(&command.output().expect("firesteel runs"), Instant::now());
        assert_eq!(said.code, 0, "{allocator}: {said:?}");
        assert!(said.out.contains("half: 22.5"), "{allocator}: {said:?}");
    }
    bed.assert_nothing_left();
}
