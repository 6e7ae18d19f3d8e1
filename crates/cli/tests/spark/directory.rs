//! What `firesteel run` sees of this machine: every kind of main file with every allocator, the current directory, and the Python
//! of the active environment.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::bed::Bed;
use crate::cases::{ALLOCATOR, Case, JAR, PI, case, short_lived};
use crate::cluster::Said;
use crate::connect_client::own_cache;

pub(crate) const CASES: [Case; 16] = [
    case("run_a_csv_becomes_parquet_beside_it", |b, v| csv(b, v, "direct")),
    case("run_a_csv_becomes_parquet_beside_it_with_firesteel", |b, v| csv(b, v, "firesteel")),
    case("run_a_csv_becomes_parquet_beside_it_with_statefulset", |b, v| csv(b, v, "statefulset")).rare(),
    case("run_a_csv_becomes_parquet_beside_it_with_firesteel_replicaset", |b, v| csv(b, v, "firesteel-replicaset"))
        .rare(),
    case("run_a_csv_becomes_parquet_beside_it_with_firesteel_statefulset", |b, v| csv(b, v, "firesteel-statefulset"))
        .rare(),
    case("run_a_jar_of_this_machine", |b, v| jar(b, v, "direct")).rare(),
    case("run_a_jar_of_this_machine_with_firesteel", |b, v| jar(b, v, "firesteel")),
    case("run_a_jar_of_this_machine_with_statefulset", |b, v| jar(b, v, "statefulset")).rare(),
    case("run_a_jar_of_this_machine_with_firesteel_replicaset", |b, v| jar(b, v, "firesteel-replicaset")).rare(),
    case("run_a_jar_of_this_machine_with_firesteel_statefulset", |b, v| jar(b, v, "firesteel-statefulset")).rare(),
    case("run_a_class_of_the_image_with_firesteel", |b, v| class(b, v, "firesteel")).rare(),
    case("run_a_class_of_the_image_with_statefulset", |b, v| class(b, v, "statefulset")).rare(),
    case("run_a_class_of_the_image_with_firesteel_replicaset", |b, v| class(b, v, "firesteel-replicaset")).rare(),
    case("run_a_class_of_the_image_with_firesteel_statefulset", |b, v| class(b, v, "firesteel-statefulset")).rare(),
    case("run_uses_the_python_of_the_active_environment", the_active_environment),
    case("run_an_application_sees_what_mount_names", an_application_sees_what_mount_names),
];

/// Whether `tests/real` also runs a case as an ordinary user.
pub(crate) fn is_for_users(case: &Case) -> bool {
    case.name.starts_with("run_a_csv_becomes_parquet_beside_it")
        || case.name == "run_uses_the_python_of_the_active_environment"
}

/// `firesteel run` in a directory, with one executor.
fn run(bed: &Bed, version: &str, directory: &Path, allocator: &str, env: &[(&str, &Path)], rest: &[&str]) -> Said {
    let image = format!("spark.kubernetes.container.image=apache/spark:{version}");
    let allocator = format!("{ALLOCATOR}={allocator}");
    let mut words = vec!["--no-quick-starts", "--conf", &image, "--conf", &allocator];
    words.extend(["--conf", "spark.executor.instances=1", "--driver-memory", "512m", "--executor-memory", "512m"]);
    let java = short_lived();
    words.extend(java.iter().flat_map(|option| ["--conf", option.as_str()]));
    // SQL and Python need memory besides a small heap.
    words.extend(["--conf", "spark.driver.memoryOverhead=1g"]);
    words.extend(rest);
    bed.run_in(directory, env, &words)
}

/// The main case: a script with modules next to it and in an archive, in a directory whose name has a space and a non-ASCII letter.
fn csv(bed: &Bed, version: &str, allocator: &str) {
    let here = bed.directory(&format!("dir ü {allocator}"));
    let numbers: String = (1..=100).map(|n| format!("{n},x\n")).collect();
    for (name, text) in [
        ("in.csv", format!("n,text\n{numbers}").as_str()),
        ("job.py", include_str!("directory.py")),
        ("beside.py", "WORD = 'flint'\n"),
        ("packed.py", "def twice(n):\n    return 2 * n\n"),
    ] {
        std::fs::write(here.join(name), text).unwrap();
    }
    let zip = Command::new("python3").args(["-m", "zipfile", "-c", "lib.zip", "packed.py"]).current_dir(&here).status();
    assert!(zip.unwrap().success());
    std::fs::remove_file(here.join("packed.py")).unwrap();
    let out = here.join("out.parquet");
    // One path is relative, one absolute.
    let said =
        run(bed, version, &here, allocator, &[], &["--py-files", "lib.zip", "job.py", "in.csv", out.to_str().unwrap()]);
    let log = &said.out;
    assert_eq!(said.code, 0, "{}\n{log}", said.err);
    assert!(log.contains("sum: 5050") && log.contains("kept: 7"), "{log}");
    assert!(log.contains("executor: True flint"), "directory, user and modules are the driver's: {log}");
    let owner = std::fs::metadata(&here).unwrap().uid();
    let written = |directory: &Path| {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let files: Vec<_> = entries.filter(|e| e.file_name().to_string_lossy().starts_with("part-")).collect();
        assert!(files.iter().all(|e| e.metadata().unwrap().uid() == owner), "they belong to the user who ran it");
        files.len()
    };
    assert!(out.join("_SUCCESS").is_file() && written(&out) == 2, "{log}");
    assert_eq!(written(&here.join("spark-warehouse/kept")), 2);
    assert_eq!(std::fs::read_to_string(here.join("notes.txt")).unwrap(), "written by the driver");
}

fn jar(bed: &Bed, version: &str, allocator: &str) {
    let here = bed.directory(&format!("jars {allocator}"));
    let examples = own_cache().join(format!("runtimes/spark-{version}/examples/jars/spark-examples.jar"));
    std::fs::copy(examples, here.join("my app.jar")).unwrap();
    pi(&run(bed, version, &here, allocator, &[], &["--class", PI, "my app.jar", "2"]));
}

fn class(bed: &Bed, version: &str, allocator: &str) {
    let here = bed.directory(&format!("class-{allocator}"));
    pi(&run(bed, version, &here, allocator, &[], &["--class", PI, JAR, "2"]));
}

fn pi(said: &Said) {
    assert_eq!(said.code, 0, "{}\n{}", said.err, said.out);
    assert!(said.out.contains("Pi is roughly 3.1"), "{}", said.out);
}

/// A virtual environment outside the directory, with a module that only it has.
fn the_active_environment(bed: &Bed, version: &str) {
    let here = bed.directory("active");
    let environment = bed.directory("environments/mine");
    // An interpreter that an ordinary user can start too.
    let made = Command::new("/usr/bin/python3").args(["-m", "venv", "--without-pip"]).arg(&environment).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        eprintln!("SKIPPED, no virtual environment: /usr/bin/python3 has no venv");
        return;
    };
    drop(made);
    let library = std::fs::read_dir(environment.join("lib")).unwrap().flatten().next().unwrap().path();
    std::fs::write(library.join("site-packages/onlyhere.py"), "def word():\n    return 'steel'\n").unwrap();
    let script = "import sys\nimport onlyhere\nfrom pyspark.sql import SparkSession\n\
                  spark = SparkSession.builder.getOrCreate()\n\
                  there = spark.sparkContext.parallelize([0], 1).map(lambda _: (onlyhere.word(), sys.prefix)).first()\n\
                  print('driver:', onlyhere.word(), sys.prefix)\nprint('executor:', *there)\n";
    std::fs::write(here.join("job.py"), script).unwrap();
    let said = run(bed, version, &here, "firesteel", &[("VIRTUAL_ENV", &environment)], &["job.py"]);
    assert_eq!(said.code, 0, "{}\n{}", said.err, said.out);
    for who in ["driver", "executor"] {
        let wanted = format!("{who}: steel {}\n", environment.display());
        assert!(said.out.contains(&wanted), "{wanted}: {}", said.out);
    }
}

/// A manifest sees no directory of this machine without `--mount`.
fn an_application_sees_what_mount_names(bed: &Bed, version: &str) {
    let here = bed.directory("manifest");
    let script = "import os, sys\nfrom pyspark.sql import SparkSession\n\
                  if not os.path.isdir(sys.argv[1]):\n    sys.exit(9)\n\
                  spark = SparkSession.builder.getOrCreate()\n\
                  spark.range(4).repartition(2).write.parquet('out.parquet')\nprint('in', os.getcwd())\n";
    std::fs::write(here.join("job.py"), script).unwrap();
    let manifest = format!(
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {{name: mounted, namespace: default}}\n\
         spec:\n  type: Python\n  mode: cluster\n  sparkVersion: {version}\n  image: 'apache/spark:{version}'\n  \
         mainApplicationFile: job.py\n  arguments: ['{}']\n  restartPolicy: {{type: Never}}\n  \
         driver: {{memory: 512m, coreRequest: 100m, serviceAccount: spark}}\n  \
         executor: {{instances: 1, memory: 512m, coreRequest: 100m}}\n",
        here.display()
    );
    std::fs::write(here.join("app.yaml"), manifest).unwrap();
    let without = bed.run_in(&here, &[], &["--no-quick-starts", "app.yaml"]);
    assert_eq!(without.code, 9, "{}\n{}", without.err, without.out);
    let with = bed.run_in(&here, &[], &["--no-quick-starts", "--mount", ".", "app.yaml"]);
    assert_eq!(with.code, 0, "{}\n{}", with.err, with.out);
    assert!(with.out.contains(&format!("in {}\n", here.display())), "{}", with.out);
    assert!(here.join("out.parquet/_SUCCESS").is_file());
}
