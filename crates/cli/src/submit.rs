//! `firesteel submit`: spark-submit for Kubernetes.
//!
//! From arguments to a running driver: parse and resolve (firesteel-spark), plan (firesteel-core), upload local files, create,
//! wait and report. All decisions are pure and live in those crates; this module deals with the disk, the clock, the cluster
//! and messages.

mod applications;
mod explanation;
mod handover;
mod manifest;
mod settings;
mod state;
mod upload;
pub(crate) mod usage;
mod waiting;

use firesteel_api::ExecutorGrant;
use firesteel_cluster::Cluster;
use firesteel_spark::args::{self, Output, RawArgs};
use firesteel_spark::driver::DriverPlan;
use firesteel_spark::redaction::Redaction;
use firesteel_spark::submission::{self, Control, Effective, ResolveContext, Resolved};
use firesteel_spark::{PlanContext, SparkConf};
use kube::ResourceExt as _;

use crate::ExitStatus;
use crate::context;
use crate::creation::Creation;
use crate::disk::Disk;
use crate::exit::BadInput;
use crate::interrupt::Interrupt;
use crate::output::{Format, Printer};
use crate::submit::applications::Selection;
use crate::submit::settings::Settings;
use crate::submit::waiting::{Outcome, Waiting};

#[derive(Debug, clap::Args)]
pub(crate) struct SubmitArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn main(args: &SubmitArgs) -> anyhow::Result<ExitStatus> {
    let printer = Printer;
    let raw = args::parse(&args.arguments).map_err(bad_input)?;
    crate::logging::start(raw.verbose);

    let context = context::look(&Disk);
    let cwd = std::env::current_dir().map_err(|error| BadInput(format!("there is no working directory: {error}")))?;
    let cwd = cwd.to_string_lossy();
    let now_ms = context::now();
    let resolved = submission::resolve(&raw, ResolveContext { env: &context.env, files: &Disk, cwd: &cwd, now_ms })
        .map_err(bad_input)?;

    match resolved {
        Resolved::Submit(effective) => submit(&raw, &effective, &context, printer),
        Resolved::Client => hand_over(&raw, &args.arguments),
        Resolved::Status(control) => with_cluster(&control, printer, async |cluster, settings| {
            let selection = Selection::parse(&control.id, settings.namespace(&cluster))?;
            applications::status(&cluster, &selection, raw.own.output.map(format), printer).await
        }),
        Resolved::Kill(control) => with_cluster(&control, printer, async |cluster, settings| {
            let selection = Selection::parse(&control.id, settings.namespace(&cluster))?;
            applications::kill(&cluster, &selection, settings.kill_grace, printer).await
        }),
        Resolved::Version => {
            printer.data(usage::version())?;
            Ok(ExitStatus::Success)
        }
        Resolved::Help => {
            printer.data(usage::text())?;
            Ok(ExitStatus::Success)
        }
        Resolved::UsageError => {
            printer.talk(usage::text().trim_end());
            Ok(ExitStatus::Failure)
        }
    }
}

/// An error in the user's input; it exits with the code for bad input.
fn bad_input(error: impl std::error::Error) -> anyhow::Error {
    BadInput(error.to_string()).into()
}

fn format(output: Output) -> Format {
    match output {
        Output::Json => Format::Json,
        Output::Yaml => Format::Yaml,
    }
}

/// One thread is enough to wait for responses, and starts fastest.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn hand_over(raw: &RawArgs, arguments: &[String]) -> anyhow::Result<ExitStatus> {
    let own = [
        ("--dry-run", raw.own.dry_run),
        ("--explain", raw.own.explain),
        ("--exit-zero", raw.own.exit_zero),
        ("--output", raw.own.output.is_some()),
        ("--spark-version", raw.own.spark_version.is_some()),
    ];
    if let Some((option, _)) = own.iter().find(|(_, given)| *given) {
        return Err(BadInput(format!(
            "{option} works in cluster mode only: add --deploy-mode cluster, or leave it out to hand over to the real spark-submit"
        ))
        .into());
    }
    match handover::to_spark_submit(arguments)? {}
}

fn with_cluster(
    control: &Control,
    printer: Printer,
    work: impl AsyncFnOnce(Cluster, Settings) -> anyhow::Result<ExitStatus>,
) -> anyhow::Result<ExitStatus> {
    let settings = Settings::read(&control.conf)?;
    for warning in &control.warnings {
        printer.warn(warning);
    }
    runtime()?.block_on(async { work(Cluster::reach(&settings.access)?, settings).await })
}

fn submit(
    raw: &RawArgs,
    effective: &Effective,
    context: &PlanContext<'_>,
    printer: Printer,
) -> anyhow::Result<ExitStatus> {
    let settings = Settings::read(&effective.submission.conf)?;
    let secret = context::secret();
    let (plan, grant) = firesteel_core::grant::plan(&effective.submission, context, &secret).map_err(bad_input)?;
    upload::check(&plan.uploads)?;
    if raw.own.explain || raw.verbose {
        let redaction = Redaction::of(&effective.submission.conf);
        if !redaction.is_readable() {
            printer.warn("spark.redaction.regex: this pattern is not supported here, so all values are masked");
        }
        let table = explanation::table(effective, &plan, &redaction);
        // A dry run keeps stdout for the objects; a real one keeps it for the submission id.
        if raw.own.explain && !raw.own.dry_run {
            warn(effective, &plan, printer);
            printer.data(table)?;
            return Ok(ExitStatus::Success);
        }
        printer.talk(table.trim_end());
    }
    if raw.own.dry_run {
        let text = format(raw.own.output.unwrap_or_default()).render(&manifest::list(&plan, grant.as_ref())?)?;
        warn(effective, &plan, printer);
        printer.data(text)?;
        return Ok(ExitStatus::Success);
    }
    warn(effective, &plan, printer);
    let driver = PlannedDriver {
        conf: &effective.submission.conf,
        plan: &plan,
        grant: grant.as_ref(),
        settings: &settings,
        printer,
    };
    let exit = runtime()?.block_on(driver.run(context))?;
    Ok(if raw.own.exit_zero && exit != ExitStatus::Interrupted { ExitStatus::Success } else { exit })
}

fn warn(effective: &Effective, plan: &DriverPlan, printer: Printer) {
    for warning in effective.warnings.iter().chain(&plan.warnings) {
        printer.warn(warning);
    }
}

/// One planned driver: created, watched and reported.
struct PlannedDriver<'a> {
    conf: &'a SparkConf,
    plan: &'a DriverPlan,
    grant: Option<&'a ExecutorGrant>,
    settings: &'a Settings,
    printer: Printer,
}

impl PlannedDriver<'_> {
    async fn run(&self, context: &PlanContext<'_>) -> anyhow::Result<ExitStatus> {
        let cluster = Cluster::reach(&self.settings.access)?;
        let interrupt = Interrupt::listen()?;
        let creation = Creation::new(&cluster, self.plan, &interrupt)?.with_grant(self.grant);
        let shipped = upload::ship(&self.plan.uploads, self.conf, &context.env, self.printer).await?;
        let pod = match creation.run(self.printer).await {
            Ok(pod) => pod,
            Err(error) => {
                shipped.take_back().await;
                return Err(error);
            }
        };
        let (namespace, name) = (&self.plan.namespace, pod.name_any());
        let title = self.conf.get("spark.app.name").map_or("spark", String::as_str);
        let identity = format!("{title} with application ID {} and submission ID {namespace}:{name}", self.plan.app_id);
        let master = self.conf.get("spark.master").map_or("…", String::as_str);
        self.printer.talk(format_args!("Deployed Spark application {identity} into Kubernetes"));
        if !self.settings.wait {
            self.printer.data(format_args!("{namespace}:{name}"))?;
            self.next(format_args!("firesteel submit --status {namespace}:{name} --master {master}"));
            return Ok(ExitStatus::Success);
        }

        let waiting = Waiting {
            cluster: &cluster,
            namespace,
            app_id: &self.plan.app_id,
            interval: self.settings.report_interval,
            interrupt: &interrupt,
            printer: self.printer,
        };
        let (verdict, pod) = match waiting.until_end(pod).await? {
            Outcome::LeftAlone => {
                self.printer.talk(format_args!("Interrupted; application {title} keeps running"));
                self.next(format_args!("firesteel submit --kill {namespace}:{name} --master {master}"));
                return Ok(ExitStatus::Interrupted);
            }
            Outcome::Over(verdict, pod) => (verdict, pod),
        };
        let Some(failure) = verdict.failure else {
            self.printer.talk(format_args!("Application {identity} finished"));
            self.next(format_args!("kubectl logs -n {namespace} {name}"));
            return Ok(verdict.exit);
        };
        let why = waiting.words(&failure, &pod, &Redaction::of(self.conf)).await;
        self.printer.talk(format_args!("Application {identity} failed: {why}"));
        if verdict.exit == ExitStatus::NeverStarted {
            self.next(format_args!("kubectl describe pod -n {namespace} {name}"));
        } else {
            self.next(format_args!("kubectl logs -n {namespace} {name}"));
        }
        Ok(verdict.exit)
    }

    /// The last line: the command to run next.
    fn next(&self, command: std::fmt::Arguments<'_>) {
        self.printer.talk(format_args!("Next: {command}"));
    }
}
