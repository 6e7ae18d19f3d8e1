//! Lifecycle hooks: exec, HTTP GET, TCP socket or sleep.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;

use super::exec;
use super::probe::{ProbeTarget, port_of};
use super::probe_client::{self, HttpGet};

/// Runs a hook until it finishes or times out.
pub(super) async fn run(target: &ProbeTarget, hook: &LifecycleHandler, limit: Duration) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let words = action.command.as_deref().unwrap_or_default();
        let ran = exec::run(&target.shim, &target.dir, &target.container.name, words, limit).await;
        return ran.map_err(exec::ExecError::of_hook);
    }
    if let Some(action) = &hook.http_get {
        let wanted = HttpGet {
            https: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
            host: action.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| target.address.clone()),
            port: port_of(&target.container, &action.port)?,
            path: action.path.as_deref().unwrap_or("/"),
            headers: action.http_headers.as_deref().unwrap_or_default(),
            agent: "kube-lifecycle/1.35",
        };
        let code = tokio::time::timeout(limit, probe_client::get(&wanted)).await;
        // Any response is a success, as in a kubelet.
        return code.map_err(|_| "context deadline exceeded".to_owned())?.map(|_| ());
    }
    if let Some(action) = &hook.sleep {
        let wanted = Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0));
        tokio::time::sleep(wanted.min(limit)).await;
        return Ok(());
    }
    Err("the hook names nothing to do".to_owned())
}
