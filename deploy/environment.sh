# Sourced by spark-submit.sh: finds Java and Python, makes .venv and fetches Spark's connectors.
# shellcheck shell=bash
# Uses ROOT, VENV, CACHE and die() of the launcher.

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
  die "Spark 4.0 needs Java 17 or 21${found:-, found none}: install one (Debian, Ubuntu: apt-get install" \
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

fingerprint() { cat "$ROOT"/deploy/lock*.txt "$ROOT"/deploy/runtime-jars.* | cksum | tr ' ' -; }

jar_sets() { # of the extras $1: the names before -jars.xml and -jars.sha256 in deploy/
  printf 'runtime\n'
  [[ ,$1, != *,s3,* ]] || printf 's3\n'
}

jars_folder() { # of the extras $1
  local name
  printf '%s/jars/%s' "$CACHE" \
    "$(for name in $(jar_sets "$1"); do cat "$ROOT/deploy/$name-jars.xml"; done | cksum | tr ' ' -)"
}

is_ready() { # $1: extras. The stamp is written last, so what was interrupted is not ready
  local made='' extra link
  [[ -e $VENV/jars && -e $VENV/spark ]] && read -r made <"$VENV/.stamp" || return 1
  [[ ${made%% *} == "$(fingerprint)" ]] || return 1
  for extra in ${1//,/ }; do [[ ,${made#* }, == *,"$extra",* ]] || return 1; done
  link=$(readlink "$VENV/jars") made=$(jars_folder "${made#* }")
  [[ ${link##*/} == "${made##*/}" ]]
}

check_jars() { # in folder $1 are exactly the files of the extras $2 whose hashes are in the repository
  local sums hash=(sha256sum) files=("$1"/*) name
  command -v sha256sum >/dev/null || hash=(shasum -a 256)
  sums=$(for name in $(jar_sets "$2"); do cat "$ROOT/deploy/$name-jars.sha256"; done)
  (cd "$1" && "${hash[@]}" -c - <<<"$sums" >/dev/null 2>&1) && [[ ${#files[@]} == "$(grep -c . <<<"$sums")" ]]
}

lock_files() { # of the extras $1: options for pip
  local extra
  printf '%s\n' -r "$ROOT/deploy/lock.txt"
  for extra in ${1//,/ }; do
    case $extra in
      kafka | pulsar | admin | server | s3) ;;
      *) [[ $extra != build && -f $ROOT/deploy/lock-$extra.txt ]] || return 1
        printf '%s\n' -r "$ROOT/deploy/lock-$extra.txt" ;;
    esac
  done
}

get_jars() { # of the extras $2 into folder $1, whole or not at all
  local new=$1.$$ settings=() line name
  [[ -z ${QUOTAPLANE_IVY_SETTINGS:-} ]] || settings=(-settings "$QUOTAPLANE_IVY_SETTINGS")
  rm -rf "$new" && mkdir -p "$new"
  for name in $(jar_sets "$2"); do
    "$JAVA_HOME/bin/java" -jar "$VENV"/spark/jars/ivy-*.jar ${settings[@]+"${settings[@]}"} \
      -ivy "$ROOT/deploy/$name-jars.xml" -confs default -retrieve "$new/[artifact]-[revision].[ext]" 2>&1 || exit
  done | tee "$new.log" | while IFS= read -r line; do
    [[ $line != downloading* ]] || { line=${line%%.jar*}; say "      ${line##*/}.jar"; }
  done || { rm -rf "$new"; die "the jars could not be fetched; $new.log says why"; }
  check_jars "$new" "$2" || die "the jars in $new are not those of deploy/*-jars.sha256: somebody" \
    "changed them on the way, or a file was not renewed with its *-jars.xml; nothing was installed"
  rm -rf "$1" "$new.log" && mv "$new" "$1"
}

make_environment() { # $1: extras
  local extras=$1 made='' python jars locks line
  ! read -r made 2>/dev/null <"$VENV/.stamp" || extras=$(tr , '\n' <<<"$1,${made#* }" | sort -u | paste -sd , -)
  jars=$(jars_folder "$extras")
  locks=$(lock_files "$extras") || die "--setup $1: extras are kafka, pulsar, admin, server, s3, test and tracing"
  rm -f "$VENV/.stamp"
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "[1/3] making the Python environment .venv ($("$python" -V))"
    "$python" -m venv --clear "$VENV"
  else
    say "[1/3] the Python environment .venv is there ($("$VENV/bin/python" -V))"
  fi
  say "[2/3] installing the packages of deploy/lock.txt (PySpark is 430 MB: some minutes the first time)"
  local pip=("$VENV/bin/python" -m pip --disable-pip-version-check install --no-build-isolation) options=()
  while IFS= read -r line; do options+=("$line"); done <<<"$locks"
  # pip refuses a file whose hash is not in the lock, and a package that the lock does not have
  "${pip[@]}" --require-hashes --quiet -r "$ROOT/deploy/lock-build.txt" >&2
  "${pip[@]}" --require-hashes "${options[@]}" >&2
  "${pip[@]}" --quiet --no-deps --no-index -e "$ROOT" >&2
  ln -sfn "$(cd "$VENV"/lib/python3*/site-packages/pyspark && pwd)" "$VENV/spark"
  say "[3/3] getting Spark's connectors"
  if [[ -d $jars ]] && ! check_jars "$jars" "$extras"; then
    say "      the jars in $jars are damaged or changed; fetching them again"
    rm -rf "$jars"
  fi
  [[ -d $jars ]] || get_jars "$jars" "$extras"
  ln -sfn "$jars" "$VENV/jars"
  printf '%s %s\n' "$(fingerprint)" "$extras" >"$VENV/.stamp"
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
