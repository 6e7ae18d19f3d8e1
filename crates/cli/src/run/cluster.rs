//! The local cluster of a run: started for the run, unless one is already running.

use firesteel_cluster::{Access, Cluster};
use firesteel_local::cluster;
use firesteel_local::home::Home;

use crate::run::view::View;

pub(crate) struct Local {
    pub(crate) home: Home,
    pub(crate) cluster: Cluster,
    /// Whether we take it down.
    ours: bool,
}

impl Local {
    pub(crate) async fn up(mut home: Home, keep: bool, view: &View) -> anyhow::Result<Self> {
        let (home, up) = {
            let view = view.clone();
            tokio::task::spawn_blocking(move || {
                let up = crate::local::bring_up(&mut home, None, |says| view.state(&format!("local cluster: {says}")));
                (home, up)
            })
            .await?
        };
        let up = up?;
        let access = Access { kubeconfig: Some(home.kubeconfig()), ..Access::default() };
        Ok(Local { cluster: Cluster::reach(&access)?, home, ours: !up.was_running && !keep })
    }

    /// Whether the cluster outlives the run.
    pub(crate) fn stays(&self) -> bool {
        !self.ours
    }

    /// Takes the cluster down if it is ours.
    pub(crate) async fn down(&mut self, view: &View) -> anyhow::Result<()> {
        if self.ours {
            self.ours = false;
            view.state("taking the local cluster down");
            let mut home = self.home.clone();
            tokio::task::spawn_blocking(move || cluster::down(&mut home)).await??;
        }
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Leave nothing running after an early return either.
        if self.ours {
            let _ = cluster::down(&mut self.home);
        }
    }
}
