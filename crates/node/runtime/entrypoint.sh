#!/bin/bash
# Entry point of a container with a Firesteel Spark runtime. Same contract as the stock Spark images:
#   driver …     spark-submit in client mode, bound to the address of the pod
#   executor     the executor JVM, described by SPARK_* variables
#   anything     run as it is
set -e

export SPARK_HOME="${SPARK_HOME:-/opt/spark}"
if [ -z "$JAVA_HOME" ]; then
  java_program=$(readlink -f "$(command -v java)")
  export JAVA_HOME="${java_program%/bin/java}"
fi
# As in the stock images the interpreter can be chosen, and the one of the driver follows the one of the workers.
if [ -n "$PYSPARK_PYTHON" ]; then export PYSPARK_PYTHON; fi
if [ -n "$PYSPARK_DRIVER_PYTHON" ]; then export PYSPARK_DRIVER_PYTHON; fi

# Class path, first entry first: configuration, Hadoop's configuration, the user's, Spark's jars, extra ones, here.
class_path="$SPARK_CLASSPATH:$SPARK_HOME/jars/*"
if [ -n "$SPARK_EXTRA_CLASSPATH" ]; then class_path="$class_path:$SPARK_EXTRA_CLASSPATH"; fi
if [ -n "$HADOOP_HOME" ] && [ -z "$SPARK_DIST_CLASSPATH" ]; then
  SPARK_DIST_CLASSPATH="$("$HADOOP_HOME/bin/hadoop" classpath)"
  export SPARK_DIST_CLASSPATH
fi
if [ -n "$HADOOP_CONF_DIR" ]; then class_path="$HADOOP_CONF_DIR:$class_path"; fi
if [ -n "$SPARK_CONF_DIR" ]; then class_path="$SPARK_CONF_DIR:$class_path"; else class_path="$SPARK_HOME/conf:$class_path"; fi
class_path="$class_path:$PWD"

# Adds the address of the API server where port 443 of kubernetes.default.svc is out of reach, unless the application names one itself.
driver_master() {
  [ -n "$FIRESTEEL_DRIVER_MASTER" ] || return 1
  local previous="" word
  for word in "$@"; do
    case "$word" in spark.kubernetes.driver.master=*) return 1 ;; esac
    if [ "$previous" = "--properties-file" ] && grep -q '^[[:space:]]*spark\.kubernetes\.driver\.master[[:space:]=:]' "$word" 2>/dev/null; then return 1; fi
    previous="$word"
  done
}

# As the first process of a container: somebody must reap what the program leaves behind. On our own node the first
# process is the agent's.
first=()
if [ "$$" = 1 ] && [ -x /usr/bin/tini ]; then first=(/usr/bin/tini -s --); fi

case "$1" in
  driver)
    shift
    options=(--conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS"
             --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS")
    if driver_master "$@"; then options+=(--conf "spark.kubernetes.driver.master=$FIRESTEEL_DRIVER_MASTER"); fi
    exec "${first[@]}" "$SPARK_HOME/bin/spark-submit" "${options[@]}" --deploy-mode client "$@"
    ;;
  executor)
    java_options=()
    for name in $(compgen -e | grep -E '^SPARK_JAVA_OPT_[0-9]+$' | sort -t_ -k4,4n); do
      java_options+=("${!name}")
    done
    exec "${first[@]}" "$JAVA_HOME/bin/java" "${java_options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$class_path:$SPARK_DIST_CLASSPATH" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "${first[@]}" "$@"
    ;;
esac
