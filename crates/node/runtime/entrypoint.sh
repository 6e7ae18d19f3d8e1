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

# Succeeds if a Spark Connect server is asked for.
is_connect_server() {
  local previous="" word
  for word in "$@"; do
    if [ "$previous" = "--class" ]; then [ "$word" = org.apache.spark.sql.connect.service.SparkConnectServer ]; return; fi
    previous="$word"
  done
  return 1
}

# As the first process of a container: somebody must reap what the program leaves behind. On our own node the first
# process is the agent's.
first=()
if [ "$$" = 1 ] && [ -x /usr/bin/tini ]; then first=(/usr/bin/tini -s --); fi

# Quicker starts. With an archive of Spark's classes at hand, Java is given Spark's jars one by one, as in the archive, and before the
# configuration instead of behind it; never if that could hide a file of the configuration, or if anything else is unusual.
quick=${FIRESTEEL_QUICK:-}
unset FIRESTEEL_QUICK
quick_options=()
# Succeeds if no file of the directories has the name of something in Spark's jars.
hides_nothing() {
  local directory name
  for directory in "$@"; do
    for name in "$directory"/* "$directory"/.[!.]*; do
      [ -e "$name" ] || continue
      if grep -qxF -- "${name##*/}" "$quick/top-names"; then return 1; fi
    done
  done
}
if [ -n "$quick" ] && [ -r "$quick/classes.jsa" ] && [ -r "$quick/class-path" ] && [ -r "$quick/top-names" ]; then
  quick_options=(-Xshare:auto "-XX:SharedArchiveFile=$quick/classes.jsa" -Xlog:cds=off)
else
  quick=
fi

# The driver's command line as Spark's own launcher makes it, in `command`; fails if that cannot be had.
launcher_command() {
  local word
  command=()
  while IFS= read -r -d '' word; do command+=("$word"); done < <(
    "$JAVA_HOME/bin/java" -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto $SPARK_LAUNCHER_OPTS \
      -cp "$(echo "$SPARK_HOME"/jars/spark-launcher_*.jar)" org.apache.spark.launcher.Main org.apache.spark.deploy.SparkSubmit "$@" 2>/dev/null
    printf '%d\0' $?)
  # First whatever it had to say, then the words of the command, then its exit code.
  local count=${#command[@]}
  [ "$count" -gt 4 ] && [ "${command[count - 1]}" = 0 ] && [ -z "${command[0]}" ] || return 1
  command=("${command[@]:1:count - 2}")
  command[0]=${command[0]#$'\n'}
}

# Puts Spark's jars first in the class path of `command`; fails if it is not the usual one.
use_archive() {
  local at jars rest bridge=/opt/firesteel/bridge/firesteel-bridge.jar own=
  for at in "${!command[@]}"; do
    if [ "${command[at]}" = -cp ]; then break; fi
  done
  jars=$(cat "$quick/class-path")
  rest=${command[at + 1]}
  # The jar of a driver whose executors the operator allocates hides nothing: it can stand behind the others.
  case "$rest" in "$bridge:"*) own=":$bridge" rest=${rest#"$bridge:"} ;; esac
  case "$rest" in "$SPARK_CONF_DIR/:$SPARK_HOME/jars/"*) ;; *) return 1 ;; esac
  rest=${rest#"$SPARK_CONF_DIR/:"}
  # `…/jars/slf4j-api-V.jar:…/jars/*`, of older releases only the latter.
  case "$rest" in "$SPARK_HOME"/jars/slf4j-api-*.jar:*) rest=${rest#*:} ;; esac
  case "$rest" in "$SPARK_HOME/jars/*" | "$SPARK_HOME/jars/*:"*) rest=${rest#"$SPARK_HOME/jars/*"} ;; *) return 1 ;; esac
  command[at + 1]="$jars:$SPARK_CONF_DIR/$rest$own"
  command=("${command[0]}" "${quick_options[@]}" "${command[@]:1}")
}

case "$1" in
  driver)
    shift
    options=(--conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS"
             --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS")
    if driver_master "$@"; then options+=(--conf "spark.kubernetes.driver.master=$FIRESTEEL_DRIVER_MASTER"); fi
    # All pods share the network of this machine: a server that took the port at every address would keep it from all others.
    if is_connect_server "$@" && [ -n "$SPARK_LOCAL_IP" ]; then
      options+=(--conf "spark.connect.grpc.binding.address=$SPARK_LOCAL_IP")
    fi
    options+=(--deploy-mode client "$@")
    if [ -n "$quick" ]; then
      # As bin/spark-submit and bin/spark-class do.
      set +e
      . "$SPARK_HOME/bin/load-spark-env.sh"
      export PYTHONHASHSEED=0
      if hides_nothing "$SPARK_CONF_DIR" && launcher_command "${options[@]}" && use_archive; then exec "${first[@]}" "${command[@]}"; fi
    fi
    exec "${first[@]}" "$SPARK_HOME/bin/spark-submit" "${options[@]}"
    ;;
  executor)
    java_options=()
    for name in $(compgen -e | grep -E '^SPARK_JAVA_OPT_[0-9]+$' | sort -t_ -k4,4n); do
      java_options+=("${!name}")
    done
    if [ -n "$quick" ] && [ -z "$SPARK_CLASSPATH$HADOOP_CONF_DIR" ] && hides_nothing "${SPARK_CONF_DIR:-$SPARK_HOME/conf}"; then
      rest="${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}:$PWD"
      class_path="$(cat "$quick/class-path"):${SPARK_CONF_DIR:-$SPARK_HOME/conf}$rest"
    else
      quick_options=()
    fi
    exec "${first[@]}" "$JAVA_HOME/bin/java" "${quick_options[@]}" "${java_options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$class_path:$SPARK_DIST_CLASSPATH" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "${first[@]}" "$@"
    ;;
esac
