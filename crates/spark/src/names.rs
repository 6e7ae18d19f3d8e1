//! Names that Spark and Kubernetes give meaning to: labels, environment variables, volumes, paths and configuration
//! keys that the plan reads or writes. Nothing else in this crate spells them out.

/// Labels that Spark keeps its books by; users may not set them.
pub mod label {
    pub const APP_ID: &str = "spark-app-selector";
    pub const APP_NAME: &str = "spark-app-name";
    pub const ROLE: &str = "spark-role";
    pub const VERSION: &str = "spark-version";

    pub const ROLE_DRIVER: &str = "driver";
    pub const ROLE_EXECUTOR: &str = "executor";
}

/// Environment variables of driver containers, and of the submitter where it says so.
pub mod env {
    pub const APPLICATION_ID: &str = "SPARK_APPLICATION_ID";
    pub const CONF_DIR: &str = "SPARK_CONF_DIR";
    pub const DRIVER_BIND_ADDRESS: &str = "SPARK_DRIVER_BIND_ADDRESS";
    pub const HADOOP_CONF_DIR: &str = "HADOOP_CONF_DIR";
    pub const HADOOP_TOKEN_FILE: &str = "HADOOP_TOKEN_FILE_LOCATION";
    pub const LOCAL_DIRS: &str = "SPARK_LOCAL_DIRS";
    pub const PYSPARK_DRIVER_PYTHON: &str = "PYSPARK_DRIVER_PYTHON";
    pub const PYSPARK_PYTHON: &str = "PYSPARK_PYTHON";
    pub const SPARK_HOME: &str = "SPARK_HOME";
    pub const USER: &str = "SPARK_USER";
}

/// Paths inside the driver container.
pub mod path {
    pub const CONF_DIR: &str = "/opt/spark/conf";
    pub const CREDENTIALS: &str = "/mnt/secrets/spark-kubernetes-credentials";
    pub const HADOOP_CONF: &str = "/opt/hadoop/conf";
    pub const HADOOP_TOKENS: &str = "/mnt/secrets/hadoop-credentials";
    pub const KEYTAB: &str = "/mnt/secrets/kerberos-keytab";
    pub const KRB5: &str = "/etc/krb5.conf";
    pub const PROPERTIES: &str = "/opt/spark/conf/spark.properties";
    pub const TEMPLATE_DIR: &str = "/opt/spark/pod-template";
    pub const TEMPLATE_FILE: &str = "pod-spec-template.yml";
}

/// Volumes of the driver pod.
pub mod volume {
    pub const CONF: &str = "spark-conf-volume-driver";
    pub const CREDENTIALS: &str = "kubernetes-credentials";
    pub const HADOOP_CONF: &str = "hadoop-properties";
    pub const HADOOP_TOKENS: &str = "hadoop-secret";
    pub const KEYTAB: &str = "kerberos-keytab";
    pub const KRB5: &str = "krb5-file";
    pub const LOCAL_DIR_PREFIX: &str = "spark-local-dir-";
    pub const TEMPLATE: &str = "pod-template-volume";
}

/// Ports of driver container and service.
pub mod port {
    pub const BLOCK_MANAGER: (&str, i32) = ("blockmanager", 7079);
    pub const CONNECT: (&str, i32) = ("spark-connect", 15002);
    pub const RPC: (&str, i32) = ("driver-rpc-port", 7078);
    pub const UI: (&str, i32) = ("spark-ui", 4040);
}

/// The container Spark runs in when a template does not name it.
pub const DRIVER_CONTAINER: &str = "spark-kubernetes-driver";

/// What stands for "no primary resource".
pub const NO_RESOURCE: &str = "spark-internal";

/// Configuration keys; a name that ends in `_PREFIX` stands for a family.
pub mod key {
    pub const APP_ID: &str = "spark.app.id";
    pub const APP_NAME: &str = "spark.app.name";
    pub const ARCHIVES: &str = "spark.archives";
    pub const BLOCK_MANAGER_PORT: &str = "spark.blockManager.port";
    pub const CONNECT_PORT: &str = "spark.connect.grpc.binding.port";
    pub const DRIVER_BIND_ADDRESS: &str = "spark.driver.bindAddress";
    pub const DRIVER_BLOCK_MANAGER_PORT: &str = "spark.driver.blockManager.port";
    pub const DRIVER_CORES: &str = "spark.driver.cores";
    pub const DRIVER_HOST: &str = "spark.driver.host";
    pub const DRIVER_MEMORY: &str = "spark.driver.memory";
    pub const DRIVER_MEMORY_OVERHEAD: &str = "spark.driver.memoryOverhead";
    pub const DRIVER_MEMORY_OVERHEAD_FACTOR: &str = "spark.driver.memoryOverheadFactor";
    pub const DRIVER_MIN_MEMORY_OVERHEAD: &str = "spark.driver.minMemoryOverhead";
    pub const DRIVER_PORT: &str = "spark.driver.port";
    pub const DRIVER_RESOURCE_PREFIX: &str = "spark.driver.resource.";
    pub const FILES: &str = "spark.files";
    pub const JARS: &str = "spark.jars";
    pub const KEYTAB: &str = "spark.kerberos.keytab";
    pub const LOCAL_DIR: &str = "spark.local.dir";
    pub const PRINCIPAL: &str = "spark.kerberos.principal";
    pub const PY_FILES: &str = "spark.submit.pyFiles";
    pub const PYSPARK_DRIVER_PYTHON: &str = "spark.pyspark.driver.python";
    pub const PYSPARK_PYTHON: &str = "spark.pyspark.python";
    pub const SPARK_HOME: &str = "spark.home";
    pub const UI_PORT: &str = "spark.ui.port";

    pub const ALLOW_ESCALATION: &str = "spark.kubernetes.securityContext.allowPrivilegeEscalation";
    pub const CONFIG_MAP_MAX_SIZE: &str = "spark.kubernetes.configMap.maxSize";
    pub const DRIVER_ALLOW_ESCALATION: &str = "spark.kubernetes.driver.securityContext.allowPrivilegeEscalation";
    pub const DRIVER_ANNOTATION_PREFIX: &str = "spark.kubernetes.driver.annotation.";
    pub const DRIVER_AUTH_PREFIX: &str = "spark.kubernetes.authenticate.driver.";
    pub const DRIVER_ENV_PREFIX: &str = "spark.kubernetes.driverEnv.";
    pub const DRIVER_EXCLUDED_STEPS: &str = "spark.kubernetes.driver.pod.excludedFeatureSteps";
    pub const DRIVER_FEATURE_STEPS: &str = "spark.kubernetes.driver.pod.featureSteps";
    pub const DRIVER_IMAGE: &str = "spark.kubernetes.driver.container.image";
    pub const DRIVER_LABEL_PREFIX: &str = "spark.kubernetes.driver.label.";
    pub const DRIVER_LIMIT_CORES: &str = "spark.kubernetes.driver.limit.cores";
    pub const DRIVER_MOUNTED_AUTH_PREFIX: &str = "spark.kubernetes.authenticate.driver.mounted.";
    pub const DRIVER_NODE_SELECTOR_PREFIX: &str = "spark.kubernetes.driver.node.selector.";
    pub const DRIVER_POD_NAME: &str = "spark.kubernetes.driver.pod.name";
    pub const DRIVER_REQUEST_CORES: &str = "spark.kubernetes.driver.request.cores";
    pub const DRIVER_SCHEDULER: &str = "spark.kubernetes.driver.scheduler.name";
    pub const DRIVER_SECRET_KEY_REF_PREFIX: &str = "spark.kubernetes.driver.secretKeyRef.";
    pub const DRIVER_SECRETS_PREFIX: &str = "spark.kubernetes.driver.secrets.";
    pub const DRIVER_SERVICE_ACCOUNT: &str = "spark.kubernetes.authenticate.driver.serviceAccountName";
    pub const DRIVER_SERVICE_ANNOTATION_PREFIX: &str = "spark.kubernetes.driver.service.annotation.";
    pub const DRIVER_SERVICE_LABEL_PREFIX: &str = "spark.kubernetes.driver.service.label.";
    pub const DRIVER_TEMPLATE: &str = "spark.kubernetes.driver.podTemplateFile";
    pub const DRIVER_TEMPLATE_CONTAINER: &str = "spark.kubernetes.driver.podTemplateContainerName";
    pub const DRIVER_VOLUMES_PREFIX: &str = "spark.kubernetes.driver.volumes.";
    pub const EXECUTOR_HADOOP_CONFIG_MAP: &str = "spark.kubernetes.executor.hadoopConfigMapName";
    pub const EXECUTOR_TEMPLATE: &str = "spark.kubernetes.executor.podTemplateFile";
    pub const HADOOP_CONFIG_MAP: &str = "spark.kubernetes.hadoop.configMapName";
    pub const IMAGE: &str = "spark.kubernetes.container.image";
    pub const IMAGE_PULL_POLICY: &str = "spark.kubernetes.container.image.pullPolicy";
    pub const IMAGE_PULL_SECRETS: &str = "spark.kubernetes.container.image.pullSecrets";
    pub const IP_FAMILIES: &str = "spark.kubernetes.driver.service.ipFamilies";
    pub const IP_FAMILY_POLICY: &str = "spark.kubernetes.driver.service.ipFamilyPolicy";
    pub const KRB5_CONFIG_MAP: &str = "spark.kubernetes.kerberos.krb5.configMapName";
    pub const KRB5_PATH: &str = "spark.kubernetes.kerberos.krb5.path";
    pub const LEGACY_PVC_ACCESS_MODE: &str = "spark.kubernetes.legacy.useReadWriteOnceAccessMode";
    pub const LOCAL_DIRS_TMPFS: &str = "spark.kubernetes.local.dirs.tmpfs";
    pub const MEMORY_OVERHEAD_FACTOR: &str = "spark.kubernetes.memoryOverheadFactor";
    pub const NAMESPACE: &str = "spark.kubernetes.namespace";
    pub const NODE_SELECTOR_PREFIX: &str = "spark.kubernetes.node.selector.";
    pub const PUBLISH_NOT_READY: &str = "spark.kubernetes.driver.service.publishNotReadyAddresses";
    pub const RESOURCE_TYPE: &str = "spark.kubernetes.resource.type";
    pub const SCHEDULER: &str = "spark.kubernetes.scheduler.name";
    pub const SUBMIT_IN_DRIVER: &str = "spark.kubernetes.submitInDriver";
    pub const TOKEN_SECRET_ITEM: &str = "spark.kubernetes.kerberos.tokenSecret.itemKey";
    pub const TOKEN_SECRET_NAME: &str = "spark.kubernetes.kerberos.tokenSecret.name";
    pub const UPLOAD_PATH: &str = "spark.kubernetes.file.upload.path";
}
