# Sourced by spark-submit.sh: finds Java and Python, makes .venv and fetches Spark's connectors.
# shellcheck shell=bash
# Uses ROOT, VENV, CHECKOUT, CACHE and die() of the launcher.

say() { printf '%s\n' "$*" >&2; }

# --- Java ---------------------------------------------------------------------------------------

java_major() { # of the Java in folder $1; reading its release file is much quicker than starting it
  local line
  [[ -x $1/bin/java ]] || return 1
  line=$(grep -s '^JAVA_VERSION=' "$1/release" || "$1/bin/java" -version 2>&1 | grep -m1 version) || return 1
  line=${line#*\"}; line=${line#1.}
  printf '%s' "${line%%[^0-9]*}"
}

find_java() { # sets JAVA_HOME
  local home major found='' on_path
  on_path=$(command -v java || true)
  [[ -z $on_path ]] || on_path=$(readlink -f "$on_path" 2>/dev/null || printf '%s' "$on_path")
  for home in "${JAVA_HOME:-}" "${on_path%/bin/java}" \
    ${QUOTAPLANE_JDKS-/usr/lib/jvm/* /Library/Java/JavaVirtualMachines/*/Contents/Home \
      /opt/homebrew/opt/openjdk@* /usr/local/opt/openjdk@* "${HOME:-/root}"/.sdkman/candidates/java/*}; do
    [[ -n $home ]] && major=$(java_major "$home") || continue
    case $major in
      17 | 21) export JAVA_HOME=$home; return ;;
      *) found=${found:-", found only Java $major in $home"} ;;
    esac
  done
  die "Spark needs Java 17 or 21${found:-, found none}: install one (Debian, Ubuntu: apt-get install" \
    "openjdk-17-jdk-headless; Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17)" \
    "or point JAVA_HOME to it"
}

# --- the environment ----------------------------------------------------------------------------

find_python() {
  local candidate code hint=''
  for candidate in ${QUOTAPLANE_PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
    code=0
    "$candidate" -c 'import sys
if not (3, 10) <= sys.version_info[:2] <= (3, 13): sys.exit(3)
import ensurepip, venv' >/dev/null 2>&1 || code=$?
    [[ $code != 0 ]] || { printf '%s' "$candidate"; return; }
    [[ $code != 1 ]] || hint=$candidate
  done
  [[ -z $hint ]] || die "$hint lacks its venv module: install it (Debian, Ubuntu: apt-get install $hint-venv)"
  die "Python 3.10, 3.11, 3.12 or 3.13 is needed, and ${QUOTAPLANE_PYTHON:-python3} is none of them:" \
    "install one (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12)"
}

# The stamp has the fingerprint, the extras and Spark's version; it is written last, so what was
# interrupted is not ready.
stamp_word() { # the word $1 of the stamp
  local words=()
  ! read -r -a words 2>/dev/null <"$VENV/.stamp" || printf '%s' "${words[$1]-}"
}

find_spark() { # sets SPARK: the version $1, or that of the environment, or 4.0
  local versions
  SPARK=${1:-$(stamp_word 2)}
  SPARK=${SPARK:-4.0}
  versions=$(cd "$ROOT/deploy" && echo spark-*)
  [[ " $versions " == *" spark-$SPARK "* ]] || die "--spark $SPARK: choose one of ${versions//spark-/}"
}

fingerprint() { cat "$ROOT"/deploy/lock*.txt "$ROOT/deploy/spark-$SPARK"/* | cksum | tr ' ' -; }

jar_sets() { # of the extras $1: the names before .xml and .sha256 in the folder of Spark's version
  printf 'jars\n'
  [[ ,$1, != *,s3,* ]] || printf 's3-jars\n'
}

jars_folder() { # of the extras $1
  local set
  printf '%s/jars/%s' "$CACHE" \
    "$(for set in $(jar_sets "$1"); do cat "$ROOT/deploy/spark-$SPARK/$set.xml"; done | cksum | tr ' ' -)"
}

is_ready() { # $1: extras
  local extra made link wanted; made=,$(stamp_word 1),
  [[ -e $VENV/jars && -e $VENV/spark && $(stamp_word 0) == "$(fingerprint)" ]] || return 1
  for extra in ${1//,/ }; do [[ $made == *,"$extra",* ]] || return 1; done
  link=$(readlink "$VENV/jars") wanted=$(jars_folder "$made")
  [[ ${link##*/} == "${wanted##*/}" ]]
}

check_jars() { # in folder $1 are exactly the files of the extras $2 whose hashes are in the repository
  local sums hash=(sha256sum) files=("$1"/*) set
  command -v sha256sum >/dev/null || hash=(shasum -a 256)
  sums=$(for set in $(jar_sets "$2"); do cat "$ROOT/deploy/spark-$SPARK/$set.sha256"; done)
  (cd "$1" && "${hash[@]}" -c - <<<"$sums" >/dev/null 2>&1) && [[ ${#files[@]} == "$(grep -c . <<<"$sums")" ]]
}

lock_files() { # of the extras $1: options for pip
  local extra
  printf '%s\n' -r "$ROOT/deploy/lock.txt" -r "$ROOT/deploy/spark-$SPARK/lock.txt"
  for extra in ${1//,/ }; do
    case $extra in
      spark | kafka | pulsar | admin | server | s3) ;;
      *) [[ $extra != build && -f $ROOT/deploy/lock-$extra.txt ]] || return 1
        printf '%s\n' -r "$ROOT/deploy/lock-$extra.txt" ;;
    esac
  done
}

get_jars() { # of the extras $2 into folder $1, whole or not at all
  local new=$1.$$ settings=() line set
  [[ -z ${QUOTAPLANE_IVY_SETTINGS:-} ]] || settings=(-settings "$QUOTAPLANE_IVY_SETTINGS")
  rm -rf "$new" && mkdir -p "$new"
  for set in $(jar_sets "$2"); do
    "$JAVA_HOME/bin/java" -jar "$VENV"/spark/jars/ivy-*.jar ${settings[@]+"${settings[@]}"} \
      -ivy "$ROOT/deploy/spark-$SPARK/$set.xml" -confs default -retrieve "$new/[artifact]-[revision].[ext]" 2>&1 || exit
  done | tee "$new.log" | while IFS= read -r line; do
    [[ $line != downloading* ]] || { line=${line%%.jar*}; say "      ${line##*/}.jar"; }
  done || { rm -rf "$new"; die "the jars could not be fetched; $new.log says why"; }
  check_jars "$new" "$2" || die "the jars in $new are not those of deploy/spark-$SPARK/*jars.sha256: somebody" \
    "changed them on the way, or a file was not renewed with its *jars.xml; nothing was installed"
  rm -rf "$1" "$new.log" && mv "$new" "$1"
}

make_environment() { # $1: extras
  local extras python jars locks line
  extras=$(tr , '\n' <<<"$1,$(stamp_word 1)" | grep . | sort -u | paste -sd , -)
  jars=$(jars_folder "$extras")
  locks=$(lock_files "$extras") || die "--setup $1: extras are kafka, pulsar, admin, server, s3, test and tracing"
  rm -f "$VENV/.stamp"
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    [[ -n $CHECKOUT ]] || die "$VENV has no pip, which setup needs: $VENV/bin/python -m ensurepip"
    python=$(find_python)
    say "[1/3] making the Python environment .venv ($("$python" -V))"
    "$python" -m venv --clear "$VENV"
  else
    say "[1/3] the Python environment .venv is there ($("$VENV/bin/python" -V))"
  fi
  say "[2/3] installing Spark $SPARK and the packages of deploy/lock.txt (PySpark is 430 MB: some minutes the first time)"
  local pip=("$VENV/bin/python" -m pip --disable-pip-version-check install --no-build-isolation) options=()
  while IFS= read -r line; do options+=("$line"); done <<<"$locks"
  # pip refuses a file whose hash is not in the lock, and a package that the lock does not have
  "${pip[@]}" --require-hashes --quiet -r "$ROOT/deploy/lock-build.txt" >&2
  "${pip[@]}" --require-hashes "${options[@]}" >&2
  [[ -z $CHECKOUT ]] || "${pip[@]}" --quiet --no-deps --no-index -e "$ROOT" >&2
  ln -sfn "$(cd "$VENV"/lib/python3*/site-packages/pyspark && pwd)" "$VENV/spark"
  say "[3/3] getting Spark's connectors"
  if [[ -d $jars ]] && ! check_jars "$jars" "$extras"; then
    say "      the jars in $jars are damaged or changed; fetching them again"
    rm -rf "$jars"
  fi
  [[ -d $jars ]] || get_jars "$jars" "$extras"
  ln -sfn "$jars" "$VENV/jars"
  printf '%s %s %s\n' "$(fingerprint)" "$extras" "$SPARK" >"$VENV/.stamp"
  say "ready"
}

# --- the class archive ----------------------------------------------------------------------------

# Java takes Spark's classes from it, already checked: a quarter less processor time of a start. Java
# ignores an archive that another Java made, or whose jars changed or are elsewhere; a job starts without one.

class_archive() {
  local key; key=$({ cat "$JAVA_HOME/release" 2>/dev/null; fingerprint; printf '%s' "$VENV"; ls "$VENV"/jars/hadoop-aws* 2>/dev/null || true; } | cksum)
  printf '%s' "$VENV/classes-${key%% *}.jsa"
}

class_archive_options() {
  local archive; archive=$(class_archive)
  [[ ! -e $archive ]] || printf '"-XX:SharedArchiveFile=%s" -Xlog:cds*=off' "$archive"
}

ensure_class_archive() {
  local archive; archive=$(class_archive)
  [[ ! -e $archive ]] || return 0
  say "making an archive of Java's classes, with which jobs start faster (half a minute, 190 MB)"
  rm -f "$VENV"/classes-*
  if SPARK_SUBMIT_OPTS="\"-XX:ArchiveClassesAtExit=$archive.new\"" \
    "$ROOT/spark-submit.sh" "$ROOT/deploy/load_classes.py" >"$archive.log" 2>&1 && [[ -e $archive.new ]]; then
    chmod a+r "$archive.new"
    mv "$archive.new" "$archive"
    rm -f "$archive.log"
  else
    say "it was not made, and jobs start without it ($archive.log says why)"
  fi
}

ensure_environment() { # $1: extras; only one process makes it, the others wait
  is_ready "$1" && return
  mkdir -p "$CACHE"
  (
    if command -v flock >/dev/null && ! flock -n 9; then
      say "waiting for another process that makes an environment"
      flock 9
    fi
    is_ready "$1" || make_environment "$1"
  ) 9>"$CACHE/setup.lock"
}

set_up() { # [EXTRAS] [--spark VERSION]: what --setup does
  local more='' spark=''
  while (($#)); do
    case $1 in
      --spark) spark=${2-}; [[ -n $spark ]] || die "--spark needs a version"; shift ;;
      -*) die "--setup: unknown option $1" ;;
      *) more=,$1 ;;
    esac
    shift
  done
  find_java
  find_spark "$spark"
  ensure_environment "$extras$more"
  ensure_class_archive
}
