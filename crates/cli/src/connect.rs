//! `firesteel connect`: a tunnel from this machine to a Spark Connect server in a cluster.
//!
//! It follows the SparkConnect: when its server is replaced, new connections lead to the new one. The address goes to
//! stdout, everything else to stderr.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use firesteel_api::SparkConnect;
use firesteel_api::names::{CONDITION_SERVER_POD_READY, CONDITION_SPEC_ACCEPTED};
use firesteel_cluster::refusal::Attempt;
use firesteel_cluster::{Access, Cluster};
use firesteel_core::connect::step::State;
use futures::{StreamExt, stream};
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::interrupt::Interrupt;
use crate::output::Printer;
use crate::tunnel::{Dial, Target, Tunnel};

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Name of the SparkConnect
    name: String,
    /// Its namespace [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Port of this machine to listen on [default: 15002, or any free one if that is taken]
    #[arg(short, long)]
    port: Option<u16>,
    /// How many seconds to wait for a server that is not ready
    #[arg(long, default_value = "60", value_name = "SECONDS")]
    wait: u64,
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context
    #[arg(long)]
    context: Option<String>,
}

pub(crate) fn main(args: &ConnectArgs) -> anyhow::Result<ExitStatus> {
    crate::logging::start(false);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(connect(args));
    runtime.shutdown_background();
    outcome
}

async fn connect(args: &ConnectArgs) -> anyhow::Result<ExitStatus> {
    let interrupt = Interrupt::listen()?;
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone(), ..Access::default() };
    let cluster = Cluster::reach(&access)?;
    let namespace = args.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
    let api: Api<SparkConnect> = Api::namespaced(cluster.client.clone(), &namespace);
    let attempt =
        Attempt { verb: "get", kind: "sparkconnect", name: &args.name, namespace: &namespace, server: &cluster.server };
    let found = cluster.ask(api.get_opt(&args.name)).await.map_err(|error| attempt.refused(&error))?;
    let Some(found) = found else {
        return Err(BadInput(format!(
            "there is no SparkConnect {} in namespace {namespace} of {}; kubectl get sparkconnects -A lists them",
            args.name, cluster.server
        ))
        .into());
    };
    let tunnel = Tunnel::open(args.port).await?;
    let (send, target) = watch::channel(None);
    let mut follow = Following { name: &args.name, shown: None, address: tunnel.address(), announced: false };
    follow.take_in(&found, &send)?;
    let mut news = changes(api, &args.name);
    let serve = tokio::spawn(tunnel.serve(Dial::Forward(Cluster::upgradable(&access)?), target));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(args.wait);
    let outcome = loop {
        tokio::select! {
            () = interrupt.comes() => break Ok(ExitStatus::Interrupted),
            () = tokio::time::sleep_until(deadline), if !follow.announced => {
                let state = follow.shown.clone().unwrap_or_default();
                break Err(anyhow::anyhow!("the server of SparkConnect {} is not ready after {} s: {state}", args.name, args.wait));
            }
            item = news.next() => match item {
                Some(Some(connect)) => if let Err(error) = follow.take_in(&connect, &send) { break Err(error) },
                Some(None) => break Err(anyhow::anyhow!("SparkConnect {namespace}/{} was deleted", args.name)),
                None => break Err(anyhow::anyhow!("the watch ended")),
            },
        }
    };
    serve.abort();
    outcome
}

/// Every change of an object; `None` once it is deleted.
pub(crate) fn changes(api: Api<SparkConnect>, name: &str) -> stream::BoxStream<'static, Option<SparkConnect>> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(api, only).default_backoff().filter_map(|event| async {
        match event {
            Ok(watcher::Event::Apply(connect) | watcher::Event::InitApply(connect)) => Some(Some(connect)),
            Ok(watcher::Event::Delete(_)) => Some(None),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(error) => {
                tracing::debug!("watch: {error}");
                None
            }
        }
    });
    events.boxed()
}

/// The state of an object and why, for a person.
pub(crate) fn words(connect: &SparkConnect) -> (State, String) {
    let status = connect.status.clone().unwrap_or_default();
    let state = State::read(&status);
    let message = |kind: &str| {
        let condition = status.conditions.iter().find(|c| c.type_ == kind && c.status == "False");
        condition.map(|c| c.message.clone()).filter(|message| !message.is_empty())
    };
    let why = match state {
        State::Ready => None,
        State::Failed => message(CONDITION_SPEC_ACCEPTED).or_else(|| message(CONDITION_SERVER_POD_READY)),
        State::New | State::Provisioning | State::NotReady => message(CONDITION_SERVER_POD_READY),
    };
    let word = if state == State::New { "New" } else { state.word() };
    (state, why.map_or_else(|| word.to_owned(), |why| format!("{word}: {why}")))
}

/// What has been said so far.
struct Following<'a> {
    name: &'a str,
    shown: Option<String>,
    address: String,
    announced: bool,
}

impl Following<'_> {
    fn take_in(&mut self, connect: &SparkConnect, send: &watch::Sender<Option<Target>>) -> anyhow::Result<()> {
        let target = Target::of(connect);
        send.send_if_modified(|known| {
            let changed = *known != target;
            known.clone_from(&target);
            changed
        });
        let (state, words) = words(connect);
        if state == State::Failed && !self.announced {
            bail!("the server of SparkConnect {} cannot start: {words}", self.name);
        }
        if self.shown.as_ref() != Some(&words) {
            Printer.talk(format!("SparkConnect {}: {words}", self.name));
            self.shown = Some(words);
        }
        if target.is_some() && !self.announced {
            self.announced = true;
            Printer.data(&self.address).context("print the address")?;
        }
        Ok(())
    }
}
