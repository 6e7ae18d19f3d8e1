//! Pods as real processes, on our API server and on a real one.
//!
//! The list below is what a node must do. Every case runs on both API servers with an agent that is root; cases that depend on
//! privileges also run with an ordinary user's agent.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod endings;
mod harness;
mod health;
mod machine;
mod network;
mod refusals;
mod spark;
mod streams;
mod volumes;

use serde_json::json;

use harness::{Cluster, World};

/// Every case runs on both clusters.
macro_rules! cases {
    ($($module:ident: $($name:ident),* ;)*) => {
        mod on_our_api_server {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let world = super::World::new(super::Cluster::Ours).await.expect("our own cluster");
                super::$module::$name(world).await;
            })*)*
        }
        mod on_a_real_api_server {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some(world) = super::World::new(super::Cluster::Real).await else { return };
                super::$module::$name(world).await;
            })*)*
        }
    };
}

cases!(
    endings:
        a_failing_container_fails_its_pod_with_its_exit_code,
        a_container_is_restarted_on_failure,
        a_container_that_always_restarts_backs_off,
        a_deleted_pod_ends_gracefully,
        memory_beyond_the_limit_kills,
        a_deadline_ends_a_pod,
        many_short_pods_end_right,
        sidecars_live_as_long_as_the_rest,
        the_end_of_the_log_can_be_the_message,
        a_node_that_is_shut_down_ends_its_pods,
        a_long_log_is_whole;
    health:
        a_pre_stop_hook_runs_before_the_end,
        a_pre_stop_request_is_sent,
        hooks_run_at_both_ends,
        probes_decide_about_readiness_and_restarts,
        probes_ask_over_the_network;
    machine:
        an_agent_that_dies_loses_nothing,
        an_agent_with_nothing_to_do_does_nothing,
        a_full_disk_ends_only_who_filled_it,
        nothing_of_the_host_is_visible,
        an_image_can_be_a_root_file_system,
        a_service_account_reaches_the_api_server;
    network:
        a_service_name_leads_to_its_pods,
        a_service_leads_to_pods_of_another_node,
        a_service_leads_to_the_target_port;
    refusals:
        a_pod_waits_for_its_config_map,
        a_missing_secret_key_is_a_configuration_error,
        an_unknown_image_is_said_with_the_way_out,
        a_command_that_does_not_exist_is_a_start_error,
        what_is_missing_is_named,
        the_security_context_is_applied;
    streams:
        kubectl_reaches_into_pods,
        exec_before_the_start_is_refused_as_a_kubelet_does,
        a_container_can_have_a_terminal,
        a_node_is_drained;
    volumes:
        volumes_and_variables_are_as_declared,
        other_volumes_are_as_declared,
        changes_reach_running_containers,
        a_claim_is_mounted_from_its_volume,
        a_pod_that_writes_too_much_is_evicted;
);

/// The same cases with an ordinary user's agent: user namespaces, no cgroups, no port 443.
mod for_an_ordinary_user {
    pub(crate) const USER: u32 = 54321;

    macro_rules! cases {
        ($($module:ident: $($name:ident),* ;)*) => {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if !nix::unistd::Uid::effective().is_root() {
                    return;
                }
                let world = super::World::with_agent_of(super::Cluster::Ours, USER).await.expect("our own cluster");
                super::$module::$name(world).await;
            })*)*
        };
    }

    cases!(
        endings:
            a_failing_container_fails_its_pod_with_its_exit_code,
            a_deleted_pod_ends_gracefully,
            a_node_that_is_shut_down_ends_its_pods,
            many_short_pods_end_right,
            memory_beyond_the_limit_kills;
        health:
            hooks_run_at_both_ends,
            probes_decide_about_readiness_and_restarts;
        machine:
            an_agent_that_dies_loses_nothing,
            a_process_that_cannot_be_started_is_tried_again,
            nothing_of_the_host_is_visible,
            an_image_can_be_a_root_file_system,
            a_service_account_reaches_the_api_server;
        network:
            a_service_name_leads_to_its_pods,
            a_service_leads_to_the_target_port;
        refusals:
            what_needs_root_is_refused;
        streams:
            kubectl_reaches_into_pods;
        volumes:
            volumes_and_variables_are_as_declared,
            changes_reach_running_containers;
    );
}

fn sh(script: &str) -> serde_json::Value {
    json!({"containers": [{"name": "c", "command": ["sh", "-c", script]}]})
}
