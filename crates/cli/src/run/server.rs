//! Follows a Spark Connect server until Ctrl-C: opens a tunnel to it, prints its address on stdout, and says what happens
//! to it on stderr.

use std::time::{Duration, Instant};

use firesteel_api::SparkConnect;
use firesteel_core::connect::step::State;
use firesteel_core::pod::{SparkContainer, hold_up};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::sync::watch;

use crate::ExitStatus;
use crate::connect::{changes, words};
use crate::output::Printer;
use crate::run::follow::{Followed, Follower, HELD_UP, NO_ROOM, is_driver};
use crate::tunnel::{Dial, Target, Tunnel};

pub(crate) async fn follow(follower: &Follower<'_>, followed: &Followed) -> anyhow::Result<ExitStatus> {
    let tunnel = Tunnel::open(None).await?;
    let (send, target) = watch::channel(None);
    let client = &follower.local.cluster.client;
    let api: Api<SparkConnect> = Api::namespaced(client.clone(), &followed.namespace);
    let mut server = Server {
        address: tunnel.address(),
        follower,
        followed,
        pods: Api::namespaced(client.clone(), &followed.namespace),
        target: send,
        shown: String::new(),
        announced: false,
        trouble: None,
    };
    let serve = tokio::spawn(tunnel.serve(Dial::Directly, target));
    let mut news = changes(api, &followed.name);
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let end = loop {
        let end = tokio::select! {
            () = follower.interrupt.comes() => {
                follower.view.state("interrupted, stopping the server");
                break (ExitStatus::Interrupted, None);
            }
            _ = ticks.tick(), if !server.announced => server.held_up().await,
            item = news.next() => match item {
                Some(Some(connect)) => server.take_in(&connect)?,
                Some(None) => Some((ExitStatus::Failure, "the SparkConnect was deleted".to_owned())),
                None => Some((ExitStatus::Failure, "the watch ended".to_owned())),
            },
        };
        if let Some((exit, why)) = end {
            break (exit, Some(why));
        }
    };
    serve.abort();
    followed.end(follower.local).await;
    follower.view.finish();
    let (exit, failure) = end;
    if let Some(failure) = failure {
        follower.view.line(&format!("Failed: {failure}"));
    }
    Ok(exit)
}

struct Server<'a> {
    address: String,
    follower: &'a Follower<'a>,
    followed: &'a Followed,
    pods: Api<Pod>,
    target: watch::Sender<Option<Target>>,
    shown: String,
    /// Its address was printed.
    announced: bool,
    /// What keeps its pod from starting, and since when.
    trouble: Option<(String, Instant)>,
}

type End = Option<(ExitStatus, String)>;

impl Server<'_> {
    /// A new state of the object.
    fn take_in(&mut self, connect: &SparkConnect) -> anyhow::Result<End> {
        let target = Target::of(connect);
        let is_ready = target.is_some();
        self.target.send_replace(target);
        let (state, words) = words(connect);
        let view = self.follower.view;
        if state == State::Failed && !self.announced {
            let why = words.strip_prefix("Failed: ").unwrap_or(&words);
            return Ok(Some((ExitStatus::NeverStarted, format!("the server cannot start: {why}"))));
        }
        if state != State::New && words != self.shown {
            view.line(&format!("[{:.1} s] server: {words}", self.follower.began.elapsed().as_secs_f64()));
            self.shown = words;
        }
        view.state_if_live(&format!("server: {}", state.word()));
        if is_ready && !self.announced {
            self.announced = true;
            view.line(&format!(
                "Connect with SparkSession.builder.remote(\"{}\").getOrCreate(); Ctrl-C stops the server",
                self.address
            ));
            view.finish();
            Printer.data(&self.address)?;
        }
        Ok(None)
    }

    /// Abandons a server whose pod cannot start.
    async fn held_up(&mut self) -> End {
        let pods = self.pods.list(&ListParams::default()).await.ok()?;
        let pod = pods.items.into_iter().find(|pod| is_driver(self.followed, pod))?;
        let trouble = hold_up(&pod).filter(|_| !SparkContainer::of(&pod).has_started());
        let Some(trouble) = trouble else {
            self.trouble = None;
            return None;
        };
        let since = match &self.trouble {
            Some((key, since)) if *key == trouble.key => *since,
            Some(_) | None => Instant::now(),
        };
        let limit = if trouble.is_usual { NO_ROOM } else { HELD_UP };
        let sentence = trouble.sentence.replace("the driver", "the server");
        self.trouble = Some((trouble.key, since));
        (since.elapsed() > limit).then_some((ExitStatus::NeverStarted, sentence))
    }
}
