//! Which security context settings this node supports, and which it rejects. Pure.
//!
//! Rejected are settings that would exceed the agent's own privileges, and settings that a pod relies on but would not get. Settings
//! that only restrict further (seccomp profiles, SELinux) are ignored with an event: the local cluster protects from accidents,
//! not from attacks.

use k8s_openapi::api::core::v1::{Container, Pod};

/// An unsupported setting; the message goes into an event and the container's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnsupportedSecurityContext(String);

/// Linux capabilities by number.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
/// The default capabilities of a container's root: those of common container runtimes, without creating device files.
const DEFAULT: [i32; 13] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31];

fn number(name: &str) -> Option<i32> {
    let name = name.to_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name).to_owned();
    NAMES.iter().position(|n| **n == name).and_then(|n| i32::try_from(n).ok())
}

fn every() -> Vec<i32> {
    (0..).take(NAMES.len()).collect()
}

/// A container's capabilities: the default, minus `drop`, plus `add`.
pub(crate) fn capabilities(container: &Container) -> Vec<i32> {
    let wish = container.security_context.as_ref().and_then(|s| s.capabilities.as_ref());
    let is_all = |list: &Option<Vec<String>>| list.iter().flatten().any(|n| n.eq_ignore_ascii_case("ALL"));
    let named = |list: &Option<Vec<String>>| list.iter().flatten().filter_map(|n| number(n)).collect::<Vec<i32>>();
    let Some(wish) = wish else { return DEFAULT.to_vec() };
    let mut kept = if is_all(&wish.add) { every() } else { DEFAULT.to_vec() };
    if is_all(&wish.drop) {
        kept.clear();
    }
    let dropped = named(&wish.drop);
    kept.retain(|c| !dropped.contains(c));
    for added in named(&wish.add) {
        if !kept.contains(&added) {
            kept.push(added);
        }
    }
    kept
}

/// Rejects what this node does not support.
pub(crate) fn check(pod: &Pod, container: &Container, root: bool) -> Result<(), UnsupportedSecurityContext> {
    let refuse = |text: String| Err(UnsupportedSecurityContext(text));
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|s| s.security_context.as_ref());
    let own = container.security_context.as_ref();
    for (wish, name) in [
        (spec.and_then(|s| s.host_pid), "hostPID"),
        (spec.and_then(|s| s.host_ipc), "hostIPC"),
        (spec.and_then(|s| s.share_process_namespace), "shareProcessNamespace"),
    ] {
        if wish == Some(true) {
            return refuse(format!("{name} is not supported by this node: every container has its own namespaces"));
        }
    }
    if let Some(name) = of_pod.and_then(|s| s.sysctls.as_ref()?.first()).map(|s| &s.name) {
        return refuse(format!("sysctl {name} cannot be set by this node: pods share the machine's kernel settings"));
    }
    let local_seccomp = [of_pod.and_then(|s| s.seccomp_profile.as_ref()), own.and_then(|s| s.seccomp_profile.as_ref())];
    if local_seccomp.into_iter().flatten().any(|p| p.type_ == "Localhost") {
        return refuse("this node does not support seccomp profiles of type Localhost".to_owned());
    }
    let local_apparmor =
        [of_pod.and_then(|s| s.app_armor_profile.as_ref()), own.and_then(|s| s.app_armor_profile.as_ref())];
    if local_apparmor.into_iter().flatten().any(|p| p.type_ == "Localhost") {
        return refuse("this node does not support AppArmor profiles of type Localhost".to_owned());
    }
    let added = own.and_then(|s| s.capabilities.as_ref()).and_then(|c| c.add.clone()).unwrap_or_default();
    if let Some(unknown) = added.iter().find(|n| !n.eq_ignore_ascii_case("ALL") && number(n).is_none()) {
        return refuse(format!("unknown capability {unknown}"));
    }
    if root {
        return Ok(());
    }
    if own.and_then(|s| s.privileged) == Some(true) {
        return refuse("a privileged container needs a node agent that runs as root".to_owned());
    }
    // The sysctl that lets ordinary images bind low ports is requested so often that an event is enough.
    if let Some(name) = added.iter().find(|n| number(n) != number("NET_BIND_SERVICE")) {
        return refuse(format!("capability {name} needs a node agent that runs as root"));
    }
    Ok(())
}

/// Settings that have no effect here, for an event.
pub(crate) fn not_applied(pod: &Pod, container: &Container, root: bool) -> Vec<String> {
    let mut all = Vec::new();
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = container.security_context.as_ref();
    if of_pod.is_some_and(|s| s.se_linux_options.is_some()) || own.is_some_and(|s| s.se_linux_options.is_some()) {
        all.push("seLinuxOptions have no effect on this node".to_owned());
    }
    let groups =
        of_pod.is_some_and(|s| s.fs_group.is_some() || s.supplemental_groups.as_ref().is_some_and(|g| !g.is_empty()));
    if !root && groups {
        all.push(
            "fsGroup and supplementalGroups are not applied: the node agent is not root, so a container has one user and one group"
                .to_owned(),
        );
    }
    let binds = own.and_then(|s| s.capabilities.as_ref()?.add.as_ref()).is_some_and(|a| !a.is_empty());
    if !root && binds {
        all.push("capability NET_BIND_SERVICE is not applied: the node agent is not root".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value, context: serde_json::Value) -> (Pod, Container) {
        let container = serde_json::json!({"name": "c", "securityContext": context});
        let mut spec = spec;
        spec["containers"] = serde_json::json!([container]);
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
        let container = pod.spec.as_ref().expect("spec").containers[0].clone();
        (pod, container)
    }

    fn said(spec: serde_json::Value, context: serde_json::Value, root: bool) -> String {
        let (pod, container) = pod(spec, context);
        check(&pod, &container, root).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_needs_root_is_refused_by_an_ordinary_user() {
        let none = || serde_json::json!({});
        let privileged = || serde_json::json!({"privileged": true});
        assert_eq!(said(none(), privileged(), false), "a privileged container needs a node agent that runs as root");
        assert_eq!(said(none(), privileged(), true), "");
        let admin = || serde_json::json!({"capabilities": {"add": ["SYS_ADMIN"]}});
        assert_eq!(said(none(), admin(), false), "capability SYS_ADMIN needs a node agent that runs as root");
        assert_eq!(said(none(), admin(), true), "");
        let restricted = serde_json::json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(said(none(), restricted, false), "", "the restricted profile is fine");
    }

    #[test]
    fn what_nobody_gets_here_is_refused() {
        let none = || serde_json::json!({});
        assert!(said(serde_json::json!({"hostPID": true}), none(), true).starts_with("hostPID is not supported"));
        let sysctls =
            serde_json::json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}});
        assert!(said(sysctls, none(), true).starts_with("sysctl net.core.somaxconn cannot be set"));
        assert!(said(none(), serde_json::json!({"seccompProfile": {"type": "Localhost"}}), true).contains("Localhost"));
    }

    #[test]
    fn capabilities_are_dropped_and_added() {
        let of = |wish: serde_json::Value| {
            capabilities(&pod(serde_json::json!({}), serde_json::json!({"capabilities": wish})).1)
        };
        assert_eq!(of(serde_json::json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})), [10]);
        assert!(!of(serde_json::json!({"drop": ["CHOWN"]})).contains(&0));
        assert!(of(serde_json::json!({"add": ["CAP_SYS_ADMIN"]})).contains(&21));
        assert_eq!(of(serde_json::json!({"add": ["ALL"]})).len(), NAMES.len());
    }

    #[test]
    fn what_has_no_effect_is_said() {
        let (pod, container) = pod(serde_json::json!({"securityContext": {"fsGroup": 185}}), serde_json::json!({}));
        assert_eq!(not_applied(&pod, &container, true), Vec::<String>::new());
        assert!(not_applied(&pod, &container, false)[0].starts_with("fsGroup"));
    }
}
