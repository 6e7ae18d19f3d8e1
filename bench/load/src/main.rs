//! Load for any Kubernetes API server, for `bench/local` and `bench/executors`: a minimal client, so that it measures the server.
//!
//! ```text
//! load create --kubeconfig K [--pods 2000] [--workers 32] [--prefix created]  creates pods; measures the rate
//! load watch  --kubeconfig K [--watches 100] [--events 10000] [--workers 16]
//!                                                                         changes pods under many watches; every watch must
//!                                                                         deliver every change once and in order
//! load replay --kubeconfig K --file F [--namespace default] [--workers 32]     creates the pods of a file, one JSON text per line
//! ```
//! The first two work in the namespace `default`, whose service account `default` they create if it is missing. Each prints one JSON object.

mod connection;
mod create;
mod objects;
mod watch;

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};

use connection::Server;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().context("a verb is missing: create, replay or watch")?;
    let options = Options::parse(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let server = Server::of(&options.text("kubeconfig")?)?;
        objects::prepare(&server).await?;
        match verb.as_str() {
            "create" => {
                let (pods, workers) = (options.number("pods", 2000)?, options.number("workers", 32)?);
                create::run(&server, options.text("prefix").as_deref().unwrap_or("created"), pods, workers).await
            }
            "watch" => {
                let (watches, events) = (options.number("watches", 100)?, options.number("events", 10_000)?);
                watch::run(&server, watches, events, options.number("workers", 16)?).await
            }
            "replay" => {
                let namespace = options.text("namespace").unwrap_or_else(|_| "default".to_owned());
                create::replay(&server, &namespace, &options.text("file")?, options.number("workers", 32)?).await
            }
            other => bail!("unknown verb {other}: use create, replay or watch"),
        }
    })?;
    println!("{result}");
    Ok(())
}

/// `--name value` pairs.
struct Options(HashMap<String, String>);

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut found = HashMap::new();
        while let Some(word) = arguments.next() {
            let name = word.strip_prefix("--").with_context(|| format!("{word} is not an option"))?;
            found.insert(name.to_owned(), arguments.next().with_context(|| format!("{word} needs a value"))?);
        }
        Ok(Self(found))
    }

    fn text(&self, name: &str) -> Result<String> {
        self.0.get(name).cloned().with_context(|| format!("--{name} is required"))
    }

    fn number(&self, name: &str, default: usize) -> Result<usize> {
        self.0.get(name).map_or(Ok(default), |text| text.parse().with_context(|| format!("--{name} {text}")))
    }
}
