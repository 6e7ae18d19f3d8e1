//! ServiceIndex that other programs see: paths inside a pod, environment variables, event reasons.

/// Where a Spark runtime appears in a container, as in the stock images.
pub(crate) const SPARK_HOME: &str = "/opt/spark";
/// Where Java appears in a container that has a Spark runtime (as in `apache/spark`).
pub(crate) const JAVA_HOME: &str = "/opt/java/openjdk";
/// The user the stock Spark images run as.
pub(crate) const SPARK_UID: u32 = 185;
/// Told to our entry point when the API server cannot be reached on port 443 of `kubernetes.default.svc`.
pub(crate) const DRIVER_MASTER_ENV: &str = "FIRESTEEL_DRIVER_MASTER";
/// Tells our entry point where the archive of Spark's classes is.
pub(crate) const QUICK_ENV: &str = "FIRESTEEL_QUICK";
/// The search path of a container that names none.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Source component of our events and field manager of our writes.
pub(crate) const COMPONENT: &str = "firesteel-node";

/// Waiting and terminated reasons of containers, spelled as a kubelet spells them.
pub(crate) mod reason {
    pub(crate) const CONTAINER_CREATING: &str = "ContainerCreating";
    pub(crate) const POD_INITIALIZING: &str = "PodInitializing";
    pub(crate) const CONFIG_ERROR: &str = "CreateContainerConfigError";
    pub(crate) const ERR_IMAGE_PULL: &str = "ErrImagePull";
    pub(crate) const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    pub(crate) const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    pub(crate) const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";
    pub(crate) const UNKNOWN: &str = "ContainerStatusUnknown";
}
