//! Decisions about pods.

use super::*;
use crate::shim_protocol::ContainerRecord;

struct World {
    pod: Pod,
    record: PodRecord,
    images: BTreeMap<String, ImageState>,
    config_errors: BTreeMap<String, String>,
    health: BTreeMap<String, Health>,
    order: Option<TerminationByKubelet>,
    now: Timestamp,
}

impl World {
    fn new(spec: serde_json::Value) -> Self {
        let mut object = serde_json::json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        object["spec"] = spec;
        let pod: Pod = serde_json::from_value(object).expect("a pod");
        let images = containers(pod.spec.as_ref().expect("spec"))
            .into_iter()
            .map(|(_, c)| (c.name.clone(), ImageState::Ready { id: "i".to_owned() }))
            .collect();
        Self {
            pod,
            record: PodRecord::default(),
            images,
            config_errors: BTreeMap::new(),
            health: BTreeMap::new(),
            order: None,
            now: at(0),
        }
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            pod: &self.pod,
            record: &self.record,
            prepared: true,
            images: &self.images,
            config_errors: &self.config_errors,
            health: &self.health,
            order: self.order.as_ref(),
            address: Some("127.9.1.1"),
            host_ip: "127.0.0.1",
            now: self.now,
        }
    }

    fn step(&self) -> Step {
        step(&self.situation())
    }

    fn status(&self) -> k8s_openapi::api::core::v1::PodStatus {
        status::status(&self.situation(), &self.step())
    }

    fn running(&mut self, name: &str, attempt: u32) {
        let previous = self.record.containers.get(name).and_then(|c| match &c.state {
            ContainerState::Exited(e) => Some(e.clone()),
            _ => None,
        });
        self.record.containers.insert(
            name.to_owned(),
            ContainerRecord { attempt, state: ContainerState::Running { pid: 1, started: self.now }, previous },
        );
    }

    fn exited(&mut self, name: &str, attempt: u32, code: i32) {
        let exit =
            Exit { attempt, code, cause: ExitCause::Ended, message: None, started: Some(self.now), finished: self.now };
        self.record
            .containers
            .insert(name.to_owned(), ContainerRecord { attempt, state: ContainerState::Exited(exit), previous: None });
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

fn start(name: &str, attempt: u32) -> Action {
    Action::Start { container: name.to_owned(), attempt }
}

fn stop(name: &str, seconds: i64) -> Action {
    Action::Stop { container: name.to_owned(), grace: SignedDuration::from_secs(seconds) }
}

#[test]
fn init_containers_run_one_after_the_other_before_the_rest() {
    let mut world = World::new(
        serde_json::json!({"restartPolicy": "Never", "initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "x"}, {"name": "y"}]}),
    );
    assert_eq!(world.step().actions, [start("a", 0)]);
    world.running("a", 0);
    assert_eq!(world.step().actions, []);
    world.exited("a", 0, 0);
    assert_eq!(world.step().actions, [start("b", 0)]);
    world.exited("b", 0, 0);
    assert_eq!(world.step().actions, [start("x", 0), start("y", 0)]);
    assert_eq!(world.step().outcome, Outcome::Pending);
    world.running("x", 0);
    world.running("y", 0);
    assert_eq!(world.step().outcome, Outcome::Running);
    world.exited("x", 0, 0);
    assert_eq!(world.step().outcome, Outcome::Running);
    world.exited("y", 0, 0);
    assert_eq!(world.step().outcome, Outcome::Succeeded);
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let mut world = World::new(
        serde_json::json!({"restartPolicy": "Never", "initContainers": [{"name": "a"}], "containers": [{"name": "x"}]}),
    );
    world.exited("a", 0, 1);
    assert_eq!(world.step().outcome, Outcome::Failed { reason: None, message: None });
    assert_eq!(world.step().actions, []);
}

#[test]
fn a_driver_that_exits_with_3_is_failed_with_3() {
    let mut world = World::new(serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "driver"}]}));
    world.exited("driver", 0, 3);
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let containers = status.container_statuses.expect("statuses");
    let state = containers[0].state.as_ref().and_then(|s| s.terminated.as_ref()).expect("terminated");
    assert_eq!((state.exit_code, state.reason.as_deref()), (3, Some("Error")));
}

#[test]
fn restarts_wait_longer_each_time() {
    let mut world = World::new(serde_json::json!({"containers": [{"name": "x"}]}));
    world.exited("x", 0, 1);
    assert_eq!(world.step().actions, [start("x", 1)], "the first one at once");
    world.exited("x", 1, 1);
    assert_eq!(world.step().wake, Some(at(10)));
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let waiting =
        status.container_statuses.expect("statuses")[0].state.clone().and_then(|s| s.waiting).expect("waiting");
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(waiting.message.as_deref(), Some("back-off 10s restarting failed container=x pod=p_n(u)"));
    world.now = at(10);
    assert_eq!(world.step().actions, [start("x", 2)]);
    world.exited("x", 9, 1);
    assert_eq!(world.step().wake, Some(at(10 + 300)));
}

#[test]
fn on_failure_restarts_only_failures() {
    let mut world = World::new(serde_json::json!({"restartPolicy": "OnFailure", "containers": [{"name": "x"}]}));
    world.exited("x", 0, 0);
    assert_eq!(world.step().outcome, Outcome::Succeeded);
    world.exited("x", 0, 2);
    assert_eq!(world.step().actions, [start("x", 1)]);
}

#[test]
fn a_deleted_pod_is_stopped_then_released() {
    let mut world = World::new(serde_json::json!({"restartPolicy": "Always", "containers": [{"name": "x"}]}));
    world.running("x", 0);
    world.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(5)));
    world.pod.metadata.deletion_grace_period_seconds = Some(5);
    assert_eq!(world.step().actions, [stop("x", 5)]);
    assert_eq!(world.step().outcome, Outcome::Running);
    world.exited("x", 0, 143);
    assert_eq!(world.step().actions, [Action::Release]);
    assert_eq!(world.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn a_pod_deleted_before_it_started_is_released_at_once() {
    let mut world = World::new(serde_json::json!({"containers": [{"name": "x"}]}));
    world.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(5)));
    assert_eq!(world.step().actions, [Action::Release]);
}

#[test]
fn sidecars_start_first_and_stop_last() {
    let mut world = World::new(
        serde_json::json!({"restartPolicy": "Never", "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "x"}]}),
    );
    assert_eq!(world.step().actions, [start("s", 0)]);
    world.running("s", 0);
    assert_eq!(world.step().actions, [start("x", 0)]);
    world.running("x", 0);
    assert_eq!(world.step().actions, []);
    world.exited("x", 0, 0);
    assert_eq!(world.step().actions, [stop("s", 30)]);
    assert_eq!(world.step().outcome, Outcome::Running);
    world.exited("s", 0, 143);
    assert_eq!(world.step().actions, []);
    assert_eq!(world.step().outcome, Outcome::Succeeded);
}

#[test]
fn a_pod_past_its_deadline_is_stopped_and_failed() {
    let mut world = World::new(serde_json::json!({"activeDeadlineSeconds": 60, "containers": [{"name": "x"}]}));
    world.running("x", 0);
    world.pod.status =
        Some(serde_json::from_value(serde_json::json!({"startTime": at(0).to_string()})).expect("status"));
    assert_eq!(world.step().wake, Some(at(60)));
    world.now = at(60);
    assert_eq!(world.step().actions, [stop("x", 30)]);
    world.exited("x", 0, 137);
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(world.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn nothing_starts_without_its_image_or_configuration() {
    let mut world = World::new(serde_json::json!({"containers": [{"name": "x", "image": "no/such"}, {"name": "y"}]}));
    world.images.insert("x".to_owned(), ImageState::Failed { why: NoImage::BackingOff, message: "unknown".to_owned() });
    world.config_errors.insert("y".to_owned(), "secret \"s\" not found".to_owned());
    assert_eq!(world.step().actions, []);
    let containers = world.status().container_statuses.expect("statuses");
    let waiting: Vec<_> =
        containers.iter().filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.clone()).collect();
    assert_eq!(waiting, ["ImagePullBackOff", "CreateContainerConfigError"]);
}

#[test]
fn readiness_follows_the_probe() {
    let mut world = World::new(
        serde_json::json!({"containers": [{"name": "x", "readinessProbe": {"exec": {"command": ["true"]}}}]}),
    );
    world.running("x", 0);
    let ready = |w: &World| {
        w.status().conditions.expect("conditions").iter().find(|c| c.type_ == "Ready").map(|c| c.status.clone())
    };
    assert_eq!(ready(&world).as_deref(), Some("False"));
    world.health.insert("x".to_owned(), Health { started: true, ready: true });
    assert_eq!(ready(&world).as_deref(), Some("True"));
}

#[test]
fn what_ran_when_a_shim_died_is_lost_with_137() {
    let mut world =
        World::new(serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "x"}, {"name": "y"}]}));
    world.running("x", 0);
    world.exited("y", 0, 0);
    world.record = without_shim(&world.record, at(1));
    assert_eq!(world.step().outcome, Outcome::Failed { reason: None, message: None });
    let containers = world.status().container_statuses.expect("statuses");
    let state = containers[0].state.as_ref().and_then(|s| s.terminated.as_ref()).expect("terminated");
    assert_eq!((state.exit_code, state.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
}

#[test]
fn an_eviction_declared_by_others_keeps_its_reason_while_containers_stop() {
    let mut world = World::new(serde_json::json!({"restartPolicy": "Always", "containers": [{"name": "x"}]}));
    world.running("x", 0);
    world.pod.status = Some(
        serde_json::from_value(serde_json::json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}))
            .expect("status"),
    );
    assert_eq!(world.step().actions, [stop("x", 30)]);
    assert_eq!(world.status().reason.as_deref(), Some("Evicted"));
    assert_eq!(world.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn a_pod_that_the_node_ends_fails_with_the_reason_of_the_node() {
    let mut world = World::new(serde_json::json!({"containers": [{"name": "c"}], "terminationGracePeriodSeconds": 30}));
    world.running("c", 0);
    world.order = Some(TerminationByKubelet::evict("too much".to_owned(), true));
    let stop = Action::Stop { container: "c".to_owned(), grace: SignedDuration::from_secs(1) };
    assert_eq!(world.step().actions, [stop], "no more time than the order gives");
    assert_eq!(world.status().phase.as_deref(), Some("Running"), "as long as something runs");
    world.exited("c", 0, 137);
    let status = world.status();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref(), status.message.as_deref()),
        (Some("Failed"), Some("Evicted"), Some("too much"))
    );
    let target = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget").expect("a condition");
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("TerminationByKubelet")));
}

#[test]
fn a_pod_that_never_started_is_ended_too() {
    let mut world = World::new(serde_json::json!({"containers": [{"name": "c"}]}));
    world.order = Some(TerminationByKubelet::shut_down(5));
    assert_eq!(world.step().actions, []);
    assert_eq!(world.status().reason.as_deref(), Some("Terminated"));
}
