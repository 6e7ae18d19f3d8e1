//! The phase of a pod.

use k8s_openapi::api::core::v1::Pod;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodPhase {
    /// Kubernetes' word for it.
    pub fn word(self) -> &'static str {
        match self {
            PodPhase::Pending => "Pending",
            PodPhase::Running => "Running",
            PodPhase::Succeeded => "Succeeded",
            PodPhase::Failed => "Failed",
            PodPhase::Unknown => "Unknown",
        }
    }
}

/// The phase of a pod. One that has none yet is pending.
pub fn phase(pod: &Pod) -> PodPhase {
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Pending") | None => PodPhase::Pending,
        Some(_) => PodPhase::Unknown,
    }
}
