//! Reasons of the events that the operator publishes: one table for the code and the reference.
//!
//! Reasons about applications keep the names of the existing operator, which dashboards and alerts use.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+

        /// Every reason, and when it is used.
        pub const ALL: &[(&str, &str)] = &[$(($text, concat!($($doc),+))),+];
    };
}

/// Events on a SparkApplication.
pub mod application {
    reasons! {
        /// The operator saw the application for the first time.
        ADDED = "SparkApplicationAdded";
        /// The driver pod of an attempt was created.
        SUBMITTED = "SparkApplicationSubmitted";
        /// The cluster refused a driver, or kept failing while one was created.
        SUBMISSION_FAILED = "SparkApplicationSubmissionFailed";
        /// The API server or an admission webhook failed while a driver was created; the operator retries.
        SUBMISSION_RETRIED = "SparkApplicationSubmissionRetried";
        /// Something else the operator does for the application failed three times or more; it keeps retrying.
        RETRIED = "SparkApplicationRetried";
        /// The application succeeded.
        COMPLETED = "SparkApplicationCompleted";
        /// The application failed, and no retry follows.
        FAILED = "SparkApplicationFailed";
        /// Objects of the last attempt are being deleted before the next one.
        PENDING_RERUN = "SparkApplicationPendingRerun";
        /// The specification changed; the application runs again.
        SPEC_UPDATED = "SparkApplicationSpecUpdated";
        /// An edit is invalid; the current run continues with the previous specification.
        SPEC_UPDATE_FAILED = "SparkApplicationSpecUpdateFailed";
        /// The cluster's custom resource definition drops fields that the operator writes.
        DEFINITION_OUTDATED = "SparkApplicationDefinitionOutdated";
        /// `spec.suspend` is set; the driver is being removed.
        SUSPENDING = "SparkApplicationSuspending";
        /// The application is suspended.
        SUSPENDED = "SparkApplicationSuspended";
        /// `spec.suspend` was cleared; the application starts again.
        RESUMING = "SparkApplicationResuming";
        /// A field has no effect, because Spark overwrites it or this operator does not act on it.
        FIELD_NOT_HONOURED = "SparkApplicationFieldNotHonoured";
        /// Settings that are probably mistakes: a misspelt key, or on-demand claims that nobody creates.
        REMARK = "SparkApplicationRemark";
        /// The driver pod is waiting; the note quotes the scheduler or the kubelet.
        DRIVER_PENDING = "SparkDriverPending";
        /// The driver runs.
        DRIVER_RUNNING = "SparkDriverRunning";
        /// The driver exited with code 0.
        DRIVER_COMPLETED = "SparkDriverCompleted";
        /// The driver failed.
        DRIVER_FAILED = "SparkDriverFailed";
        /// The driver's node does not report its state.
        DRIVER_UNKNOWN = "SparkDriverUnknown";
        /// The driver pod no longer exists.
        DRIVER_NOT_FOUND = "SparkDriverNotFound";
        /// The driver pod is terminating on a node that does not report.
        DRIVER_UNREACHABLE = "SparkDriverUnreachable";
        /// The driver was force-deleted because its node is gone or out of service.
        DRIVER_LOST = "SparkDriverLost";
        /// A Service, Ingress or PodDisruptionBudget of the driver could not be created or removed.
        DRIVER_NOT_EXPOSED = "SparkDriverNotExposed";
        /// An executor pod is waiting.
        EXECUTOR_PENDING = "SparkExecutorPending";
        /// An executor runs.
        EXECUTOR_RUNNING = "SparkExecutorRunning";
        /// An executor exited with code 0.
        EXECUTOR_COMPLETED = "SparkExecutorCompleted";
        /// An executor failed.
        EXECUTOR_FAILED = "SparkExecutorFailed";
        /// The state of an executor is unknown.
        EXECUTOR_UNKNOWN = "SparkExecutorUnknown";
    }

    /// The course of a run that goes well; each says more than those before it. Those that follow each other quickly are
    /// published as one event.
    pub const COURSE: [&str; 6] = [ADDED, DRIVER_PENDING, SUBMITTED, DRIVER_RUNNING, DRIVER_COMPLETED, COMPLETED];
}

/// Events on a SparkConnect.
pub mod connect {
    reasons! {
        /// A server pod was created.
        SERVER_CREATED = "SparkConnectServerCreated";
        /// The server accepts connections.
        SERVER_READY = "SparkConnectServerReady";
        /// The server pod is waiting; the note quotes the scheduler or the kubelet.
        SERVER_PENDING = "SparkConnectServerPending";
        /// A server that was ready no longer accepts connections.
        SERVER_NOT_READY = "SparkConnectServerNotReady";
        /// A server ended, or the cluster refused it; the next one follows after a wait.
        SERVER_FAILED = "SparkConnectServerFailed";
        /// The pod of a server no longer exists; it is created again.
        SERVER_GONE = "SparkConnectServerGone";
        /// The API server or an admission webhook failed while a server was created; the operator retries.
        SERVER_RETRIED = "SparkConnectServerRetried";
        /// The specification changed; the server is being replaced.
        ROLLED_OUT = "SparkConnectRolledOut";
        /// The specification cannot work; the note names the field. A running server is kept.
        SPEC_REFUSED = "SparkConnectSpecRefused";
        /// The Service for clients could not be created or updated.
        SERVICE_FAILED = "SparkConnectServiceFailed";
        /// Something else the operator does for the SparkConnect failed three times or more; it keeps retrying.
        RETRIED = "SparkConnectRetried";
        /// Settings that are probably mistakes, such as a misspelt key.
        REMARK = "SparkConnectRemark";
    }
}

/// Events on a ScheduledSparkApplication.
pub mod schedule {
    reasons! {
        /// The schedule is in force; the note says when the next run is due.
        SCHEDULED = "Scheduled";
        /// The specification is invalid; no run starts until it is corrected.
        FAILED_VALIDATION = "FailedValidation";
        /// A run was started.
        RUN_STARTED = "RunStarted";
        /// A run is due, but `concurrencyPolicy: Forbid` makes it wait for another one to end.
        RUN_WAITING = "RunWaiting";
        /// An unfinished run was deleted in favour of a new one (`concurrencyPolicy: Replace`).
        RUN_REPLACED = "RunReplaced";
        /// Runs could not start within `startingDeadlineSeconds` and were skipped.
        RUNS_MISSED = "RunsMissed";
        /// The cluster refused to create a run; the operator keeps trying.
        RUN_REFUSED = "RunRefused";
        /// Something the operator does for the schedule failed three times or more; it keeps retrying.
        RETRIED = "Retried";
    }
}

/// Events on the Secret with the webhook's certificates.
pub mod webhook {
    reasons! {
        /// The webhook has a new certificate; the note says until when, and why.
        RENEWED = "WebhookCertificateRenewed";
        /// A certificate cannot be used; the note says why. The one before is still served.
        UNUSABLE = "WebhookCertificateUnusable";
    }
}

/// Events on the driver pod of an application with its executors outside the driver.
pub mod executors {
    reasons! {
        /// The operator does not serve this grant; the note says why and what to do.
        NOT_ACCEPTED = "NotAccepted";
        /// The driver asks for more than its grant or the operator allows.
        DEMAND_CLAMPED = "DemandClamped";
        /// The executors' environment changed while another driver of the same service account runs, and no admission policy is in force: the change is ignored.
        DEMAND_DOUBTED = "DemandDoubted";
        /// Executors created together with the driver are not what it asks for, or could do harm; the note says why.
        EARLY_WITHDRAWN = "EarlyExecutorsWithdrawn";
        /// New executors get what an edit of the application changed; those that exist are left alone.
        TEMPLATE_UPDATED = "ExecutorTemplateUpdated";
        /// An executor was lost; the note says why.
        EXECUTOR_LOST = "ExecutorLost";
        /// Executors failed on a node; new ones avoid it for a while.
        NODE_AVOIDED = "NodeAvoided";
        /// The namespace has reached the operator's limit; executors wait.
        NAMESPACE_LIMIT = "NamespaceLimit";
        /// The namespace's ResourceQuota is full; executors wait.
        QUOTA_EXCEEDED = "QuotaExceeded";
        /// The API server is overloaded; executors wait.
        API_SERVER_BUSY = "ApiServerBusy";
        /// The cluster refused an executor; it is retried with an increasing delay.
        REFUSED = "Refused";
        /// Verdict: more executors failed than `spark.executor.maxNumFailures` allows. The driver exits with code 11.
        KEEP_FAILING = "ExecutorsKeepFailing";
        /// Verdict: no executor is left, and `spark.kubernetes.allocation.maximum` of them were created. The driver exits with code 11.
        USED_UP = "ExecutorsUsedUp";
        /// Verdict: no executor is left, and six starts in a row failed. The driver exits with code 11.
        NONE_STARTS = "NoExecutorStarts";
        /// Verdict: no executor is left, and the cluster keeps refusing new ones. The driver exits with code 11.
        ALL_REFUSED = "ExecutorsRefused";
    }
}
