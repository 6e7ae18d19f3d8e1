//! Arguments of spark-submit, read for the local cluster: what is missing is filled in, local files are made visible.

use std::path::Path;

use firesteel_api::ExecutorGrant;
use firesteel_spark::args::{self, ArgsError, Opt};
use firesteel_spark::driver::DriverPlan;
use firesteel_spark::submission::{self, Around, Effective, MainResource, Resolved, is_local_file};

use crate::exit::BadInput;
use crate::run::call;
use crate::run::files::{self, Shelf};
use crate::submit::disk::Disk;
use crate::submit::surroundings;

/// The release of Spark that is run when no image is named.
const DEFAULT_SPARK: &str = "4.1.4";
const IMAGE: &str = "spark.kubernetes.container.image";
const LISTS: [&str; 4] = ["spark.jars", "spark.files", "spark.submit.pyFiles", "spark.archives"];

/// A submission that is right as far as that needs no cluster.
pub(crate) struct Wanted {
    effective: Effective,
}

pub(crate) fn read(arguments: &[String]) -> anyhow::Result<Wanted> {
    let wrong = |error: &dyn std::fmt::Display| BadInput(error.to_string());
    let mut raw = args::parse(arguments).map_err(|error| match error {
        ArgsError::UnknownOption { option, .. } if call::is_own(&option) => {
            BadInput(format!("{option} is an option of `firesteel run`: write it before those of spark-submit"))
        }
        other => wrong(&other),
    })?;
    if let Some(manifest) = raw.resource.as_deref().filter(|word| call::is_manifest(word)) {
        let message = format!(
            "options of spark-submit do not go with a manifest: write what they say into {manifest} (spec.sparkConf and the \
             fields beside it)"
        );
        return Err(BadInput(message).into());
    }
    let own = &raw.own;
    if own.dry_run || own.explain || own.output.is_some() {
        let message = "--dry-run, --explain and --output belong to `firesteel submit`: `run` runs what it is given";
        return Err(BadInput(message.to_owned()).into());
    }
    // There is one cluster to run on, and its drivers are pods.
    raw.options.insert(Opt::Master, "k8s://https://127.0.0.1".to_owned());
    raw.options.insert(Opt::DeployMode, "cluster".to_owned());
    raw.own.image = Some(default_image());
    let around = surroundings::look(&Disk);
    let cwd = std::env::current_dir().map_err(|e| BadInput(format!("there is no working directory: {e}")))?;
    let around = Around { env: &around.env, files: &Disk, cwd: &cwd.to_string_lossy(), now_ms: surroundings::now() };
    match submission::resolve(&raw, around).map_err(|e| wrong(&e))? {
        Resolved::Submit(effective) => {
            check_files(&effective)?;
            Ok(Wanted { effective: *effective })
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

/// All local files must be there before anything is started.
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
    pub(crate) fn plan(
        mut self,
        url: &str,
        shelf: &mut Shelf,
    ) -> anyhow::Result<(DriverPlan, Option<ExecutorGrant>, Vec<String>)> {
        let submission = &mut self.effective.submission;
        let conf = &mut submission.conf;
        conf.insert("spark.master".to_owned(), format!("k8s://{url}"));
        let mut usual = |key: &str, value: &str| {
            conf.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        };
        usual("spark.kubernetes.authenticate.driver.serviceAccountName", "spark");
        usual("spark.kubernetes.namespace", "default");
        // All pods share the processors of one machine; asking for whole ones would only keep some from starting.
        usual("spark.kubernetes.driver.request.cores", "100m");
        usual("spark.kubernetes.executor.request.cores", "100m");
        // On one machine waiting for executors in batches only costs time.
        usual("spark.kubernetes.allocation.batch.delay", "1s");
        let nowhere = Path::new("/");
        let mut ship = |text: &str| -> anyhow::Result<String> {
            if !is_local_file(text) {
                return Ok(text.to_owned());
            }
            Ok(files::ship(shelf, text, nowhere)?.unwrap_or_else(|| text.to_owned()))
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
        if !shelf.is_empty() {
            for role in ["driver", "executor"] {
                let volume = format!("spark.kubernetes.{role}.volumes.hostPath.{}", files::VOLUME);
                let path = shelf.directory().to_string_lossy().into_owned();
                submission.conf.insert(format!("{volume}.options.path"), path);
                submission.conf.insert(format!("{volume}.mount.path"), files::MOUNT.to_owned());
                submission.conf.insert(format!("{volume}.mount.readOnly"), "true".to_owned());
            }
        }
        let around = surroundings::look(&Disk);
        let secret = surroundings::secret();
        let (plan, grant) =
            firesteel_core::grant::plan(submission, &around, &secret).map_err(|e| BadInput(e.to_string()))?;
        let mut warnings = self.effective.warnings;
        warnings.extend(plan.warnings.iter().cloned());
        Ok((plan, grant, warnings))
    }
}

fn default_image() -> String {
    format!("apache/spark:{DEFAULT_SPARK}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(arguments: &[&str]) -> Wanted {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        read(&arguments).expect("an application")
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
}
