//! `firesteel`: run Apache Spark on Kubernetes.
//!
//! This file only finds the verb and turns its outcome into an exit code; each verb has its own file.

mod connect;
mod context;
mod crds;
mod creation;
mod disk;
mod exit;
mod image;
mod interrupt;
mod local;
mod logging;
mod node;
mod operator;
mod output;
#[cfg(test)]
mod reference;
mod run;
mod setup;
mod shim;
mod submit;
mod tunnel;
mod verdict;

use clap::{Parser, Subcommand};

use crate::exit::ExitStatus;

/// Run Apache Spark on Kubernetes: submit applications, operate them, run them on this machine
#[derive(Debug, Parser)]
#[command(name = "firesteel", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "only one value exists, and only for one match")]
enum Verb {
    /// Submit an application, with spark-submit's arguments
    #[command(disable_help_flag = true)]
    Submit(submit::SubmitArgs),
    /// Run an application on this machine and follow it until it ends
    Run(run::RunArgs),
    /// Open a tunnel to a Spark Connect server in a cluster
    Connect(connect::ConnectArgs),
    /// Start, stop and inspect the local cluster
    Local(local::LocalArgs),
    /// Print or apply what drivers need in a namespace: a service account and its permissions
    Setup(setup::SetupArgs),
    /// Run the operator for SparkApplications
    Operator(operator::OperatorArgs),
    /// Print the custom resource definitions and the admission policy
    Crds(crds::CrdsArgs),
    /// Run a cluster's pods as processes on this machine
    Node(node::NodeArgs),
    /// Hold the processes of one pod (started by the node agent)
    #[command(hide = true)]
    Shim(shim::ShimArgs),
}

fn main() -> std::process::ExitCode {
    exit::install_panic_hook();
    let verb = Cli::parse().verb;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exit::report(dispatch(verb))));
    outcome.unwrap_or_else(exit::after_panic).into()
}

fn dispatch(verb: Verb) -> anyhow::Result<ExitStatus> {
    match verb {
        Verb::Submit(args) => submit::main(&args),
        Verb::Run(args) => run::main(args),
        Verb::Connect(args) => connect::main(&args),
        Verb::Local(args) => local::main(args),
        Verb::Setup(args) => setup::main(&args),
        Verb::Operator(args) => operator::main(args),
        Verb::Crds(args) => crds::main(&args),
        Verb::Node(args) => node::main(args),
        Verb::Shim(args) => shim::main(&args),
    }
}
