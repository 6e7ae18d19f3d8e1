//! Names visible to other programs: paths inside pods, environment variables, event reasons.

/// Where Spark is mounted in a container, as in the stock images.
pub(crate) const SPARK_HOME: &str = "/opt/spark";
/// Where Java is mounted in a container with Spark (as in `apache/spark`).
pub(crate) const JAVA_HOME: &str = "/opt/java/openjdk";
/// The user the stock Spark images run as.
pub(crate) const SPARK_UID: u32 = 185;
/// Tells our entry point the API server's address if port 443 of `kubernetes.default.svc` is unavailable.
pub(crate) const DRIVER_MASTER_ENV: &str = "FIRESTEEL_DRIVER_MASTER";
/// Tells our entry point where the class data archive is.
pub(crate) const QUICK_ENV: &str = "FIRESTEEL_QUICK";
/// The default PATH of a container.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The source component of our events and the field manager of our writes.
pub(crate) const COMPONENT: &str = "firesteel-node";

/// Waiting and terminated reasons, spelled as by a kubelet.
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
