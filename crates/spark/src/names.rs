//! Names that have a meaning in Spark or Kubernetes: labels, environment variables, volumes, paths and configuration
//! keys that the plan reads or writes.

/// Labels that Spark identifies its pods by; users may not set them.
pub mod label {
    pub const APP_ID: &str = "spark-app-selector";
    pub const APP_NAME: &str = "spark-app-name";
    pub const ROLE: &str = "spark-role";
    pub const VERSION: &str = "spark-version";
    pub const EXECUTOR_ID: &str = "spark-exec-id";
    pub const RESOURCE_PROFILE_ID: &str = "spark-exec-resourceprofile-id";

    pub const ROLE_DRIVER: &str = "driver";
    pub const ROLE_EXECUTOR: &str = "executor";
}

/// Environment variables of driver and executor containers, and of the submitter.
pub mod env {
    pub const APPLICATION_ID: &str = "SPARK_APPLICATION_ID";
    /// The shared secret. Spark sets it in clear text on executors; Firesteel never does.
    pub const AUTH_SECRET: &str = "_SPARK_AUTH_SECRET";
    pub const CLASSPATH: &str = "SPARK_CLASSPATH";
    pub const CONF_DIR: &str = "SPARK_CONF_DIR";
    pub const DRIVER_BIND_ADDRESS: &str = "SPARK_DRIVER_BIND_ADDRESS";
    pub const DRIVER_URL: &str = "SPARK_DRIVER_URL";
    pub const EXECUTOR_ATTRIBUTE_APP_ID: &str = "SPARK_EXECUTOR_ATTRIBUTE_APP_ID";
    pub const EXECUTOR_ATTRIBUTE_EXECUTOR_ID: &str = "SPARK_EXECUTOR_ATTRIBUTE_EXECUTOR_ID";
    pub const EXECUTOR_CORES: &str = "SPARK_EXECUTOR_CORES";
    pub const EXECUTOR_DIRS: &str = "SPARK_EXECUTOR_DIRS";
    pub const EXECUTOR_ID: &str = "SPARK_EXECUTOR_ID";
    pub const EXECUTOR_MEMORY: &str = "SPARK_EXECUTOR_MEMORY";
    pub const EXECUTOR_POD_IP: &str = "SPARK_EXECUTOR_POD_IP";
    pub const EXECUTOR_POD_NAME: &str = "SPARK_EXECUTOR_POD_NAME";
    pub const HADOOP_CONF_DIR: &str = "HADOOP_CONF_DIR";
    pub const HADOOP_TOKEN_FILE: &str = "HADOOP_TOKEN_FILE_LOCATION";
    pub const JAVA_OPT_PREFIX: &str = "SPARK_JAVA_OPT_";
    pub const LOCAL_DIRS: &str = "SPARK_LOCAL_DIRS";
    pub const PYSPARK_DRIVER_PYTHON: &str = "PYSPARK_DRIVER_PYTHON";
    pub const PYSPARK_PYTHON: &str = "PYSPARK_PYTHON";
    pub const RESOURCE_PROFILE_ID: &str = "SPARK_RESOURCE_PROFILE_ID";
    pub const SPARK_HOME: &str = "SPARK_HOME";
    pub const USER: &str = "SPARK_USER";
}

/// Paths inside driver and executor containers.
pub mod path {
    pub const AUTH_SECRET: &str = "/mnt/secrets/spark-auth";
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

/// Volumes of driver and executor pods.
pub mod volume {
    pub const CONF: &str = "spark-conf-volume-driver";
    pub const EXECUTOR_CONF: &str = "spark-conf-volume-exec";
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

/// The containers Spark runs in when a template does not name them.
pub const DRIVER_CONTAINER: &str = "spark-kubernetes-driver";
pub const EXECUTOR_CONTAINER: &str = "spark-kubernetes-executor";

/// Placeholder for an executor id that is not known yet, in Spark's StatefulSets and in our templates.
pub const EXECUTOR_ID_PLACEHOLDER: &str = "EXECID";

/// Placeholder for the Spark version in an image name [4.1].
pub const VERSION_REFERENCE: &str = "{{SPARK_VERSION}}";

/// Spark's placeholder for "no primary resource".
pub const NO_RESOURCE: &str = "spark-internal";

/// The main class of the Spark Connect server.
pub const CONNECT_SERVER: &str = "org.apache.spark.sql.connect.service.SparkConnectServer";

/// Configuration keys; a name that ends in `_PREFIX` is the prefix of a family of keys.
pub mod key {
    pub const APP_ID: &str = "spark.app.id";
    pub const APP_NAME: &str = "spark.app.name";
    pub const ARCHIVES: &str = "spark.archives";
    pub const AUTHENTICATE: &str = "spark.authenticate";
    pub const AUTH_DRIVER_SECRET_FILE: &str = "spark.authenticate.secret.driver.file";
    pub const AUTH_EXECUTOR_SECRET_FILE: &str = "spark.authenticate.secret.executor.file";
    pub const AUTH_SECRET: &str = "spark.authenticate.secret";
    pub const AUTH_SECRET_FILE: &str = "spark.authenticate.secret.file";
    pub const BLOCK_MANAGER_PORT: &str = "spark.blockManager.port";
    pub const CONNECT_PORT: &str = "spark.connect.grpc.binding.port";
    pub const CUSTOM_EXECUTOR_LOG_URL: &str = "spark.ui.custom.executor.log.url";
    pub const DECOMMISSION: &str = "spark.decommission.enabled";
    pub const DEPLOY_MODE: &str = "spark.submit.deployMode";
    pub const DRIVER_BIND_ADDRESS: &str = "spark.driver.bindAddress";
    pub const DRIVER_BLOCK_MANAGER_PORT: &str = "spark.driver.blockManager.port";
    pub const DRIVER_CORES: &str = "spark.driver.cores";
    pub const DRIVER_DEFAULT_JAVA_OPTIONS: &str = "spark.driver.defaultJavaOptions";
    pub const DRIVER_HOST: &str = "spark.driver.host";
    pub const DRIVER_JAVA_OPTIONS: &str = "spark.driver.extraJavaOptions";
    pub const DRIVER_MEMORY: &str = "spark.driver.memory";
    pub const DRIVER_MEMORY_OVERHEAD: &str = "spark.driver.memoryOverhead";
    pub const DRIVER_MEMORY_OVERHEAD_FACTOR: &str = "spark.driver.memoryOverheadFactor";
    pub const DRIVER_MIN_MEMORY_OVERHEAD: &str = "spark.driver.minMemoryOverhead";
    pub const DRIVER_PORT: &str = "spark.driver.port";
    pub const DRIVER_RESOURCE_PREFIX: &str = "spark.driver.resource.";
    pub const DYNAMIC_ALLOCATION: &str = "spark.dynamicAllocation.enabled";
    pub const DYNAMIC_INITIAL: &str = "spark.dynamicAllocation.initialExecutors";
    pub const DYNAMIC_MAXIMUM: &str = "spark.dynamicAllocation.maxExecutors";
    pub const DYNAMIC_MINIMUM: &str = "spark.dynamicAllocation.minExecutors";
    pub const DYNAMIC_SHUFFLE_TRACKING: &str = "spark.dynamicAllocation.shuffleTracking.enabled";
    pub const DYNAMIC_SHUFFLE_TRACKING_TIMEOUT: &str = "spark.dynamicAllocation.shuffleTracking.timeout";
    pub const EXCLUDE_PACKAGES: &str = "spark.jars.excludes";
    pub const EXECUTOR_CLASS_PATH: &str = "spark.executor.extraClassPath";
    pub const EXECUTOR_CORES: &str = "spark.executor.cores";
    pub const EXECUTOR_DEFAULT_JAVA_OPTIONS: &str = "spark.executor.defaultJavaOptions";
    pub const EXECUTOR_ENV_PREFIX: &str = "spark.executorEnv.";
    pub const EXECUTOR_FAILURE_WINDOW: &str = "spark.executor.failuresValidityInterval";
    pub const EXECUTOR_INSTANCES: &str = "spark.executor.instances";
    pub const EXECUTOR_JAVA_OPTIONS: &str = "spark.executor.extraJavaOptions";
    pub const EXECUTOR_MAX_FAILURES: &str = "spark.executor.maxNumFailures";
    pub const EXECUTOR_MEMORY: &str = "spark.executor.memory";
    pub const EXECUTOR_MEMORY_OVERHEAD: &str = "spark.executor.memoryOverhead";
    pub const EXECUTOR_MEMORY_OVERHEAD_FACTOR: &str = "spark.executor.memoryOverheadFactor";
    pub const EXECUTOR_MIN_MEMORY_OVERHEAD: &str = "spark.executor.minMemoryOverhead";
    pub const EXECUTOR_PYSPARK_MEMORY: &str = "spark.executor.pyspark.memory";
    pub const EXECUTOR_RESOURCE_PREFIX: &str = "spark.executor.resource.";
    pub const FILES: &str = "spark.files";
    pub const HADOOP_PREFIX: &str = "spark.hadoop.";
    pub const JARS: &str = "spark.jars";
    pub const KEYTAB: &str = "spark.kerberos.keytab";
    pub const LOCAL_DIR: &str = "spark.local.dir";
    pub const MASTER: &str = "spark.master";
    pub const OFF_HEAP: &str = "spark.memory.offHeap.enabled";
    pub const OFF_HEAP_SIZE: &str = "spark.memory.offHeap.size";
    pub const PACKAGES: &str = "spark.jars.packages";
    pub const PLUGINS: &str = "spark.plugins";
    pub const PRINCIPAL: &str = "spark.kerberos.principal";
    pub const PYSPARK_DRIVER_PYTHON: &str = "spark.pyspark.driver.python";
    pub const PYSPARK_PYTHON: &str = "spark.pyspark.python";
    pub const PY_FILES: &str = "spark.submit.pyFiles";
    pub const REDACTION_REGEX: &str = "spark.redaction.regex";
    pub const REMOTE: &str = "spark.remote";
    pub const REPOSITORIES: &str = "spark.jars.repositories";
    pub const SPARK_HOME: &str = "spark.home";
    pub const SUBMIT_TIME: &str = "spark.app.submitTime";
    pub const TOTAL_CORES: &str = "spark.cores.max";
    pub const UI_PORT: &str = "spark.ui.port";
    pub const UI_PROXY_BASE: &str = "spark.ui.proxyBase";
    pub const UI_PROXY_REDIRECT: &str = "spark.ui.proxyRedirectUri";

    pub const ALLOCATION_MAXIMUM: &str = "spark.kubernetes.allocation.maximum";
    pub const ALLOCATION_RECOVERY_MODE: &str = "spark.kubernetes.allocation.recoveryMode.enabled";
    pub const ALLOCATION_TIMEOUT: &str = "spark.kubernetes.allocation.executor.timeout";
    pub const ALLOCATOR: &str = "spark.kubernetes.allocation.pods.allocator";
    pub const ALLOW_ESCALATION: &str = "spark.kubernetes.securityContext.allowPrivilegeEscalation";
    pub const CONFIG_MAP_MAX_SIZE: &str = "spark.kubernetes.configMap.maxSize";
    pub const DECOMMISSION_SCRIPT: &str = "spark.kubernetes.decommission.script";
    pub const DRIVER_ALLOW_ESCALATION: &str = "spark.kubernetes.driver.securityContext.allowPrivilegeEscalation";
    pub const DRIVER_ANNOTATION_PREFIX: &str = "spark.kubernetes.driver.annotation.";
    pub const DRIVER_AUTH_PREFIX: &str = "spark.kubernetes.authenticate.driver.";
    pub const DRIVER_ENV_PREFIX: &str = "spark.kubernetes.driverEnv.";
    pub const DRIVER_EXCLUDED_STEPS: &str = "spark.kubernetes.driver.pod.excludedFeatureSteps";
    pub const DRIVER_FEATURE_STEPS: &str = "spark.kubernetes.driver.pod.featureSteps";
    pub const DRIVER_IMAGE: &str = "spark.kubernetes.driver.container.image";
    pub const DRIVER_LABEL_PREFIX: &str = "spark.kubernetes.driver.label.";
    pub const DRIVER_LIMIT_CORES: &str = "spark.kubernetes.driver.limit.cores";
    pub const DRIVER_MASTER: &str = "spark.kubernetes.driver.master";
    pub const DRIVER_MOUNTED_AUTH_PREFIX: &str = "spark.kubernetes.authenticate.driver.mounted.";
    pub const DRIVER_NODE_SELECTOR_PREFIX: &str = "spark.kubernetes.driver.node.selector.";
    pub const DRIVER_OWNS_CLAIMS: &str = "spark.kubernetes.driver.ownPersistentVolumeClaim";
    pub const DRIVER_POD_NAME: &str = "spark.kubernetes.driver.pod.name";
    pub const DRIVER_REQUEST_CORES: &str = "spark.kubernetes.driver.request.cores";
    pub const DRIVER_REUSES_CLAIMS: &str = "spark.kubernetes.driver.reusePersistentVolumeClaim";
    pub const DRIVER_SCHEDULER: &str = "spark.kubernetes.driver.scheduler.name";
    pub const DRIVER_SECRETS_PREFIX: &str = "spark.kubernetes.driver.secrets.";
    pub const DRIVER_SECRET_KEY_REF_PREFIX: &str = "spark.kubernetes.driver.secretKeyRef.";
    pub const DRIVER_SERVICE_ACCOUNT: &str = "spark.kubernetes.authenticate.driver.serviceAccountName";
    pub const DRIVER_SERVICE_ANNOTATION_PREFIX: &str = "spark.kubernetes.driver.service.annotation.";
    pub const DRIVER_SERVICE_LABEL_PREFIX: &str = "spark.kubernetes.driver.service.label.";
    pub const DRIVER_TEMPLATE: &str = "spark.kubernetes.driver.podTemplateFile";
    pub const DRIVER_TEMPLATE_CONTAINER: &str = "spark.kubernetes.driver.podTemplateContainerName";
    pub const DRIVER_VOLUMES_PREFIX: &str = "spark.kubernetes.driver.volumes.";
    pub const DRIVER_WAITS_FOR_CLAIMS: &str = "spark.kubernetes.driver.waitToReusePersistentVolumeClaim";
    pub const EXECUTOR_ALLOW_ESCALATION: &str = "spark.kubernetes.executor.securityContext.allowPrivilegeEscalation";
    pub const EXECUTOR_ANNOTATION_PREFIX: &str = "spark.kubernetes.executor.annotation.";
    pub const EXECUTOR_DECOMMISSION_LABEL: &str = "spark.kubernetes.executor.decommissionLabel";
    pub const EXECUTOR_DELETE: &str = "spark.kubernetes.executor.deleteOnTermination";
    pub const EXECUTOR_DISABLE_CONFIG_MAP: &str = "spark.kubernetes.executor.disableConfigMap";
    pub const EXECUTOR_EXCLUDED_STEPS: &str = "spark.kubernetes.executor.pod.excludedFeatureSteps";
    pub const EXECUTOR_FEATURE_STEPS: &str = "spark.kubernetes.executor.pod.featureSteps";
    pub const EXECUTOR_GRACE_PERIOD: &str = "spark.kubernetes.executor.terminationGracePeriodSeconds";
    pub const EXECUTOR_HADOOP_CONFIG_MAP: &str = "spark.kubernetes.executor.hadoopConfigMapName";
    pub const EXECUTOR_IMAGE: &str = "spark.kubernetes.executor.container.image";
    pub const EXECUTOR_LABEL_PREFIX: &str = "spark.kubernetes.executor.label.";
    pub const EXECUTOR_LIMIT_CORES: &str = "spark.kubernetes.executor.limit.cores";
    pub const EXECUTOR_NAME_PREFIX: &str = "spark.kubernetes.executor.podNamePrefix";
    pub const EXECUTOR_NODE_SELECTOR_PREFIX: &str = "spark.kubernetes.executor.node.selector.";
    pub const EXECUTOR_REQUEST_CORES: &str = "spark.kubernetes.executor.request.cores";
    pub const EXECUTOR_SCHEDULER: &str = "spark.kubernetes.executor.scheduler.name";
    pub const EXECUTOR_SECRETS_PREFIX: &str = "spark.kubernetes.executor.secrets.";
    pub const EXECUTOR_SECRET_KEY_REF_PREFIX: &str = "spark.kubernetes.executor.secretKeyRef.";
    pub const EXECUTOR_SERVICE_ACCOUNT: &str = "spark.kubernetes.authenticate.executor.serviceAccountName";
    pub const EXECUTOR_TEMPLATE: &str = "spark.kubernetes.executor.podTemplateFile";
    pub const EXECUTOR_TEMPLATE_CONTAINER: &str = "spark.kubernetes.executor.podTemplateContainerName";
    pub const EXECUTOR_USES_DRIVER_POD_IP: &str = "spark.kubernetes.executor.useDriverPodIP";
    pub const EXECUTOR_VOLUMES_PREFIX: &str = "spark.kubernetes.executor.volumes.";
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
    pub const PYTHON_VERSION: &str = "spark.kubernetes.pyspark.pythonVersion";
    pub const RESOURCE_TYPE: &str = "spark.kubernetes.resource.type";
    pub const SCHEDULER: &str = "spark.kubernetes.scheduler.name";
    pub const SUBMIT_IN_DRIVER: &str = "spark.kubernetes.submitInDriver";
    pub const TOKEN_SECRET_ITEM: &str = "spark.kubernetes.kerberos.tokenSecret.itemKey";
    pub const TOKEN_SECRET_NAME: &str = "spark.kubernetes.kerberos.tokenSecret.name";
    pub const UPLOAD_PATH: &str = "spark.kubernetes.file.upload.path";
    pub const WAIT_APP_COMPLETION: &str = "spark.kubernetes.submission.waitAppCompletion";
}
