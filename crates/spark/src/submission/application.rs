//! From merged settings to a submission: `SparkSubmit`'s checks, and the keys it writes for Kubernetes in cluster mode.

use crate::args::{Opt, RawArgs};
use crate::input::Input;
use crate::names::{CONNECT_SERVER, NO_RESOURCE, VERSION_REFERENCE, key};
use crate::registry;
use crate::value::{check_suffix, int, java_trim, list, size_bytes, substitute};
use crate::version::{Line, SparkVersion};

use super::merge::{MergedConf, absolute, merge, reason};
use super::uri::{Resolver, check_entry};
use super::{
    Effective, MainResource, Origin, ResolveContext, Resolved, Submission, SubmissionError, VersionFrom, Written,
};
use super::{manifest, master};

/// YARN's lists, which are resolved for every master.
const YARN_LISTS: [&str; 3] = ["spark.yarn.dist.files", "spark.yarn.dist.archives", "spark.yarn.dist.jars"];

const SHELLS: [&str; 6] =
    ["spark-shell", "pyspark-shell", "sparkr-shell", "connect-shell", "pyspark-shell-main", "sparkr-shell-main"];

/// Main classes that are servers or shells, and their common names.
const NOT_IN_CLUSTER: [(&str, &str); 3] = [
    ("org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver", "the Spark SQL shell"),
    ("org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "the Spark Thrift server"),
    (CONNECT_SERVER, "the Spark Connect server"),
];

const PYTHON_RUNNER: &str = "org.apache.spark.deploy.PythonRunner";
const R_RUNNER: &str = "org.apache.spark.deploy.RRunner";

/// The examples jar in the official image.
const EXAMPLES_IN_IMAGE: &str = "local:///opt/spark/examples/jars/spark-examples.jar";

pub(super) fn resolve(args: &RawArgs, context: ResolveContext<'_>) -> Result<Resolved, SubmissionError> {
    let examples = args.example.then(|| example_jars(context));
    let resource = match &examples {
        Some(examples) => args.class().map(|_| examples.application.as_str()),
        None => args.resource.as_deref(),
    };
    let resource = resource.ok_or(SubmissionError::NoResource)?;
    let mut settings = merge(args, context)?;
    settings.fold(args, Opt::DeployMode, key::DEPLOY_MODE, Some(("DEPLOY_MODE", context)));
    check_remote(args, &settings, context)?;
    match settings.get(key::DEPLOY_MODE) {
        Some("cluster") => {}
        Some("client") | None => return Ok(Resolved::Client),
        Some(other) => {
            return Err(SubmissionError::DeployMode {
                at: settings.written(key::DEPLOY_MODE),
                value: other.to_owned(),
            });
        }
    }

    fold_options(args, &mut settings, context);
    if let Some(image) = &args.own.image
        && settings.get(key::IMAGE).is_none()
    {
        settings.set(key::IMAGE, image, Origin::Derived("the default image"));
    }
    let (version, version_from) = choose_version(args, &mut settings, context)?;
    check_version(args, &version)?;
    check_settings(args, &settings, version.line())?;
    let raw_master = settings.master(args, context).ok_or(SubmissionError::NoMaster)?;
    let (master, warning) = master::check(&raw_master)?;
    settings.warnings.extend(warning);
    set_master(args, &mut settings, &master);
    check_kind(args, resource)?;

    let resolver = Resolver { files: context.files, cwd: context.cwd };
    check_entry(resource).map_err(SubmissionError::Resource)?;
    let main = main_resource(resource, resolver);
    set_name(args, &mut settings, &main);
    check_keytab(&settings, context)?;
    if let Some(jars) = examples.as_ref().and_then(|e| e.jars.as_ref()).filter(|_| args.option(Opt::Jars).is_none()) {
        settings.set(key::JARS, jars, Origin::Derived("run-example"));
    }
    resolve_lists(args, &mut settings, resolver)?;
    let main_class = main_class(args, &main, context)?;
    append_primary_jar(&mut settings, &main);
    settings.remove(key::DRIVER_HOST);
    for list in [key::JARS, key::FILES, key::ARCHIVES].into_iter().chain(YARN_LISTS) {
        if let Some(value) = settings.get(list) {
            let resolved = resolver.uris(value);
            settings.rewrite(list, resolved);
        }
    }
    finish_py_files(&mut settings, resolver);
    if settings.get(key::SUBMIT_TIME).is_none() {
        settings.set(key::SUBMIT_TIME, context.now_ms.to_string(), Origin::Derived("the time of this submission"));
    }
    warn_ignored(args, &mut settings);
    let found = registry::check(&settings.conf, &version);
    settings.warnings.extend(found.iter().map(ToString::to_string));

    let submission = Submission {
        conf: settings.conf,
        version,
        main,
        main_class,
        arguments: args.arguments.clone(),
        proxy_user: args.option(Opt::ProxyUser).map(str::to_owned),
    };
    Ok(Resolved::Submit(Box::new(Effective {
        submission,
        provenance: settings.origins,
        version_from,
        warnings: settings.warnings,
    })))
}

fn check_remote(args: &RawArgs, settings: &MergedConf, context: ResolveContext<'_>) -> Result<(), SubmissionError> {
    let remote = args.option(Opt::Remote).is_some()
        || settings.get(key::REMOTE).is_some()
        || context.env.contains_key("SPARK_REMOTE");
    let other = settings.master(args, context).is_some() || settings.get(key::DEPLOY_MODE).is_some();
    if remote && other { Err(SubmissionError::Remote) } else { Ok(()) }
}

/// Options that set a key, and the environment variables that some of them fall back to.
fn fold_options(args: &RawArgs, settings: &mut MergedConf, context: ResolveContext<'_>) {
    settings.default_from_env(key::DRIVER_MEMORY, "SPARK_DRIVER_MEMORY", context);
    settings.fold(args, Opt::DriverCores, key::DRIVER_CORES, None);
    settings.fold(args, Opt::ExecutorMemory, key::EXECUTOR_MEMORY, Some(("SPARK_EXECUTOR_MEMORY", context)));
    settings.fold(args, Opt::ExecutorCores, key::EXECUTOR_CORES, Some(("SPARK_EXECUTOR_CORES", context)));
    settings.fold(args, Opt::NumExecutors, key::EXECUTOR_INSTANCES, None);
    settings.fold(args, Opt::Packages, key::PACKAGES, None);
    settings.fold(args, Opt::ExcludePackages, key::EXCLUDE_PACKAGES, None);
    settings.fold(args, Opt::Repositories, key::REPOSITORIES, None);
    settings.fold(args, Opt::Principal, key::PRINCIPAL, None);
    settings.fold(args, Opt::Keytab, key::KEYTAB, None);
    for (modern, old) in [(key::PRINCIPAL, "spark.yarn.principal"), (key::KEYTAB, "spark.yarn.keytab")] {
        if settings.get(modern).is_none()
            && let Some(value) = settings.get(old).map(str::to_owned)
        {
            settings.set(modern, value, Origin::Derived("the older key under spark.yarn."));
        }
    }
}

fn set_master(args: &RawArgs, settings: &mut MergedConf, master: &str) {
    if args.option(Opt::Master).is_some() {
        settings.set(key::MASTER, master, Origin::Flag("--master"));
    } else if settings.get(key::MASTER).is_some() {
        settings.rewrite(key::MASTER, master);
    } else {
        settings.set(key::MASTER, master, Origin::Environment("MASTER"));
    }
}

/// `SparkSubmit`'s checks before it checks the master.
fn check_settings(args: &RawArgs, settings: &MergedConf, line: Line) -> Result<(), SubmissionError> {
    for key in [key::DRIVER_DEFAULT_JAVA_OPTIONS, key::DRIVER_JAVA_OPTIONS] {
        if let Some(value) = settings.get(key).filter(|v| v.contains("Xmx")) {
            return Err(SubmissionError::HeapOption { at: settings.written(key), value: value.to_owned() });
        }
    }
    for key in [key::DRIVER_MEMORY, key::EXECUTOR_MEMORY] {
        let Some(value) = settings.get(key) else { continue };
        let at = settings.written(key);
        match check_suffix(value, line).and_then(|()| size_bytes(value)) {
            Ok(bytes) if bytes > 0 => {}
            Ok(_) => return Err(SubmissionError::NoMemory { at, value: value.to_owned() }),
            Err(problem) => return Err(SubmissionError::Memory { at, problem }),
        }
    }
    for key in [key::DRIVER_MEMORY_OVERHEAD, key::DRIVER_MIN_MEMORY_OVERHEAD] {
        let checked = settings.get(key).map_or(Ok(()), |value| check_suffix(value, line));
        checked.map_err(|problem| SubmissionError::Memory { at: settings.written(key), problem })?;
    }
    let dynamic = settings.get(key::DYNAMIC_ALLOCATION).is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let total = args.option(Opt::TotalExecutorCores).or_else(|| settings.get(key::TOTAL_CORES));
    let counts = [
        (key::DRIVER_CORES, settings.get(key::DRIVER_CORES), ""),
        (key::EXECUTOR_CORES, settings.get(key::EXECUTOR_CORES), ""),
        (key::TOTAL_CORES, total, ""),
        (
            key::EXECUTOR_INSTANCES,
            settings.get(key::EXECUTOR_INSTANCES).filter(|_| !dynamic),
            ", or set spark.dynamicAllocation.enabled=true",
        ),
    ];
    for (key, value, hint) in counts {
        // Spark's check allows no white space around the number.
        if let Some(value) = value
            && !int(value).is_ok_and(|n| n > 0 && java_trim(value) == value)
        {
            let at = if key == key::TOTAL_CORES && args.option(Opt::TotalExecutorCores).is_some() {
                Written { key, origin: Some(Origin::Flag(Opt::TotalExecutorCores.flag())) }
            } else {
                settings.written(key)
            };
            return Err(SubmissionError::Count { at, value: value.to_owned(), hint });
        }
    }
    if args.option(Opt::ProxyUser).is_some() && settings.get(key::PRINCIPAL).is_some() {
        return Err(SubmissionError::ProxyAndPrincipal);
    }
    const STEPS: &str = key::DRIVER_FEATURE_STEPS;
    if let Some(value) = settings.get(STEPS).filter(|v| !list(v).is_empty()) {
        return Err(SubmissionError::FeatureSteps { key: STEPS, value: value.to_owned() });
    }
    Ok(())
}

/// Shells and servers cannot run in cluster mode.
fn check_kind(args: &RawArgs, resource: &str) -> Result<(), SubmissionError> {
    if SHELLS.contains(&resource) {
        return Err(SubmissionError::NotInCluster { input: Input::Application, what: format!("a shell ({resource})") });
    }
    let kept = |class: &str| args.own.connect_server && class == CONNECT_SERVER;
    if let Some((_, what)) = NOT_IN_CLUSTER.iter().find(|(class, _)| args.class() == Some(*class) && !kept(class)) {
        return Err(SubmissionError::NotInCluster {
            input: Input::Option(Opt::Class.flag()),
            what: (*what).to_owned(),
        });
    }
    Ok(())
}

/// `--spark-version`, else the driver image's tag, else the Spark in `SPARK_HOME`, else the oldest line that supports the
/// settings: newer lines create objects that an older Spark does not use and the submitter may have no permission for,
/// while a newer driver works without them.
fn choose_version(
    args: &RawArgs,
    settings: &mut MergedConf,
    context: ResolveContext<'_>,
) -> Result<(SparkVersion, VersionFrom), SubmissionError> {
    if let Some(version) = &args.own.spark_version {
        return Ok((version.clone(), VersionFrom::Flag));
    }
    let key = [key::DRIVER_IMAGE, key::IMAGE].into_iter().find(|key| settings.get(key).is_some());
    let image = key.and_then(|key| settings.get(key)).map(|image| substitute(image, &settings.conf, context.env));
    if let Some(version) = image.as_deref().and_then(SparkVersion::from_image) {
        return Ok((version, VersionFrom::ImageTag));
    }
    let too_old = image.as_deref().and_then(SparkVersion::too_old_in);
    if let Some(version) = version_of_home(context).filter(|_| too_old.is_none()) {
        return Ok((version, VersionFrom::SparkHome));
    }
    let (Some(key), Some(image)) = (key, image.as_deref()) else {
        // Planning will fail for lack of an image.
        return Ok((SparkVersion::newest(), VersionFrom::Assumed));
    };
    if image.contains(VERSION_REFERENCE) {
        return Err(SubmissionError::ImageVersion { key, image: image.to_owned() });
    }
    let line = if newer_flag(args).is_some() { Line::V4_0 } else { Line::V3_5 };
    let line = line.max(registry::oldest(&settings.conf));
    settings.warnings.push(match too_old {
        Some(version) => {
            format!("{image} is Spark {version}, older than any version Firesteel supports: planning for Spark {line}")
        }
        None => format!(
            "the Spark version in {image} is unknown: planning for Spark {line}, the oldest line that supports the \
             settings; add --spark-version, such as --spark-version {}",
            SparkVersion::newest()
        ),
    });
    Ok((SparkVersion::assumed(line), VersionFrom::Assumed))
}

/// The version of the Spark in `SPARK_HOME`: from the RELEASE file of a distribution, or the jars of a Python package.
fn version_of_home(context: ResolveContext<'_>) -> Option<SparkVersion> {
    let home = context.env.get("SPARK_HOME").filter(|home| !home.is_empty())?;
    let home = absolute(home.trim_end_matches('/'), context.cwd);
    let release = context.files.read(&format!("{home}/RELEASE")).ok();
    release.and_then(|text| SparkVersion::from_release(&String::from_utf8_lossy(&text))).or_else(|| {
        let jars = context.files.list(&format!("{home}/jars")).ok()?;
        jars.iter().find_map(|(name, _)| SparkVersion::from_core_jar(name))
    })
}

/// An option on the command line that was added in Spark 4.0.
fn newer_flag(args: &RawArgs) -> Option<&'static str> {
    let class_path = "--driver-default-class-path";
    let used = [
        ("--load-spark-defaults", args.load_spark_defaults),
        (class_path, args.settings.iter().any(|s| s.origin == Origin::Flag(class_path))),
    ];
    used.into_iter().find(|(_, used)| *used).map(|(flag, _)| flag)
}

/// Refuses options that this version of Spark does not have.
fn check_version(args: &RawArgs, version: &SparkVersion) -> Result<(), SubmissionError> {
    match newer_flag(args) {
        Some(flag) if version.line() < Line::V4_0 => {
            Err(SubmissionError::FlagTooNew { flag, version: version.to_string(), since: "4.0" })
        }
        _ => Ok(()),
    }
}

fn main_resource(resource: &str, resolver: Resolver<'_>) -> MainResource {
    if resource == NO_RESOURCE {
        MainResource::None
    } else if resource.ends_with(".py") {
        MainResource::Python(resolver.uri(resource))
    } else if resource.ends_with(".R") || resource.ends_with(".r") {
        MainResource::R(resolver.uri(resource))
    } else {
        MainResource::Jar(resolver.uri(resource))
    }
}

/// `--name`, `spark.app.name`, `--class`, or the file name of the primary resource. A class from a jar's
/// manifest is not used.
fn set_name(args: &RawArgs, settings: &mut MergedConf, main: &MainResource) {
    if let Some(name) = args.option(Opt::Name) {
        settings.set(key::APP_NAME, name, Origin::Flag("--name"));
    } else if settings.get(key::APP_NAME).is_some() {
    } else if let Some(class) = args.class() {
        settings.set(key::APP_NAME, class, Origin::Derived("the main class"));
    } else {
        let uri = match main {
            MainResource::Jar(uri) | MainResource::Python(uri) | MainResource::R(uri) => uri,
            MainResource::None => NO_RESOURCE,
        };
        let name = uri.trim_end_matches('/').rsplit('/').next().unwrap_or(uri);
        settings.set(key::APP_NAME, name, Origin::Derived("the file name of the application"));
    }
}

fn check_keytab(settings: &MergedConf, context: ResolveContext<'_>) -> Result<(), SubmissionError> {
    match (settings.get(key::PRINCIPAL), settings.get(key::KEYTAB)) {
        (Some(_), Some(keytab)) if !keytab.starts_with("local:") => {
            let path = absolute(keytab, context.cwd);
            context.files.read(&path).map(drop).map_err(|_| SubmissionError::NoKeytab(keytab.to_owned()))
        }
        _ => Ok(()),
    }
}

/// `--jars`, `--files`, `--archives`, `--py-files` or their keys: URIs, globs expanded.
fn resolve_lists(args: &RawArgs, settings: &mut MergedConf, resolver: Resolver<'_>) -> Result<(), SubmissionError> {
    let lists = [
        (Opt::Jars, key::JARS),
        (Opt::Files, key::FILES),
        (Opt::PyFiles, key::PY_FILES),
        (Opt::Archives, key::ARCHIVES),
    ];
    for (opt, key) in lists {
        if let Some(value) = args.option(opt) {
            settings.set(key, value, Origin::Flag(opt.flag()));
            let at = settings.written(key);
            let checked = list(value).into_iter().try_for_each(check_entry);
            checked.map_err(|problem| SubmissionError::Entry { at, problem })?;
            settings.rewrite(key, resolver.uris(value));
        }
        let Some(value) = settings.get(key).map(str::to_owned) else { continue };
        let from = settings.from(key);
        let mut dropped = Vec::new();
        let expanded = resolver
            .globs(&value, &mut |uri| dropped.push(uri.to_owned()))
            .map_err(|problem| SubmissionError::Entry { at: settings.written(key), problem })?;
        settings
            .warnings
            .extend(dropped.iter().map(|uri| format!("{key} ({from}): {uri} is ignored: no regular file found there")));
        settings.rewrite(key, expanded);
    }
    Ok(())
}

/// What `run-example` runs.
struct Examples {
    application: String,
    /// All jars of the examples directory, unless they are in the image.
    jars: Option<String>,
}

/// The examples of the Spark in `SPARK_HOME`, as in Spark, else those in the image.
fn example_jars(context: ResolveContext<'_>) -> Examples {
    let found = context.env.get("SPARK_HOME").and_then(|home| {
        let dir = format!("{}/examples/jars", absolute(home, context.cwd).trim_end_matches('/'));
        let mut names: Vec<String> = context.files.list(&dir).ok()?.into_iter().map(|(name, _)| name).collect();
        names.sort();
        let application = names.iter().find(|name| name.starts_with("spark-examples"))?;
        let jars: Vec<String> = names.iter().map(|name| format!("{dir}/{name}")).collect();
        Some(Examples { application: format!("{dir}/{application}"), jars: Some(jars.join(",")) })
    });
    found.unwrap_or_else(|| Examples { application: EXAMPLES_IN_IMAGE.to_owned(), jars: None })
}

fn main_class(args: &RawArgs, main: &MainResource, context: ResolveContext<'_>) -> Result<String, SubmissionError> {
    let jar = match main {
        MainResource::Python(_) => return Ok(PYTHON_RUNNER.to_owned()),
        MainResource::R(_) => return Ok(R_RUNNER.to_owned()),
        MainResource::Jar(uri) => uri.as_str(),
        MainResource::None => NO_RESOURCE,
    };
    if let Some(class) = args.class() {
        return Ok(class.to_owned());
    }
    let unknown = |reason: String| SubmissionError::NoMainClass { resource: jar.to_owned(), reason };
    if !jar.starts_with("file:") {
        let why = if jar == NO_RESOURCE {
            "there is no jar to look into"
        } else if jar.starts_with("local:") {
            "the jar is inside the image"
        } else {
            "the jar is not on this machine"
        };
        return Err(unknown(why.to_owned()));
    }
    let bytes = context.files.read(jar).map_err(|e| unknown(reason(&e)))?;
    manifest::main_class(&bytes).map_err(|why| unknown(why.to_owned()))
}

/// For Java and Scala the key is always set, with the primary jar last.
fn append_primary_jar(settings: &mut MergedConf, main: &MainResource) {
    let mut jars: Vec<String> = match settings.get(key::JARS) {
        Some(jars) => list(jars).into_iter().map(str::to_owned).collect(),
        None => vec![],
    };
    match main {
        MainResource::Python(_) | MainResource::R(_) => return,
        MainResource::Jar(uri) => jars.push(uri.clone()),
        MainResource::None => {}
    }
    let jars = jars.join(",");
    if settings.get(key::JARS).is_some() {
        settings.rewrite(key::JARS, jars);
    } else {
        settings.set(key::JARS, jars, Origin::Derived("the application's jar"));
    }
}

/// `spark.submit.pyFiles` is always written, possibly empty.
fn finish_py_files(settings: &mut MergedConf, resolver: Resolver<'_>) {
    match settings.get(key::PY_FILES) {
        Some(value) => {
            let resolved = resolver.uris(&list(value).join(","));
            settings.rewrite(key::PY_FILES, resolved);
        }
        None => settings.set(key::PY_FILES, "", Origin::Derived("always written by spark-submit")),
    }
}

fn warn_ignored(args: &RawArgs, settings: &mut MergedConf) {
    let mut ignored = Vec::new();
    if args.supervise {
        ignored.push("--supervise");
    }
    for opt in [Opt::Queue, Opt::TotalExecutorCores] {
        if args.option(opt).is_some() {
            ignored.push(opt.flag());
        }
    }
    settings.warnings.extend(ignored.iter().map(|flag| format!("{flag} has no effect on Kubernetes")));
}
