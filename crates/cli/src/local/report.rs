//! The state of a local cluster, for people and for programs.

use firesteel_local::home::{Home, Phase};
use serde_json::json;

use crate::ExitStatus;
use crate::output::{Format, Printer, columns};

/// Shows the state. Success only if the cluster is ready.
pub(crate) fn status(home: &Home, output: Option<Format>, printer: Printer) -> anyhow::Result<ExitStatus> {
    let status = home.status();
    let ready = status.as_ref().is_some_and(|s| s.phase == Phase::Ready && s.components.iter().all(|c| c.ready));
    let exit = if ready { ExitStatus::Success } else { ExitStatus::Failure };
    if let Some(format) = output {
        let value = match &status {
            Some(status) => {
                let mut value = serde_json::to_value(status)?;
                value["running"] = json!(true);
                value["dataDir"] = json!(home.root());
                value["kubeconfig"] = json!(home.kubeconfig());
                value
            }
            None => json!({"running": false, "dataDir": home.root()}),
        };
        printer.data(format.render(&value)?)?;
        return Ok(exit);
    }
    let Some(status) = status else {
        printer.data(format_args!("No local cluster is running in {}", home.root().display()))?;
        return Ok(exit);
    };
    let cell = |text: &str| text.to_owned();
    let phase = match status.phase {
        Phase::Ready => "ready",
        Phase::Starting => "starting",
        Phase::Stopping => "stopping",
        Phase::Failed => "failed",
    };
    let mut rows = vec![vec![cell("COMPONENT"), cell("STATE"), cell("PID"), cell("RESTARTS")]];
    rows.push(vec![cell("daemon"), cell(phase), status.pid.to_string(), cell("0")]);
    for part in &status.components {
        let state = if part.ready { "ready" } else { "not ready" };
        let pid = part.pid.map_or_else(|| cell("-"), |pid| pid.to_string());
        rows.push(vec![part.name.clone(), cell(state), pid, part.restarts.to_string()]);
    }
    printer.data(columns(&rows))?;
    printer.talk(format_args!("API server: {}", status.url.unwrap_or_default()));
    printer.talk(format_args!("Data: {}", home.root().display()));
    Ok(exit)
}
