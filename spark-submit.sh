#!/usr/bin/env bash
# Starts quotaplane's Spark jobs. On a fresh clone it first makes what they need: .venv in this
# folder, and Spark's connectors in the user's cache. Works with bash 3.2 (macOS). pip puts it into
# share/quotaplane of an environment, which `quotaplane setup` then completes.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
VENV=$ROOT/.venv CHECKOUT=$ROOT PACKAGES=$ROOT/pipelines
if [[ ! -e $ROOT/setup.cfg ]]; then
  VENV=${ROOT%/share/quotaplane} CHECKOUT=''
  PACKAGES=$(echo "$VENV"/lib/python3*/site-packages)
fi
CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/quotaplane

usage() {
  cat <<'END'
usage: ./spark-submit.sh JOB [--conf FILE] [options of Spark] [options of the job]

jobs (./spark-submit.sh JOB --help: the options of one):
END
  local file name
  for file in "$ROOT"/jobs/run_*.py; do
    [[ -e $file ]] || continue
    name=${file##*/run_}
    printf '  %-12s %s\n' "${name%.py}" "$(sed -n '/^"""/{s/^"""//;s/"""$//;p;q;}' "$file")"
  done
  cat <<'END'
A path to a .py file is a job, too.

options of Spark (the others go to the job):
  --master URL          where to run; local[*] by default. Anything but local gets this package
                        and its Python environment shipped along
  --deploy-mode MODE    client (default) or cluster
  --driver-memory, --executor-memory, --executor-cores, --num-executors, --total-executor-cores,
  --driver-cores, --driver-java-options, --driver-class-path, --queue, --name, --properties-file,
  --jars, --files, --archives, --py-files, --packages, --repositories, --principal, --keytab
  --spark-conf K=V      one Spark setting (also: --conf spark.K=V)
In cluster mode the settings file is shipped, too, and on YARN the variables that it uses.

without a job:
  --setup [EXTRAS] [--spark VERSION]
                        only make the environment, and an archive of Java's classes, with which jobs
                        start faster; EXTRAS as in setup.cfg, e.g. test,pulsar, and s3: Spark's
                        connector for histories and checkpoints on S3; Spark 4.0, 4.1, 4.2
  --env                 print the environment that jobs get, a line each: KEY=VALUE
with a job:
  --print-command       print what would be run, run nothing, make nothing

environment: JAVA_HOME (Java 17 or 21), QUOTAPLANE_PYTHON (3.10 to 3.13, for .venv),
  QUOTAPLANE_LOG_LEVEL (of Spark), QUOTAPLANE_LOG_DIR (where jobs keep Spark's log;
  by default beside the checkpoint), QUOTAPLANE_UMASK (of files that jobs create; 077: private; 027: the
  group may read), QUOTAPLANE_IVY_SETTINGS (an ivysettings.xml: own mirrors),
  QUOTAPLANE_EXECUTORS (installed: executors have this folder and Spark, as those in its image do: nothing
  is shipped to them)
END
}

die() { printf 'spark-submit.sh: %s\n' "$*" >&2; exit 2; }
join() { printf '%s' "${1:+$1,}$2"; }
quote() { local q="'\\''" arg; for arg; do printf "'%s' " "${arg//\'/$q}"; done; }

# shellcheck source=deploy/environment.sh
source "$ROOT/deploy/environment.sh"

job='' script='' action=run extras=spark,kafka,pulsar,admin,server master='local[*]' mode=client
spark=() args=() jars='' pyfiles='' archives='' files='' private='' properties=$ROOT/conf/spark-defaults.conf
if [[ $# == 0 ]]; then usage; exit 0; fi
while (($#)); do
  option=$1 value=${2-} width=2
  if [[ $option == --*=* ]]; then value=${option#*=} option=${option%%=*} width=1; fi
  case $option in
    --master | --deploy-mode | --name | --driver-memory | --driver-cores | --driver-java-options | --driver-class-path | \
      --executor-memory | --executor-cores | --num-executors | --total-executor-cores | --queue | --properties-file | \
      --jars | --files | --archives | --py-files | --packages | --repositories | --principal | --keytab | --spark-conf)
      [[ $width -le $# && -n $value ]] || die "$option needs a value"
      case $option in
        --master) master=$value ;;
        --deploy-mode) mode=$value ;;
        --jars) jars=$(join "$jars" "$value") ;;
        --py-files) pyfiles=$(join "$pyfiles" "$value") ;;
        --archives) archives=$(join "$archives" "$value") ;;
        --files) files=$(join "$files" "$value") ;;
        --spark-conf) spark+=(--conf "$value") ;;
        # Spark leaves conf/spark-defaults.conf out when it is given a file
        --properties-file) properties='' spark+=(--properties-file "$value" --load-spark-defaults) ;;
        *) spark+=("$option" "$value") ;;
      esac
      shift $width; continue ;;
    --conf)
      if [[ $value == spark.*=* ]]; then spark+=(--conf "$value"); shift $width; continue; fi ;;
    --supervise) die "--supervise restarts drivers in a standalone cluster, which can't be Python programs: let" \
      "systemd restart the job (docs/operate/deploy.md), or use YARN in cluster mode" ;;
    --print-command) action=print; shift; continue ;;
    --) shift; args+=("$@"); break ;;
  esac
  if [[ -n $job ]]; then args+=("$1"); shift; continue; fi
  case $1 in
    -h | --help) usage; exit 0 ;;
    --setup) set_up "${@:2}"; exit 0 ;;
    --env) action=env job=env ;;
    -*) die "unknown option $1 before the job (./spark-submit.sh --help)" ;;
    *) job=$1 ;;
  esac
  shift
done

case $job in
  '') die "no job given (./spark-submit.sh --help)" ;;
  *.py) script=$job ;;
  *) script=$ROOT/jobs/run_${job//-/_}.py ;;
esac
[[ $action == env || -f $script ]] || die "there is no job $job; ./spark-submit.sh --help lists them"
case $mode:$master in
  client:* | cluster:yarn | cluster:k8s://*) ;;
  cluster:*) die "--deploy-mode cluster: with the master $master Spark runs no Python program in the cluster: use" \
    "client mode, or YARN (docs/operate/yarn.md)" ;;
  *) die "--deploy-mode must be client or cluster, not '$mode'" ;;
esac

driver_variable() { # in cluster mode
  local prefix=spark.yarn.appMasterEnv
  [[ $master == yarn ]] || prefix=spark.kubernetes.driverEnv
  spark+=(--conf "$prefix.$1=$2")
}

ship_settings() { # and let the job find them by their name
  local i settings='' secrets=quotaplane-secrets.json
  for ((i = 0; i < ${#args[@]}; i++)); do
    case ${args[i]} in
      --conf) settings=${args[i + 1]-}; args[i + 1]=${settings##*/} ;;
      --conf=*) settings=${args[i]#*=}; args[i]=--conf=${settings##*/} ;;
    esac
  done
  [[ -n $settings ]] || return 0
  # A pod gets its variables from Secrets of Kubernetes.
  [[ $master == yarn ]] || secrets=''
  if [[ $action != print ]]; then
    private=$(mktemp -d "${TMPDIR:-/tmp}/quotaplane.XXXXXX")
    trap 'rm -rf "$private"' EXIT
    secrets=${secrets:+$private/$secrets}
    PYTHONPATH=$PACKAGES "$VENV/bin/python" "$ROOT/deploy/cluster_check.py" \
      "$settings" "$secrets" "$script" "${args[@]}" || exit
  fi
  files=$(join "$files" "$settings")${secrets:+,$secrets}
}

# files of jobs (history, checkpoint, Spark's log) are private
umask="${QUOTAPLANE_UMASK:-077}"
[[ $umask =~ ^0{0,2}[0-7]{2}$ ]] || die "QUOTAPLANE_UMASK: '$umask' must be octal, such as 077 or 027"
find_java
find_spark ""
if [[ $action != print ]]; then
  [[ -n $CHECKOUT ]] || is_ready "$extras" || die "jobs lack Spark or its connectors: quotaplane setup"
  ensure_environment "$extras"
fi

# Python's workers keep the memory of a round for the next one, in huge pages: getting it anew from the
# kernel took a twelfth of a round's processor time. (conf/spark-defaults.conf: the same for executors)
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1} MALLOC_MMAP_THRESHOLD_=1073741824
export MALLOC_TRIM_THRESHOLD_=2147483648 MALLOC_TOP_PAD_=67108864 ARROW_DEFAULT_MEMORY_POOL=system
# numpy starts no threads for matrices, which no job has
export OPENBLAS_NUM_THREADS=1
# deltalake's warnings, one for each request that it makes again, would be among the job's own lines
export RUST_LOG=${RUST_LOG:-error}
export SPARK_HOME=$VENV/spark SPARK_CONF_DIR=$ROOT/conf PATH=$VENV/bin:$PATH
export PYSPARK_PYTHON=$VENV/bin/python PYSPARK_DRIVER_PYTHON=$VENV/bin/python
case $master in
  local | local\[*)
    # nothing of a job that runs in one process is to be reached from elsewhere
    export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
    # Java reads classes from an archive only if no folder with files comes before their jars on the
    # class path. Spark puts SPARK_CONF_DIR first, and SPARK_DIST_CLASSPATH last.
    export SPARK_DIST_CLASSPATH="$VENV/jars/*:$ROOT/conf${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}"
    if [[ -n $properties && ! -e $ROOT/conf/spark-env.sh ]]; then
      export SPARK_CONF_DIR=$VENV/no-conf
      export SPARK_SUBMIT_OPTS="$(class_archive_options) ${SPARK_SUBMIT_OPTS:-}"
      spark=(--properties-file "$properties" ${spark[@]+"${spark[@]}"})
    fi ;;
  *)
    if [[ -n ${QUOTAPLANE_EXECUTORS:-} ]]; then
      [[ $QUOTAPLANE_EXECUTORS == installed && $mode == client ]] ||
        die "QUOTAPLANE_EXECUTORS: only 'installed' is possible, and only in client mode"
      jars=$(printf ',local:%s' "$VENV"/jars/*.jar)${jars:+,$jars} jars=${jars#,}
      spark+=(--conf "spark.executorEnv.PYTHONPATH=$PACKAGES")
    else
      jars=$VENV/jars/*.jar${jars:+,$jars}
      shipped=(quotaplane.zip environment.tar.gz driver.tar.gz)
      if [[ $action != print ]]; then
        packed=$("$VENV/bin/python" "$ROOT/deploy/ship.py" "$PACKAGES" "$VENV" "$CACHE/ship")
        IFS=$'\n' read -r -d '' -a shipped <<<"$packed" || true
      fi
      pyfiles=$(join "$pyfiles" "${shipped[0]}") archives=$(join "$archives" "${shipped[1]}#environment")
      # The daemon starts before Spark adds the package to sys.path, hence PYTHONPATH.
      spark+=(--conf spark.executorEnv.PYTHONPATH=quotaplane.zip)
    fi
    if [[ $mode == cluster ]]; then
      unset PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYTHONPATH
      spark+=(--conf spark.pyspark.python=./environment/bin/python)
      archives=$(join "$archives" "${shipped[2]}#driver")
      ship_settings
      driver_variable PYTHONPATH driver
      # before the job sets it, YARN's part of Spark has opened the HDFS
      spark+=(--conf "spark.hadoop.fs.permissions.umask-mode=$umask")
      for name in GLIBC_TUNABLES MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ \
        ARROW_DEFAULT_MEMORY_POOL OPENBLAS_NUM_THREADS QUOTAPLANE_UMASK QUOTAPLANE_LOG_LEVEL; do
        [[ -z ${!name:-} ]] || driver_variable "$name" "${!name}"
      done
    else
      # Spark starts Python by this one name on the driver (to plan stateful queries) and on the
      # executors: found on the PATH, it is .venv on the one and what was shipped on the others.
      # Python looks itself up on the PATH again, which is the executors' on the driver, too.
      export PYSPARK_PYTHON=python3
      spark+=(--conf "spark.executorEnv.PATH=./environment/bin:$VENV/bin:/usr/local/bin:/usr/bin:/bin")
    fi ;;
esac
spark=(--master "$master" --deploy-mode "$mode" ${jars:+--jars "$jars"} ${pyfiles:+--py-files "$pyfiles"} \
  ${archives:+--archives "$archives"} ${files:+--files "$files"} ${spark[@]+"${spark[@]}"})

# Client mode: Python is the parent and the JVM its child, not the other way round as under Spark's
# own launcher. So a mistake is told before a JVM starts, Ctrl-C and SIGTERM reach the job alone, and
# the exit code is the job's.
if [[ $mode == cluster ]]; then
  command=("$SPARK_HOME/bin/spark-submit" "${spark[@]}" "$script" ${args[@]+"${args[@]}"})
else
  export PYSPARK_SUBMIT_ARGS; PYSPARK_SUBMIT_ARGS="$(quote "${spark[@]}")pyspark-shell"
  command=("$VENV/bin/python" "$script" ${args[@]+"${args[@]}"})
fi
if [[ $action != run ]]; then
  env | grep -E '^(JAVA_HOME|SPARK_[A-Z_]*|PYSPARK_[A-Z_]*)=' | sort
  [[ $action == env ]] || { quote "${command[@]}"; echo; }
  exit 0
fi
umask "$umask" # Spark's JVM and workers inherit it
[[ -n $private ]] || exec "${command[@]}"
"${command[@]}" & # not exec: what is private is deleted in the end
trap 'kill $!' TERM INT
wait $! || code=$?
exit "${code:-0}"
