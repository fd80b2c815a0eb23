#!/usr/bin/env bash
# Runs an executor of Spark in a pod that a job made (docs/operate/kubernetes.md#executors). All that it
# needs to know Spark gives it as SPARK_... variables.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export SPARK_HOME=$ROOT/.venv/spark
options=()
for name in "${!SPARK_JAVA_OPT_@}"; do options+=("${!name}"); done
# what the job ships is unpacked in the current folder
cd "${SPARK_LOCAL_DIRS%%,*}"
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" --podName "$SPARK_EXECUTOR_POD_NAME" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
