//! `firesteel run`: one application on this machine, from manifest to exit code.
//!
//! If no local cluster is running, one is started for the run and stopped afterwards. Applications are applied and followed
//! through the Kubernetes API only. The driver's log goes to stdout, everything else to stderr.

mod arguments;
mod call;
mod cluster;
mod files;
mod follow;
mod images;
mod logs;
mod manifests;
mod mounts;
mod prepare;
mod python;
mod quick;
mod schedules;
mod server;
mod stages;
mod story;
mod view;

use std::path::PathBuf;

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::interrupt::Interrupt;
use crate::run::call::{Call, Own};
use crate::run::cluster::Local;
use crate::run::view::View;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A script or a jar runs in the current directory, with your permissions, and uses the Python of the active \
                  environment (PYSPARK_PYTHON, VIRTUAL_ENV, CONDA_PREFIX). Files elsewhere named in its arguments are mounted \
                  read-only. Manifests see only what --mount names.\n\n\
                  Examples:\n  firesteel run examples/pi.yaml\n  firesteel run --class org.example.Main app.jar 1000\n  \
                  firesteel run script.py input.csv out.parquet\n  \
                  firesteel run --mount ~/data:ro script.py ~/data/input.csv\n  \
                  firesteel run examples/schedule.yaml"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    own: Own,
    /// Manifests (`-` is stdin), or spark-submit's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "FILE… | ARGUMENTS")]
    arguments: Vec<String>,
}

/// What to run.
enum Wish {
    Manifests(Vec<manifests::Document>, mounts::Mounts),
    Submission(Box<arguments::Wanted>),
}

/// The current directory.
pub(crate) struct Place {
    /// Without symlinks.
    cwd: PathBuf,
    /// As the shell shows it, from `PWD`.
    logical: Option<PathBuf>,
}

impl Place {
    fn current() -> Result<Self, BadInput> {
        let cwd = std::env::current_dir().map_err(|e| BadInput(format!("there is no working directory: {e}")))?;
        Ok(Place { cwd, logical: std::env::var_os("PWD").map(PathBuf::from) })
    }
}

pub(crate) fn main(args: RunArgs) -> anyhow::Result<ExitStatus> {
    crate::logging::start(false);
    let RunArgs { own, arguments } = args;
    let place = Place::current()?;
    // All input is checked before anything is started.
    let (own, wish) = match call::read(own, &arguments)? {
        Call::Manifests { own, files } => {
            let mut documents = manifests::read(&files)?;
            let is_schedule = |d: &&manifests::Document| d.work() == manifests::Work::ScheduledSparkApplication;
            for document in documents.iter().filter(is_schedule).filter(|d| !d.spec().is_object()) {
                // It has no template; this says so.
                schedules::read(document)?;
            }
            for document in documents.iter_mut().filter(|d| d.has_application()) {
                let base = document.base.clone();
                let checked = files::check_application(document.spec_mut(), &base);
                checked.map_err(|e| BadInput(format!("{}: {e}", document.place)))?;
            }
            for document in documents.iter().filter(is_schedule) {
                schedules::read(document)?;
            }
            let mounts = mounts::Mounts::asked(&own.mount, &place.cwd, mounts::User::own())?;
            (own, Wish::Manifests(documents, mounts))
        }
        Call::Submission(own) => {
            let wanted = arguments::read(&arguments, &own.mount, &place)?;
            (own, Wish::Submission(Box::new(wanted)))
        }
        Call::Help(text) => {
            crate::output::Printer.data(text)?;
            return Ok(ExitStatus::Success);
        }
    };
    let home = crate::local::home(own.data_dir.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let view = View::new();
    let outcome = runtime.block_on(async {
        let interrupt = Interrupt::listen()?;
        let mut local = Local::up(home, own.keep, &view).await?;
        let outcome = carry_out(&local, wish, &own, &view, &interrupt).await;
        view.finish();
        local.down(&view).await?;
        let (exit, quickening) = outcome?;
        // After a failure, do not make the user wait for it.
        if let Some(quickening) = quickening.filter(|_| exit == ExitStatus::Success) {
            view.finish();
            quickening.finish(&view, &interrupt).await;
        }
        Ok(exit)
    });
    view.finish();
    runtime.shutdown_background();
    outcome
}

async fn carry_out(
    local: &Local,
    wish: Wish,
    own: &Own,
    view: &View,
    interrupt: &Interrupt,
) -> anyhow::Result<(ExitStatus, Option<quick::Quickening>)> {
    let started = match wish {
        Wish::Manifests(documents, mounts) => prepare::manifests(local, documents, &mounts, view, interrupt).await?,
        Wish::Submission(wanted) => prepare::submission(local, *wanted, view, interrupt).await?,
    };
    let quickening = if own.no_quick_starts { None } else { quick::Quickening::begin(&started.images, view).await };
    let mut worst = ExitStatus::Success;
    for (at, followed) in started.followed.iter().enumerate() {
        let follower = follow::Follower { local, view, interrupt, began: started.began };
        let outcome = match followed.serves {
            true => server::follow(&follower, followed).await,
            false => follower.to_the_end(followed).await,
        };
        let exit = match outcome {
            Ok(exit) => exit,
            Err(error) => {
                started.end(local).await;
                return Err(error);
            }
        };
        if worst == ExitStatus::Success || exit == ExitStatus::Interrupted {
            worst = exit;
        }
        if exit == ExitStatus::Interrupted {
            for other in &started.followed[at + 1..] {
                other.end(local).await;
            }
            break;
        }
    }
    if !started.schedules.is_empty() {
        worst = match worst {
            ExitStatus::Interrupted => worst,
            _ => schedules::follow(local, &started.schedules, view, interrupt).await,
        };
        for schedule in &started.schedules {
            schedule.end(local).await;
        }
    }
    if !own.keep {
        started.clear();
    }
    Ok((worst, quickening))
}
