//! Names of the API that others key on: group, labels, annotations, condition types.

/// The API group of SparkApplication and its relatives.
pub const GROUP: &str = "sparkoperator.k8s.io";
pub const API_VERSION: &str = "sparkoperator.k8s.io/v1beta2";
pub const KIND: &str = "SparkApplication";

/// Required by API servers for groups below `k8s.io`.
pub const API_APPROVED: (&str, &str) =
    ("api-approved.kubernetes.io", "https://github.com/kubeflow/spark-operator/pull/1298");

pub const LABEL_APP_NAME: &str = "sparkoperator.k8s.io/app-name";
pub const LABEL_SUBMISSION_ID: &str = "sparkoperator.k8s.io/submission-id";
pub const LABEL_LAUNCHED_BY: &str = "sparkoperator.k8s.io/launched-by-spark-operator";
pub const LABEL_CREATED_BY: &str = "sparkoperator.k8s.io/created-by-spark-operator";
pub const LABEL_SCHEDULED_APP: &str = "sparkoperator.k8s.io/scheduled-app-name";

/// Marks services and ingresses that lead to a driver.
pub const LABEL_EXPOSES: &str = "firesteel.dev/exposes";

/// Labels of the application with this prefix stay on the application: Kueue would count the pods twice otherwise.
pub const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";

/// Labels that Spark puts on its pods.
pub const LABEL_ROLE: &str = "spark-role";
pub const LABEL_APP_SELECTOR: &str = "spark-app-selector";
pub const LABEL_EXECUTOR_ID: &str = "spark-exec-id";

/// The attempt an object was made for.
pub const ANNOTATION_ATTEMPT: &str = "firesteel.dev/attempt";
/// The hash of the specification an object was made from; see `defaults::fingerprint`.
pub const ANNOTATION_SPEC: &str = "firesteel.dev/spec";
/// The generation of the application a driver was made from.
pub const ANNOTATION_GENERATION: &str = "firesteel.dev/generation";

/// What the executors of a set take, as JSON; see `allocation::size`.
pub const ANNOTATION_SIZE: &str = "firesteel.dev/size";
/// The container that Spark runs in, if it has another name than the usual one.
pub const ANNOTATION_DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

pub const DRIVER_CONTAINER: &str = "spark-kubernetes-driver";
pub const EXECUTOR_CONTAINER: &str = "spark-kubernetes-executor";

/// True once the application ended well, false once it ended otherwise.
pub const CONDITION_SUCCEEDED: &str = "Succeeded";
/// True while the driver runs.
pub const CONDITION_RUNNING: &str = "Running";
/// True once the application ended, one way or the other.
pub const CONDITION_FINISHED: &str = "Finished";
/// False while the driver pod that should exist is not there.
pub const CONDITION_DRIVER_PRESENT: &str = "DriverPresent";
/// False while services, ingresses or the budget that should stand around the driver do not, or should not and do.
pub const CONDITION_EXPOSED: &str = "Exposed";
/// False when a field of the specification cannot take effect in the pods Spark makes.
pub const CONDITION_FIELDS_HONOURED: &str = "FieldsHonoured";
/// False while the specification was edited in a way that cannot work: the run goes on with the one before.
pub const CONDITION_SPEC_ACCEPTED: &str = "SpecAccepted";

/// On the pods of an application whose executors Firesteel allocates: driver and executors alike.
pub const LABEL_ALLOCATOR: &str = "firesteel.dev/allocator";
/// Set, as by Spark itself, on ended executors that are kept.
pub const LABEL_EXECUTOR_INACTIVE: &str = "spark-exec-inactive";
/// The resource profile of an executor.
pub const LABEL_EXECUTOR_PROFILE: &str = "spark-exec-resourceprofile-id";
/// On members of sets: how many of a pod's containers had ended when it was labelled with its executor's id.
pub const ANNOTATION_ACCOUNTED: &str = "firesteel.dev/ended-containers";
/// Kubernetes': which pods of a ReplicaSet go first when it shrinks.
pub const ANNOTATION_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// On sets of executors: the hash of what they were made from.
pub const ANNOTATION_PLAN: &str = "firesteel.dev/plan";
