//! The agent and the machine: what survives, what is hidden, and what images are.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;

use crate::harness::{World, exit, phase};
use crate::sh;

pub(crate) async fn an_agent_that_dies_loses_nothing(mut world: World) {
    world.run("survivor", sh("for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.3; done; exit 7")).await;
    world.run("quick", sh("sleep 1; exit 5")).await;
    let before = world.running("survivor").await;
    world.kill_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.start_agent().await;
    let pod = world.ended("survivor").await;
    assert_eq!(exit(&pod), (7, "Error".to_owned()));
    let address = |p: &k8s_openapi::api::core::v1::Pod| p.status.as_ref().and_then(|s| s.pod_ip.clone());
    assert_eq!(address(&pod), address(&before));
    assert_eq!(pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()).map(|c| c[0].restart_count), Some(0));
    let log = world.log(&pod, "c").await;
    assert_eq!(log.lines().count(), 10, "{log}");
    assert_eq!(exit(&world.ended("quick").await), (5, "Error".to_owned()), "ended while no agent was there");
    world.finish().await;
}

/// Terminated pods cost nothing, whether they ended before or after the agent started.
pub(crate) async fn an_agent_with_nothing_to_do_does_nothing(mut world: World) {
    world.run("before", sh("true")).await;
    world.ended("before").await;
    world.kill_agent();
    world.start_agent().await;
    world.run("after", sh("exit 3")).await;
    world.ended("after").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pid = world.agent_pid().unwrap();
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    // In hundredths of a second, as always on Linux. The agent also sees pods of other tests on a shared cluster, so one idle moment is
    // enough: a busy loop has none.
    let mut used = Vec::new();
    for _ in 0..15 {
        let before = ticks();
        tokio::time::sleep(Duration::from_secs(2)).await;
        used.push(ticks() - before);
        if used.last().is_some_and(|u| *u < 15) {
            return world.finish().await;
        }
    }
    panic!("processor time in each two seconds, in ticks: {used:?}");
}

pub(crate) async fn nothing_of_the_host_is_visible(world: World) {
    let data = world.data_dir.display().to_string();
    let script = format!(
        "ls -A /root /home; [ ! -e {data} ] && [ ! -e /etc/shadow ] && [ ! -e /etc/kubernetes ] && ! touch /usr/x 2>/dev/null && [ $(ps ax | wc -l) -lt 8 ]"
    );
    world.run("blind", sh(&script)).await;
    let pod = world.ended("blind").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert_eq!(log, "/home:\n\n/root:\n", "homes are empty");
    world.finish().await;
}

pub(crate) async fn an_image_can_be_a_root_file_system(world: World) {
    let root = tempfile::tempdir().expect("dir");
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    small_root(root.path());
    std::fs::write(root.path().join("mark"), "only here\n").expect("a file");
    world.map_image("example.com/small:1", root.path());
    let script = "read line < /mark; echo \"$line\"; (echo changed > /mark) 2> /dev/null; [ ! -e /usr/bin/python3 ] && [ -e /etc/hosts ]";
    let mut spec = sh(script);
    spec["containers"][0]["image"] = json!("example.com/small:1");
    world.run("small", spec).await;
    let pod = world.ended("small").await;
    let log = world.log(&pod, "c").await;
    assert_eq!((phase(&pod), log.as_str()), ("Succeeded", "only here\n"));
    assert_eq!(
        std::fs::read_to_string(root.path().join("mark")).expect("the file"),
        "only here\n",
        "the image stays as it is"
    );
    world.finish().await;
}

/// A root file system with nothing but a shell.
fn small_root(root: &std::path::Path) {
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    let listed = std::process::Command::new("ldd").arg(&shell).output().expect("ldd");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|w| w.starts_with('/')).map(std::path::PathBuf::from);
    let put = |from: &std::path::Path, to: &std::path::Path| {
        let place = root.join(to.strip_prefix("/").expect("an absolute path"));
        std::fs::create_dir_all(place.parent().expect("a parent")).expect("dir");
        std::fs::copy(from, place).expect("a copy");
    };
    put(&shell, std::path::Path::new("/bin/sh"));
    for library in libraries {
        put(&library, &library);
    }
}

pub(crate) async fn a_service_account_reaches_the_api_server(world: World) {
    if !world.real {
        world.create::<ServiceAccount>(json!({"metadata": {"name": "spark"}})).await;
    }
    let ask = r#"
import json, os, ssl, urllib.request
base = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(base + "token").read()
context = ssl.create_default_context(cafile=base + "ca.crt")
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
def ask(url):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(url + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, headers)
    return json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]["username"]
print(ask("https://%s:%s" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])))
print(open(base + "namespace").read())
if os.getuid() == 0 and open("/proc/self/uid_map").read().split()[1] == "0":
    print(ask("https://kubernetes.default.svc"))
"#;
    let spec = json!({"serviceAccountName": "spark", "automountServiceAccountToken": true, "containers": [{"name": "c", "command": ["python3", "-c", ask]}]});
    world.run("asks", spec).await;
    let pod = world.ended("asks").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    let user = format!("system:serviceaccount:{}:spark", world.namespace);
    assert!(log.starts_with(&format!("{user}\n{}\n", world.namespace)), "{log}");
    world.finish().await;
}

/// A full disk: the pod that filled it is evicted, which frees space; other pods keep running and lose only output.
pub(crate) async fn a_full_disk_ends_only_who_filled_it(mut world: World) {
    world.restart_on_a_disk_of("24m").await;
    let host = tempfile::tempdir().expect("dir");
    let mut spec = sh("while [ ! -e /h/stop ]; do printf '%0500d\\n' 0; sleep 0.01; done; echo the end; exit 3");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "h", "mountPath": "/h"}]);
    spec["volumes"] = json!([{"name": "h", "hostPath": {"path": host.path()}}]);
    world.run("steady", spec).await;
    world.running("steady").await;
    let mut spec = sh("trap '' TERM; dd if=/dev/zero of=/v/big; while true; do sleep 1; done");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    world.run("hog", spec).await;
    let hog = world.ended("hog").await.status.unwrap_or_default();
    assert_eq!(hog.reason.as_deref(), Some("Evicted"));
    assert!(hog.message.unwrap_or_default().starts_with("The node was low on resource: ephemeral-storage. "));
    world.run("late", sh("echo there is room")).await;
    assert_eq!(phase(&world.ended("late").await), "Succeeded", "what an evicted pod had is given back");
    std::fs::write(host.path().join("stop"), "").expect("a sign");
    let pod = world.ended("steady").await;
    assert_eq!(exit(&pod), (3, "Error".to_owned()));
    let log = world.log(&pod, "c").await;
    assert!(log.ends_with("the end\n"), "{log}");
    assert!(log.contains("bytes of output could not be logged: No space left on device"), "what is missing is said");
    world.finish().await;
}

/// No room for another process: reported in one sentence, and retried.
pub(crate) async fn a_process_that_cannot_be_started_is_tried_again(world: World) {
    use nix::sys::resource::Resource;
    let agent = world.agent_pid().expect("an agent");
    // Set by the user itself: a container's root cannot change the limits of others.
    let limit = |most: &str| {
        let mut change = std::process::Command::new("prlimit");
        std::os::unix::process::CommandExt::uid(&mut change, crate::for_an_ordinary_user::USER);
        std::os::unix::process::CommandExt::gid(&mut change, crate::for_an_ordinary_user::USER);
        change.args([format!("--nproc={most}:"), format!("--pid={agent}")]);
        assert!(change.status().expect("prlimit").success());
    };
    let (before, _) = nix::sys::resource::getrlimit(Resource::RLIMIT_NPROC).expect("a limit");
    limit("1");
    world.run("crowded", sh("echo at last")).await;
    // Which of the two runs out first depends on the agent's state.
    world.event("crowded", "the machine or this user has no room for another").await;
    assert_eq!(phase(&world.pods().get("crowded").await.expect("a pod")), "Pending");
    limit(&before.to_string());
    let pod = world.ended("crowded").await;
    assert_eq!((phase(&pod), world.log(&pod, "c").await.as_str()), ("Succeeded", "at last\n"));
    world.finish().await;
}
