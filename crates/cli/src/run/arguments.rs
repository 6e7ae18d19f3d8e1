//! spark-submit's arguments for the local cluster: fills in defaults and makes local files visible.
//!
//! The application sees the current directory and runs with the Python of the active environment. Pod templates carry that into
//! the pods, because they reach executors with every allocator.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use firesteel_api::ExecutorGrant;
use firesteel_spark::args::{self, ArgsError, Opt};
use firesteel_spark::driver::DriverPlan;
use firesteel_spark::names::{DRIVER_CONTAINER, EXECUTOR_CONTAINER, key};
use firesteel_spark::submission::{self, Effective, MainResource, ResolveContext, Resolved, is_local_file};
use firesteel_spark::{Files, SparkConf, Templates};

use crate::context;
use crate::disk::Disk;
use crate::exit::BadInput;
use crate::run::files::{self, StagedFiles};
use crate::run::mounts::{Mounts, User, Which};
use crate::run::{Place, call, python};

/// The Spark release to run if no image is given.
const DEFAULT_SPARK: &str = "4.1.4";
const IMAGE: &str = "spark.kubernetes.container.image";
const LISTS: [&str; 4] = ["spark.jars", "spark.files", "spark.submit.pyFiles", "spark.archives"];

/// A submission that passed all checks that need no cluster.
pub(crate) struct Wanted {
    effective: Effective,
    mounts: Mounts,
}

/// What to create, and messages about it.
pub(crate) struct Planned {
    pub(crate) driver: DriverPlan,
    pub(crate) grant: Option<ExecutorGrant>,
    pub(crate) warnings: Vec<String>,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn read(arguments: &[String], wishes: &[String], place: &Place) -> anyhow::Result<Wanted> {
    let wrong = |error: &dyn std::fmt::Display| BadInput(error.to_string());
    let mut raw = args::parse(arguments).map_err(|error| match error {
        ArgsError::UnknownOption { option, .. } if call::is_own(&option) => {
            BadInput(format!("{option} is an option of `firesteel run`: put it before spark-submit's options"))
        }
        other => wrong(&other),
    })?;
    if let Some(manifest) = raw.resource.as_deref().filter(|word| call::is_manifest(word)) {
        let message = format!(
            "spark-submit options cannot be used with a manifest: set them in {manifest} (spec.sparkConf and the fields \
             beside it)"
        );
        return Err(BadInput(message).into());
    }
    let own = &raw.own;
    if own.dry_run || own.explain || own.output.is_some() {
        let message =
            "--dry-run, --explain and --output belong to `firesteel submit`: `run` always runs the application";
        return Err(BadInput(message.to_owned()).into());
    }
    // There is only the local cluster, and its drivers are pods.
    raw.options.insert(Opt::Master, "k8s://https://127.0.0.1".to_owned());
    raw.options.insert(Opt::DeployMode, "cluster".to_owned());
    raw.own.image = Some(default_image());
    let context = context::look(&Disk);
    let env = context.env;
    let cwd = place.cwd.as_path();
    let context = ResolveContext { env: &env, files: &Disk, cwd: &cwd.to_string_lossy(), now_ms: context::now() };
    match submission::resolve(&raw, context).map_err(|e| wrong(&e))? {
        Resolved::Submit(mut effective) => {
            check_files(&effective)?;
            let mut mounts = Mounts::of_directory(wishes, cwd, place.logical.as_deref(), User::own())?;
            mounts.show_arguments(&effective.submission.arguments, cwd);
            show_script(&mut effective, &mut mounts);
            choose_python(&mut effective, &env, cwd, &mut mounts)?;
            Ok(Wanted { effective: *effective, mounts })
        }
        Resolved::Client
        | Resolved::Kill(_)
        | Resolved::Status(_)
        | Resolved::Version
        | Resolved::Help
        | Resolved::UsageError => {
            let message = "`firesteel run` needs an application: a manifest (.yaml), a .jar or a .py file; \
                           --kill, --status and --version belong to `firesteel submit`";
            Err(BadInput(message.to_owned()).into())
        }
    }
}

/// Checks that all local files exist before anything is started.
fn check_files(effective: &Effective) -> Result<(), BadInput> {
    let submission = &effective.submission;
    let main = match &submission.main {
        MainResource::Jar(uri) | MainResource::Python(uri) | MainResource::R(uri) => Some(uri.as_str()),
        MainResource::None => None,
    };
    let listed = LISTS.iter().filter_map(|key| submission.conf.get(*key)).flat_map(|list| list.split(','));
    for uri in main.into_iter().chain(listed).filter(|uri| !uri.is_empty() && is_local_file(uri)) {
        files::find(uri, Path::new("/"))?;
    }
    Ok(())
}

/// Runs a script in place, so that it finds the modules and files next to it. A jar is copied, because it may be rebuilt while
/// it runs.
fn show_script(effective: &mut Effective, mounts: &mut Mounts) {
    let submission = &mut effective.submission;
    let (MainResource::Python(uri) | MainResource::R(uri)) = &mut submission.main else { return };
    if !is_local_file(uri) {
        return;
    }
    let Ok(Some(path)) = files::find(uri, Path::new("/")) else { return };
    let directory = path.parent().unwrap_or(Path::new("/"));
    // If its directory cannot be mounted, the script alone is copied.
    if mounts.show(directory).is_ok()
        && let Some(path) = path.to_str()
    {
        *uri = files::local_uri(path);
    }
}

/// Runs a Python application with the Python of the active environment, unless its settings name one.
fn choose_python(
    effective: &mut Effective,
    env: &BTreeMap<String, String>,
    cwd: &Path,
    mounts: &mut Mounts,
) -> Result<(), BadInput> {
    let conf = &mut effective.submission.conf;
    let of_pod = format!("{}{}", key::DRIVER_ENV_PREFIX, firesteel_spark::names::env::PYSPARK_PYTHON);
    if !matches!(effective.submission.main, MainResource::Python(_)) || conf.contains_key(&of_pod) {
        return Ok(());
    }
    let chosen = match conf.get(key::PYSPARK_PYTHON) {
        Some(program) => python::named(program),
        None => {
            let (python, word) = python::active(env, cwd)?;
            effective.warnings.extend(word);
            python
        }
    };
    let Some(python) = chosen else { return Ok(()) };
    for place in &python.needs {
        if let Err(why) = mounts.show(place) {
            let place = place.display();
            effective.warnings.push(format!("pods do not see {place}, which their Python needs: {why}"));
        }
    }
    if let Some(program) = python.program.to_str() {
        conf.insert(key::PYSPARK_PYTHON.to_owned(), program.to_owned());
    }
    Ok(())
}

/// The pod templates of both roles, the user's if given, with the mounts added. A template that cannot be read is left to the
/// plan, which reports it.
fn templates(conf: &SparkConf, mounts: &Mounts) -> Templates {
    if mounts.is_empty() {
        return Templates::default();
    }
    let of = |template: &str, container: &str, volumes: &str, usual: &str| {
        let mut pod = match conf.get(template) {
            None => serde_json::json!({}),
            Some(path) => {
                let text = String::from_utf8(Disk.read(path).ok()?).ok()?;
                serde_saphyr::from_str(&text).ok()?
            }
        };
        let is_mount = |name: &str| name.starts_with(volumes) && name.ends_with(".mount.path");
        let taken: BTreeSet<String> = conf
            .iter()
            .filter(|(name, _)| is_mount(name))
            .map(|(_, path)| path.trim_end_matches('/').to_owned())
            .collect();
        mounts.put_into(&mut pod, Which::Spark(conf.get(container).map(String::as_str), usual), &taken);
        serde_json::from_value(pod).ok()
    };
    Templates {
        driver: of(key::DRIVER_TEMPLATE, key::DRIVER_TEMPLATE_CONTAINER, key::DRIVER_VOLUMES_PREFIX, DRIVER_CONTAINER),
        executor: of(
            key::EXECUTOR_TEMPLATE,
            key::EXECUTOR_TEMPLATE_CONTAINER,
            key::EXECUTOR_VOLUMES_PREFIX,
            EXECUTOR_CONTAINER,
        ),
    }
}

impl Wanted {
    /// The images its pods use.
    pub(crate) fn images(&self) -> Vec<String> {
        let conf = &self.effective.submission.conf;
        let named = ["spark.kubernetes.driver.container.image", "spark.kubernetes.executor.container.image", IMAGE];
        let mut images: Vec<String> = named.iter().filter_map(|key| conf.get(*key).cloned()).collect();
        images.dedup();
        images
    }

    /// The plan for the cluster at `url`.
    pub(crate) fn plan(mut self, url: &str, staged: &mut StagedFiles) -> anyhow::Result<Planned> {
        let submission = &mut self.effective.submission;
        let conf = &mut submission.conf;
        conf.insert("spark.master".to_owned(), format!("k8s://{url}"));
        let mut usual = |key: &str, value: &str| {
            conf.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        };
        usual("spark.kubernetes.authenticate.driver.serviceAccountName", "spark");
        usual("spark.kubernetes.namespace", "default");
        // All pods share one machine's CPUs; requesting whole ones would only keep some pods from starting.
        usual("spark.kubernetes.driver.request.cores", "100m");
        usual("spark.kubernetes.executor.request.cores", "100m");
        // On one machine, a longer delay between batches only costs time.
        usual("spark.kubernetes.allocation.batch.delay", "1s");
        // Spark's default encodes a space as `%20` and takes that literally: another directory, which pods do not share.
        let strange = |text: &&str| text.contains(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
        if let Some(directory) = self.mounts.working_dir().filter(strange) {
            usual("spark.sql.warehouse.dir", &format!("{directory}/spark-warehouse"));
        }
        let nowhere = Path::new("/");
        let mut ship = |text: &str| -> anyhow::Result<String> {
            if !is_local_file(text) {
                return Ok(text.to_owned());
            }
            Ok(files::ship(staged, text, nowhere)?.unwrap_or_else(|| text.to_owned()))
        };
        match &mut submission.main {
            MainResource::Jar(uri) | MainResource::Python(uri) | MainResource::R(uri) => *uri = ship(uri)?,
            MainResource::None => {}
        }
        for key in LISTS {
            let Some(list) = submission.conf.get(key).filter(|l| !l.is_empty()).cloned() else { continue };
            let shipped = list.split(',').map(&mut ship).collect::<anyhow::Result<Vec<String>>>()?;
            submission.conf.insert(key.to_owned(), shipped.join(","));
        }
        if !staged.is_empty() {
            for role in ["driver", "executor"] {
                let volume = format!("spark.kubernetes.{role}.volumes.hostPath.{}", files::VOLUME);
                let path = staged.directory().to_string_lossy().into_owned();
                submission.conf.insert(format!("{volume}.options.path"), path);
                submission.conf.insert(format!("{volume}.mount.path"), files::MOUNT.to_owned());
                submission.conf.insert(format!("{volume}.mount.readOnly"), "true".to_owned());
            }
        }
        let mut context = context::look(&Disk);
        context.templates = templates(&submission.conf, &self.mounts);
        let secret = context::secret();
        let (driver, grant) =
            firesteel_core::grant::plan(submission, &context, &secret).map_err(|e| BadInput(e.to_string()))?;
        let mut warnings = self.effective.warnings;
        warnings.extend(driver.warnings.iter().cloned());
        Ok(Planned { driver, grant, warnings, notes: self.mounts.notes().to_vec() })
    }
}

fn default_image() -> String {
    format!("apache/spark:{DEFAULT_SPARK}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodSpec, VolumeMount};

    fn wanted(arguments: &[&str]) -> Wanted {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        read(&arguments, &[], &Place { cwd: "/".into(), logical: None }).expect("an application")
    }

    #[test]
    fn a_run_without_an_image_is_planned_for_the_spark_it_runs() {
        let usual = wanted(&["local:///opt/app.py"]);
        assert_eq!(usual.effective.submission.version.to_string(), DEFAULT_SPARK);
        assert_eq!((usual.images(), usual.effective.warnings.len()), (vec![default_image()], 0));
        let named = wanted(&["--conf", "spark.kubernetes.container.image=apache/spark:3.5.9", "local:///opt/app.py"]);
        assert_eq!(named.effective.submission.version.to_string(), "3.5.9");
        assert_eq!(named.images(), ["apache/spark:3.5.9"]);
    }

    const ALLOCATORS: [&str; 5] =
        ["direct", "statefulset", "firesteel", "firesteel-replicaset", "firesteel-statefulset"];

    /// A directory with one of each kind of main file, and a script elsewhere.
    fn machine() -> (tempfile::TempDir, Place, String) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["here", "there"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let cwd = root.join("here");
        for name in ["job.py", "job.R", "lib.zip", "app.jar"] {
            std::fs::write(cwd.join(name), "").unwrap();
        }
        let elsewhere = root.join("there/job.py");
        std::fs::write(&elsewhere, "").unwrap();
        (directory, Place { cwd, logical: None }, elsewhere.to_string_lossy().into_owned())
    }

    fn planned(words: &[&str], wishes: &[&str], place: &Place) -> Planned {
        let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<String>>();
        let mut staged = StagedFiles::at(place.cwd.with_file_name("staged"));
        read(&owned(words), &owned(wishes), place).unwrap().plan("https://127.0.0.1:6443", &mut staged).unwrap()
    }

    /// A mount inside a read-only one, where its mount point cannot be created.
    fn buried(spec: &PodSpec) -> Option<(String, String)> {
        let inside = |one: &VolumeMount, other: &VolumeMount| {
            one.read_only == Some(true) && other.mount_path.starts_with(&format!("{}/", one.mount_path))
        };
        spec.containers.iter().find_map(|container| {
            let mounts = container.volume_mounts.as_deref().unwrap_or_default();
            let pairs = mounts.iter().flat_map(|one| mounts.iter().map(move |other| (one, other)));
            let found = pairs.into_iter().find(|(one, other)| inside(one, other));
            found.map(|(one, other)| (one.mount_path.clone(), other.mount_path.clone()))
        })
    }

    #[test]
    fn no_volume_lies_inside_a_read_only_one_whatever_is_run_and_whoever_allocates() {
        let (_directory, place, elsewhere) = machine();
        let kinds: [&[&str]; 6] = [
            &["job.py"],
            &["--py-files", "lib.zip", "job.py"],
            &["--py-files", "lib.zip", &elsewhere],
            &["job.R"],
            &["--class", "Main", "app.jar"],
            &["--class", "Main", "local:///opt/spark/examples/jars/spark-examples.jar"],
        ];
        for allocator in ALLOCATORS {
            for kind in kinds {
                let setting = format!("{}={allocator}", key::ALLOCATOR);
                let words: Vec<&str> = ["--conf", &setting].into_iter().chain(kind.iter().copied()).collect();
                let planned = planned(&words, &[], &place);
                let driver = planned.driver.pod.spec.unwrap();
                assert_eq!(buried(&driver), None, "{allocator}, {kind:?}");
                let executor = planned.grant.map(|grant| grant.spec.template.spec.unwrap());
                assert_eq!(executor.is_some(), allocator.starts_with("firesteel"), "{allocator}");
                assert_eq!(executor.as_ref().and_then(buried), None, "{allocator}, {kind:?}");
            }
        }
    }

    #[test]
    fn driver_and_executors_see_the_directory_whoever_allocates_and_keep_a_template_of_the_users() {
        let (_directory, place, _) = machine();
        let template = "spec: {containers: [{name: mine, env: [{name: A, value: b}]}], serviceAccountName: other}";
        std::fs::write(place.cwd.join("executor.yaml"), template).unwrap();
        let setting = format!("{}={}", key::EXECUTOR_TEMPLATE, place.cwd.join("executor.yaml").display());
        for allocator in ALLOCATORS {
            let allocator = format!("{}={allocator}", key::ALLOCATOR);
            let planned = planned(&["--conf", &allocator, "--conf", &setting, "job.py"], &["../there:ro"], &place);
            let carried = planned.driver.objects.iter().find_map(|object| match object {
                firesteel_spark::driver::Object::ConfigMap(map) => map.data.as_ref()?.get("podspec-configmap-key"),
                _ => None,
            });
            let carried: serde_json::Value =
                serde_json::from_str(carried.expect("a template for the driver's Spark")).unwrap();
            let carried: PodSpec = serde_json::from_value(carried["spec"].clone()).unwrap();
            let granted = planned.grant.map(|grant| grant.spec.template.spec.unwrap());
            for spec in [Some(&carried), granted.as_ref(), planned.driver.pod.spec.as_ref()].into_iter().flatten() {
                let container = &spec.containers[0];
                assert_eq!(container.working_dir.as_deref(), place.cwd.to_str(), "{allocator}");
                let mounts = container.volume_mounts.as_deref().unwrap_or_default();
                let read_only =
                    |path: &Path| mounts.iter().find(|m| Path::new(&m.mount_path) == path).map(|m| m.read_only);
                assert_eq!(read_only(&place.cwd), Some(None), "{allocator}: {mounts:?}");
                assert_eq!(read_only(&place.cwd.with_file_name("there")), Some(Some(true)), "{allocator}: {mounts:?}");
                let user = container.security_context.as_ref().and_then(|context| context.run_as_user);
                assert_eq!(user, Some(i64::from(nix::unistd::geteuid().as_raw())), "{allocator}");
            }
            for spec in [Some(&carried), granted.as_ref()].into_iter().flatten() {
                assert_eq!(spec.containers[0].name, "mine");
                assert!(spec.containers[0].env.iter().flatten().any(|e| e.name == "A"), "{allocator}");
            }
        }
    }

    #[test]
    fn a_script_runs_where_it_lies_and_a_jar_is_a_copy() {
        let (_directory, place, elsewhere) = machine();
        let main = |words: &[&str]| {
            let planned = planned(words, &[], &place);
            let args = planned.driver.pod.spec.unwrap().containers[0].args.clone().unwrap();
            let jars = planned.driver.properties.get("spark.jars").cloned().unwrap_or_default();
            (args.last().cloned().unwrap_or_default(), jars)
        };
        assert_eq!(main(&["job.py"]).0, format!("local://{}/job.py", place.cwd.display()));
        assert_eq!(main(&[&elsewhere]).0, format!("local://{elsewhere}"));
        let (main, jars) = main(&["--class", "Main", "app.jar"]);
        assert!(main.starts_with("local:///opt/firesteel/files/") && jars.contains("/app.jar"), "{main} {jars}");
    }
}
