#!/bin/bash
# Decommissions the executor of this container (Spark's preStop hook): tells its JVM with SIGPWR, then waits for its end.
for dir in /proc/[0-9]*; do
  if tr '\0' '\n' < "$dir/cmdline" 2>/dev/null | grep -qE '^org\.apache\.spark\.(scheduler\.cluster\.k8s\.Kubernetes|executor\.CoarseGrained)ExecutorBackend$'; then
    pid="${dir#/proc/}"
    echo "decommissioning the executor, process $pid"
    kill -s SIGPWR "$pid"
    while [ -d "/proc/$pid" ]; do sleep 0.5; done
    exit 0
  fi
done
echo "no executor runs here"
