//! `firesteel`: run Apache Spark on Kubernetes.
//!
//! This file only finds the verb and turns its outcome into an exit code; each verb has its own file. Without the cargo feature
//! `local`, which is on by default, the verbs of the local cluster are left out: the operator's image needs none of them.

#![cfg_attr(
    not(feature = "local"),
    allow(dead_code, reason = "some modules have more for the verbs of the local cluster")
)]

mod connect;
mod context;
mod crds;
mod creation;
mod disk;
mod exit;
#[cfg(feature = "local")]
mod image;
mod interrupt;
#[cfg(feature = "local")]
mod local;
mod logging;
mod manifests;
#[cfg(feature = "local")]
mod node;
mod operator;
mod output;
#[cfg(test)]
mod reference;
#[cfg(feature = "local")]
mod run;
mod setup;
#[cfg(feature = "local")]
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
    #[cfg(feature = "local")]
    Run(run::RunArgs),
    /// Open a tunnel to a Spark Connect server in a cluster
    Connect(connect::ConnectArgs),
    /// Start, stop and inspect the local cluster
    #[cfg(feature = "local")]
    Local(local::LocalArgs),
    /// Print or apply what drivers need in a namespace: a service account and its permissions
    Setup(setup::SetupArgs),
    /// Run the operator for SparkApplications
    Operator(operator::OperatorArgs),
    /// Print the custom resource definitions and the admission policy
    Crds(crds::CrdsArgs),
    /// Print everything the operator needs in a cluster, for kubectl apply --server-side
    Manifests(manifests::ManifestsArgs),
    /// Run a cluster's pods as processes on this machine
    #[cfg(feature = "local")]
    Node(node::NodeArgs),
    /// Hold the processes of one pod (started by the node agent)
    #[cfg(feature = "local")]
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
        #[cfg(feature = "local")]
        Verb::Run(args) => run::main(args),
        Verb::Connect(args) => connect::main(&args),
        #[cfg(feature = "local")]
        Verb::Local(args) => local::main(args),
        Verb::Setup(args) => setup::main(&args),
        Verb::Operator(args) => operator::main(args),
        Verb::Crds(args) => crds::main(&args),
        Verb::Manifests(args) => manifests::main(&args),
        #[cfg(feature = "local")]
        Verb::Node(args) => node::main(args),
        #[cfg(feature = "local")]
        Verb::Shim(args) => shim::main(&args),
    }
}
