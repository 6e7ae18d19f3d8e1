//! Names that are part of the API: group, labels, annotations, condition types.

/// The API group of SparkApplication and its relatives.
pub const GROUP: &str = "sparkoperator.k8s.io";
pub const API_VERSION: &str = "sparkoperator.k8s.io/v1beta2";
pub const KIND: &str = "SparkApplication";
pub const CONNECT_API_VERSION: &str = "sparkoperator.k8s.io/v1alpha1";
pub const CONNECT_KIND: &str = "SparkConnect";

/// Required by API servers for groups under `k8s.io`.
pub const API_APPROVED: (&str, &str) =
    ("api-approved.kubernetes.io", "https://github.com/kubeflow/spark-operator/pull/1298");

pub const LABEL_APP_NAME: &str = "sparkoperator.k8s.io/app-name";
pub const LABEL_SUBMISSION_ID: &str = "sparkoperator.k8s.io/submission-id";
pub const LABEL_LAUNCHED_BY: &str = "sparkoperator.k8s.io/launched-by-spark-operator";
pub const LABEL_CREATED_BY: &str = "sparkoperator.k8s.io/created-by-spark-operator";
/// The SparkConnect of a server, its executors and its objects.
pub const LABEL_CONNECT_NAME: &str = "sparkoperator.k8s.io/connect-name";
pub const LABEL_SCHEDULED_APP: &str = "sparkoperator.k8s.io/scheduled-app-name";

/// Marks services and ingresses that lead to a driver.
pub const LABEL_EXPOSES: &str = "firesteel.dev/exposes";

/// Labels with this prefix are not copied from the application to its pods: Kueue would count the pods twice.
pub const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";

/// Labels that Spark puts on its pods.
pub const LABEL_ROLE: &str = "spark-role";
/// The role of the pod of a Spark Connect server, in place of Spark's `driver`.
pub const ROLE_CONNECT_SERVER: &str = "connect-server";
pub const LABEL_APP_SELECTOR: &str = "spark-app-selector";
pub const LABEL_EXECUTOR_ID: &str = "spark-exec-id";

/// The attempt that an object was created for.
pub const ANNOTATION_ATTEMPT: &str = "firesteel.dev/attempt";
/// The hash of the specification that an object was created from; see `identity::fingerprint` in the core crate.
pub const ANNOTATION_SPEC: &str = "firesteel.dev/spec";
/// The generation of the application that a driver was created from.
pub const ANNOTATION_GENERATION: &str = "firesteel.dev/generation";

/// On executors created before their driver asked for them.
pub const ANNOTATION_EARLY: &str = "firesteel.dev/early";
/// The resources that each executor of a set takes, as JSON; see `allocation::size` in the core crate.
pub const ANNOTATION_SIZE: &str = "firesteel.dev/size";
/// The container that Spark runs in, if it does not have the default name.
pub const ANNOTATION_DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

pub const DRIVER_CONTAINER: &str = "spark-kubernetes-driver";
pub const EXECUTOR_CONTAINER: &str = "spark-kubernetes-executor";
/// The names that Spark's container may have, per role.
pub const DRIVER_CONTAINERS: &[&str] = &[DRIVER_CONTAINER];
pub const EXECUTOR_CONTAINERS: &[&str] = &[EXECUTOR_CONTAINER, "executor"];

/// True once the application has succeeded, false once it has ended otherwise.
pub const CONDITION_SUCCEEDED: &str = "Succeeded";
/// True while the driver is running.
pub const CONDITION_RUNNING: &str = "Running";
/// True once the application has ended, successfully or not.
pub const CONDITION_FINISHED: &str = "Finished";
/// False while the driver pod should exist but does not.
pub const CONDITION_DRIVER_PRESENT: &str = "DriverPresent";
/// False while the driver's Services, Ingresses or PodDisruptionBudget are missing, or exist but should not.
pub const CONDITION_EXPOSED: &str = "Exposed";
/// False if a field of the specification has no effect on the pods that Spark creates.
pub const CONDITION_FIELDS_HONOURED: &str = "FieldsHonoured";
/// False after an invalid edit of the specification: the run continues with the previous one.
pub const CONDITION_SPEC_ACCEPTED: &str = "SpecAccepted";

/// True while the pod of a Spark Connect server accepts connections.
pub const CONDITION_SERVER_POD_READY: &str = "ServerPodReady";

/// True while a schedule starts its runs as they are due.
pub const CONDITION_SCHEDULED: &str = "Scheduled";

/// On a schedule: start a run now. The operator removes it once the run exists.
pub const ANNOTATION_RUN_NOW: &str = "firesteel.dev/run-now";
/// On a run of a schedule: when it was due.
pub const ANNOTATION_SCHEDULED_FOR: &str = "firesteel.dev/scheduled-for";

/// On driver and executor pods of an application whose executors Firesteel allocates.
pub const LABEL_ALLOCATOR: &str = "firesteel.dev/allocator";
/// Set on ended executors that are kept, as Spark does.
pub const LABEL_EXECUTOR_INACTIVE: &str = "spark-exec-inactive";
/// The resource profile of an executor.
pub const LABEL_EXECUTOR_PROFILE: &str = "spark-exec-resourceprofile-id";
/// On pods of sets: how many of the pod's containers had ended when it was labelled with its executor id.
pub const ANNOTATION_ACCOUNTED: &str = "firesteel.dev/ended-containers";
/// Kubernetes' annotation for which pods of a ReplicaSet are deleted first on scale-down.
pub const ANNOTATION_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// On sets of executors: the hash of what they were created from.
pub const ANNOTATION_PLAN: &str = "firesteel.dev/plan";
