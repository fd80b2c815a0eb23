#!/usr/bin/env bash
# Starts quotaplane's Spark jobs. On a fresh clone it first makes what they need: .venv in this
# folder, and Spark's connectors in the user's cache. Works with bash 3.2 (macOS).
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
VENV=$ROOT/.venv
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

without a job:
  --setup [EXTRAS]      only make the environment, and an archive of Java's classes, with which jobs
                        start faster; EXTRAS as in setup.cfg, e.g. test,pulsar; and
                        s3: Spark's connector for histories and checkpoints on S3
  --env                 print the environment that jobs get, a line each: KEY=VALUE
with a job:
  --print-command       print what would be run, run nothing, make nothing

environment: JAVA_HOME (Java 17 or 21), QUOTAPLANE_PYTHON (3.10 to 3.13, for .venv),
  QUOTAPLANE_LOG_LEVEL (of Spark), QUOTAPLANE_LOG_DIR (where jobs keep Spark's log;
  by default beside the checkpoint), QUOTAPLANE_UMASK (of files that jobs create; 077: private; 027: the
  group may read), QUOTAPLANE_IVY_SETTINGS (an ivysettings.xml: own mirrors)
END
}

die() { printf 'spark-submit.sh: %s\n' "$*" >&2; exit 2; }
join() { printf '%s' "${1:+$1,}$2"; }
quote() { local q="'\\''" arg; for arg; do printf "'%s' " "${arg//\'/$q}"; done; }

# shellcheck source=deploy/environment.sh
source "$ROOT/deploy/environment.sh"

job='' script='' action=run extras=kafka,pulsar,admin,server master='local[*]' mode=client
spark=() args=() jars='' pyfiles='' archives='' properties=$ROOT/conf/spark-defaults.conf
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
        --spark-conf) spark+=(--conf "$value") ;;
        # Spark leaves conf/spark-defaults.conf out when it is given a file
        --properties-file) properties='' spark+=(--properties-file "$value" --load-spark-defaults) ;;
        *) spark+=("$option" "$value") ;;
      esac
      shift $width; continue ;;
    --conf)
      if [[ $value == spark.*=* ]]; then spark+=(--conf "$value"); shift $width; continue; fi ;;
    --print-command) action=print; shift; continue ;;
    --) shift; args+=("$@"); break ;;
  esac
  if [[ -n $job ]]; then args+=("$1"); shift; continue; fi
  case $1 in
    -h | --help) usage; exit 0 ;;
    --setup) find_java; ensure_environment "$extras${2:+,$2}"; ensure_class_archive; exit 0 ;;
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

find_java
[[ $action == print ]] || ensure_environment "$extras"

# Python's workers keep the memory of a round for the next one, in huge pages: getting it anew from the
# kernel took a twelfth of a round's processor time. (conf/spark-defaults.conf: the same for executors)
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1} MALLOC_MMAP_THRESHOLD_=1073741824
export MALLOC_TRIM_THRESHOLD_=2147483648 MALLOC_TOP_PAD_=67108864 ARROW_DEFAULT_MEMORY_POOL=system
# numpy starts no threads for matrices, which no job has
export OPENBLAS_NUM_THREADS=1
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
    jars=$VENV/jars/*.jar${jars:+,$jars}
    package=quotaplane.zip environment=environment.tar.gz
    if [[ $action != print ]]; then
      shipped=$("$VENV/bin/python" "$ROOT/deploy/ship.py" "$ROOT/pipelines" "$VENV" "$CACHE/ship")
      package=${shipped%%$'\n'*} environment=${shipped#*$'\n'}
    fi
    pyfiles=$(join "$pyfiles" "$package") archives=$(join "$archives" "$environment#environment")
    # The daemon starts before Spark adds the package to sys.path, hence PYTHONPATH.
    spark+=(--conf spark.executorEnv.PYTHONPATH=quotaplane.zip)
    if [[ $mode == cluster ]]; then
      unset PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
      spark+=(--conf spark.pyspark.python=./environment/bin/python)
    else
      # Spark starts Python by this one name on the driver (to plan stateful queries) and on the
      # executors: found on the PATH, it is .venv on the one and what was shipped on the others.
      # Python looks itself up on the PATH again, which is the executors' on the driver, too.
      export PYSPARK_PYTHON=python3
      spark+=(--conf "spark.executorEnv.PATH=./environment/bin:$VENV/bin:/usr/local/bin:/usr/bin:/bin")
    fi ;;
esac
spark=(--master "$master" --deploy-mode "$mode" ${jars:+--jars "$jars"} ${pyfiles:+--py-files "$pyfiles"} \
  ${archives:+--archives "$archives"} ${spark[@]+"${spark[@]}"})

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
# files of jobs (history, checkpoint, Spark's log) are private; Spark's JVM and workers inherit this
umask="${QUOTAPLANE_UMASK:-077}"
[[ $umask =~ ^0{0,2}[0-7]{2}$ ]] || die "QUOTAPLANE_UMASK: '$umask' must be octal, such as 077 or 027"
umask "$umask"
exec "${command[@]}"
