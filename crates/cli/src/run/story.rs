//! The progress of a run: pod and application states in, messages and times out. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use firesteel_core::pod::{PodPhase, SparkContainer, phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// The progress of one run.
#[derive(Debug, Default)]
pub(crate) struct Story {
    driver: Option<DriverProgress>,
    executors: BTreeMap<String, ExecutorProgress>,
    state: String,
    to_driver: Option<Duration>,
    to_executors: Option<Duration>,
    most: usize,
}

#[derive(Debug)]
struct DriverProgress {
    uid: Option<String>,
    name: String,
    state: DriverState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutorProgress {
    Waiting,
    Running,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DriverState {
    Waiting,
    Running,
    Over(i32),
}

/// The port of a driver's web UI.
pub(crate) fn ui_port(pod: &Pod) -> u16 {
    const USUAL: u16 = 4040;
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let mut ports = containers.flat_map(|c| c.ports.iter().flatten());
    let named = ports.find(|p| p.name.as_deref() == Some("spark-ui"));
    named.and_then(|p| u16::try_from(p.container_port).ok()).unwrap_or(USUAL)
}

fn state(pod: &Pod) -> DriverState {
    let container = SparkContainer::of(pod);
    match container.ended() {
        Some(ended) => DriverState::Over(ended.exit_code),
        None if container.is_running() => DriverState::Running,
        None => DriverState::Waiting,
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl Story {
    /// A new state of the application object.
    pub(crate) fn application(&mut self, state: &str, message: &str, at: Duration) -> Option<String> {
        if state.is_empty() || state == self.state {
            return None;
        }
        state.clone_into(&mut self.state);
        // The full message is printed at the end.
        let detail = message.lines().next().map_or_else(String::new, |first| format!(": {first}"));
        Some(format!("[{}] application: {state}{detail}", seconds(at)))
    }

    /// A new state of the driver pod.
    pub(crate) fn driver(&mut self, pod: &Pod, at: Duration) -> Option<String> {
        let (uid, name, now) = (pod.uid(), pod.name_any(), state(pod));
        let (before, known) = match &self.driver {
            Some(driver) if driver.uid == uid => (driver.state.clone(), true),
            Some(_) | None => (DriverState::Waiting, false),
        };
        if known && before == now {
            return None;
        }
        if !known {
            self.executors.clear();
        }
        let said = match &now {
            DriverState::Waiting => format!("driver {name}: waiting to start"),
            DriverState::Running => format!("driver {name}: running"),
            DriverState::Over(code) => format!("driver {name}: ended with exit code {code}"),
        };
        if now != DriverState::Waiting {
            self.to_driver.get_or_insert(at);
        }
        self.driver = Some(DriverProgress { uid, name, state: now });
        Some(format!("[{}] {said}", seconds(at)))
    }

    /// A new state of an executor pod; `gone` if it was deleted.
    pub(crate) fn executor(&mut self, pod: &Pod, gone: bool, at: Duration) -> Option<String> {
        let name = pod.name_any();
        let now = match phase(pod) {
            _ if gone => ExecutorProgress::Over,
            PodPhase::Running => ExecutorProgress::Running,
            PodPhase::Succeeded | PodPhase::Failed => ExecutorProgress::Over,
            PodPhase::Pending | PodPhase::Unknown => ExecutorProgress::Waiting,
        };
        if self.executors.insert(name, now) == Some(now) {
            return None;
        }
        let running = self.executors.values().filter(|e| **e == ExecutorProgress::Running).count();
        let asked = self.executors.values().filter(|e| **e != ExecutorProgress::Over).count();
        if running > self.most {
            self.most = running;
            self.to_executors = Some(at);
        }
        // Executors that end with their driver are not worth a line.
        let driver_runs = self.driver.as_ref().is_some_and(|d| d.state == DriverState::Running);
        (driver_runs && now != ExecutorProgress::Over)
            .then(|| format!("[{}] executors: {running} of {asked} running", seconds(at)))
    }

    /// A short state for the live view.
    pub(crate) fn headline(&self) -> String {
        let running = self.executors.values().filter(|e| **e == ExecutorProgress::Running).count();
        match &self.driver {
            None if self.state.is_empty() => "waiting for the driver".to_owned(),
            None => format!("{}: waiting for the driver", self.state),
            Some(d) => match d.state {
                DriverState::Waiting => format!("driver {} is starting", d.name),
                DriverState::Running => format!("driver {} is running, {running} executors", d.name),
                DriverState::Over(code) => format!("driver {} ended with exit code {code}", d.name),
            },
        }
    }

    /// The last line: how long each part took.
    pub(crate) fn summary(&self, total: Duration, outcome: &str) -> String {
        let driver = self
            .to_driver
            .map_or_else(|| "driver never started".to_owned(), |t| format!("driver after {}", seconds(t)));
        let executors = match (self.to_executors, self.most) {
            (Some(at), 1) => format!(", 1 executor after {}", seconds(at)),
            (Some(at), n) => format!(", {n} executors after {}", seconds(at)),
            (None, _) => String::new(),
        };
        let ran = self.to_driver.map_or_else(String::new, |t| format!(", ran {}", seconds(total.saturating_sub(t))));
        format!("{outcome}: {driver}{executors}{ran}, {} in all", seconds(total))
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "values are written in place")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SPARK_DRIVER: &str = "spark-kubernetes-driver";

    fn pod(name: &str, uid: &str, phase: &str, state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": uid},
            "spec": {"containers": [{"name": "sidecar"}, {"name": SPARK_DRIVER}]},
            "status": {"phase": phase, "containerStatuses": [{"name": SPARK_DRIVER, "image": "i", "imageID": "", "ready": true,
                "restartCount": 0, "state": state}]},
        }))
        .unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_is_told_once_and_summed_up() {
        let mut story = Story::default();
        let waiting = pod("d", "1", "Pending", json!({}));
        assert_eq!(story.driver(&waiting, at(1)).unwrap(), "[1.0 s] driver d: waiting to start");
        assert_eq!(story.driver(&waiting, at(1)), None);
        let running = pod("d", "1", "Running", json!({"running": {}}));
        assert_eq!(story.driver(&running, at(2)).unwrap(), "[2.0 s] driver d: running");
        assert!(story.executor(&pod("e1", "2", "Pending", json!({})), false, at(4)).is_some());
        let line = story.executor(&pod("e1", "2", "Running", json!({})), false, at(5)).unwrap();
        assert_eq!(line, "[5.0 s] executors: 1 of 1 running");
        let over = pod("d", "1", "Succeeded", json!({"terminated": {"exitCode": 0}}));
        assert_eq!(story.driver(&over, at(9)).unwrap(), "[9.0 s] driver d: ended with exit code 0");
        assert_eq!(
            story.summary(at(9), "Finished"),
            "Finished: driver after 2.0 s, 1 executor after 5.0 s, ran 7.0 s, 9.0 s in all"
        );
    }

    #[test]
    fn a_new_attempt_is_a_new_driver() {
        let mut story = Story::default();
        story.driver(&pod("d", "1", "Running", json!({"running": {}})), at(1));
        story.driver(&pod("d", "1", "Failed", json!({"terminated": {"exitCode": 1}})), at(2));
        assert_eq!(
            story.driver(&pod("d", "2", "Pending", json!({})), at(3)).unwrap(),
            "[3.0 s] driver d: waiting to start"
        );
    }

    #[test]
    fn a_run_that_never_started_says_so() {
        assert_eq!(Story::default().summary(at(3), "Failed"), "Failed: driver never started, 3.0 s in all");
    }
}
