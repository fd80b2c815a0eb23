"""./spark-submit.sh before anything starts: Java, jobs, and which option goes where."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from quotaplane.errors import ConfigError
from tests.unit.repo.pages import ROOT, load_script

LAUNCHER = ROOT / "spark-submit.sh"
COMMANDS = (
    *("bash", "cat", "cksum", "dirname", "env", "flock", "grep", "mkdir", "paste"),
    *("readlink", "rm", "sed", "sort", "tr"),
)


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def variables(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.out.splitlines()[:-1])

    @property
    def spark(self) -> list[str]:
        return shlex.split(self.variables["PYSPARK_SUBMIT_ARGS"])

    @property
    def command(self) -> list[str]:
        return shlex.split(self.out.splitlines()[-1])


class Machine:
    """A machine that has the usual commands and just the Javas that a test gives it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.launcher = folder, LAUNCHER
        self.environment = {"PATH": self._commands(), "HOME": str(folder), "QUOTAPLANE_JDKS": ""}

    def _commands(self) -> str:
        folder = self.folder / "commands"
        folder.mkdir()
        for name in COMMANDS:
            for place in ("/bin", "/usr/bin"):
                if Path(place, name).exists() and not (folder / name).exists():
                    (folder / name).symlink_to(Path(place, name))
        return str(folder)

    def java(self, version: str, name: str = "jdk", *, release_file: bool = False) -> Path:
        """A JAVA_HOME whose java says that it is ``version``, in its release file or when run."""
        home = self.folder / name
        (home / "bin").mkdir(parents=True)
        script = f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n"
        if release_file:
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
            script = "#!/bin/sh\nexit 1\n"
        (home / "bin" / "java").write_text(script)
        (home / "bin" / "java").chmod(0o755)
        return home

    def run(self, *arguments: str, **variables: str) -> Answer:
        done = subprocess.run(
            [self.launcher, *arguments],
            env=self.environment | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def fresh_checkout(self) -> Path:
        """From now on the launcher of a checkout without ``.venv``, which may be made there."""
        copy = self.folder / "fresh checkout"
        (copy / "jobs").mkdir(parents=True)
        for name in ("spark-submit.sh", "deploy", "conf", "setup.cfg"):
            (copy / name).symlink_to(ROOT / name)
        (copy / "jobs" / "run_quota.py").touch()
        self.launcher = copy / "spark-submit.sh"
        return copy

    def installed(self) -> Path:
        """From now on the launcher that pip put into an environment, which is not set up."""
        environment = self.folder / "environment"
        share = environment / "share" / "quotaplane"
        share.mkdir(parents=True)
        for name in ("deploy", "conf", "jobs"):
            (share / name).symlink_to(ROOT / name)
        self.launcher = Path(shutil.copy(LAUNCHER, share))
        (environment / "lib" / "python3.12" / "site-packages" / "quotaplane").mkdir(parents=True)
        return environment

    def refused(self, *arguments: str, **variables: str) -> str:
        """Run it; it must end with 2. Its one line."""
        answer = self.run(*arguments, **variables)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        return answer.err


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def machine(bare: Machine) -> Machine:
    bare.environment["JAVA_HOME"] = str(bare.java("17.0.9"))
    return bare


def test_no_java(bare: Machine) -> None:
    line = bare.refused("quota", "--print-command")
    assert "needs Java 17 or 21, found none" in line
    assert "apt-get install openjdk-17-jdk-headless" in line


@pytest.mark.parametrize("release_file", [True, False])
@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_392", "8"), ("11.0.21", "11"), ("25", "25"), ("25-ea", "25")]
)
def test_java_that_spark_cannot_run_on(
    bare: Machine, version: str, major: str, release_file: bool
) -> None:
    home = bare.java(version, release_file=release_file)
    line = bare.refused("quota", "--print-command", JAVA_HOME=str(home))
    assert f"needs Java 17 or 21, found only Java {major} in {home}" in line


def test_java_home_wins_over_the_path(bare: Machine) -> None:
    first, second = bare.java("21", "first"), bare.java("17", "second")
    path = f"{second}/bin:{bare.environment['PATH']}"
    answer = bare.run("quota", "--print-command", JAVA_HOME=str(first), PATH=path)
    assert answer.variables["JAVA_HOME"] == str(first)
    answer = bare.run("quota", "--print-command", PATH=path)
    assert answer.variables["JAVA_HOME"] == str(second)


def test_an_unsuitable_java_home_does_not_hide_a_good_java(bare: Machine) -> None:
    bad, good = bare.java("25", "jdk-25"), bare.java("17.0.1", "jdk-17")
    bare.environment |= {"JAVA_HOME": str(bad), "QUOTAPLANE_JDKS": f"{bad} {good}"}
    answer = bare.run("quota", "--print-command")
    assert answer.variables["JAVA_HOME"] == str(good)


def test_python_that_is_too_old(machine: Machine) -> None:
    old = machine.folder / "old-python"
    old.write_text("#!/bin/sh\nexit 3\n")
    old.chmod(0o755)
    machine.fresh_checkout()
    line = machine.refused("quota", QUOTAPLANE_PYTHON=str(old))
    assert "Python 3.10, 3.11, 3.12 or 3.13 is needed" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "there is no job nonsense"),
        (["no/such/file.py"], "there is no job no/such/file.py"),
        (["--nonsense", "quota"], "unknown option --nonsense before the job"),
        (["--mast", "local", "quota"], "unknown option --mast before the job"),
        (["--master"], "--master needs a value"),
        (["quota", "--driver-memory="], "--driver-memory needs a value"),
        (["--master", "local"], "no job given"),
        (["quota", "--supervise"], "--supervise restarts drivers in a standalone cluster"),
        (["quota", "--deploy-mode", "both"], "--deploy-mode must be client or cluster, not 'both'"),
        (
            ["quota", "--master", "spark://h:7077", "--deploy-mode", "cluster"],
            "--deploy-mode cluster: with the master spark://h:7077 Spark runs no Python program",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(
    machine: Machine, arguments: list[str], message: str
) -> None:
    assert machine.refused(*arguments).startswith(f"spark-submit.sh: {message}")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_jobs_and_needs_nothing_from_the_machine(
    bare: Machine, arguments: list[str]
) -> None:
    bare.environment = {"PATH": bare.environment["PATH"]}
    answer = bare.run(*arguments)
    assert answer.code == 0
    jobs = sorted(file.stem.removeprefix("run_") for file in (ROOT / "jobs").glob("run_*.py"))
    assert jobs
    for job in jobs:
        summary = (ROOT / "jobs" / f"run_{job}.py").read_text("utf-8").splitlines()[0].strip('"')
        assert f"  {job:<12} {summary}\n" in answer.out


def test_a_plain_job(machine: Machine) -> None:
    answer = machine.run("quota", "--conf", "conf/local.yaml", "--print-command")
    assert answer.command == [
        f"{ROOT}/.venv/bin/python",
        f"{ROOT}/jobs/run_quota.py",
        "--conf",
        "conf/local.yaml",
    ]
    assert answer.spark[:4] == ["--master", "local[*]", "--deploy-mode", "client"]
    assert answer.spark[4:] == [
        "--properties-file",
        f"{ROOT}/conf/spark-defaults.conf",
        "pyspark-shell",
    ]
    path = answer.variables["SPARK_DIST_CLASSPATH"]
    assert path == f"{ROOT}/.venv/jars/*:{ROOT}/conf"
    assert not Path(answer.variables["SPARK_CONF_DIR"]).exists()
    assert answer.variables["PYSPARK_PYTHON"] == f"{ROOT}/.venv/bin/python"
    assert answer.variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert not (machine.folder / ".cache").exists()  # nothing is made for printing


def test_an_installed_launcher_uses_the_environment_that_it_is_in(machine: Machine) -> None:
    environment = machine.installed()
    answer = machine.run("quota", "--conf", "a.yaml", "--print-command")
    assert answer.command[0] == f"{environment}/bin/python"
    assert answer.command[1] == f"{environment}/share/quotaplane/jobs/run_quota.py"
    assert answer.variables["SPARK_HOME"] == f"{environment}/spark"
    line = machine.refused("quota", "--conf", "a.yaml")
    assert line == "spark-submit.sh: jobs lack Spark or its connectors: quotaplane setup\n"
    assert "has no pip" in machine.run("--setup").err  # it makes no environment in place of this
    assert (environment / "lib").exists()


def test_the_version_of_spark_is_chosen_at_set_up(machine: Machine) -> None:
    copy = machine.fresh_checkout()
    line = machine.refused("--setup", "--spark", "3.5")
    assert line == "spark-submit.sh: --spark 3.5: choose one of 4.0 4.1 4.2\n"
    assert "--spark needs a version" in machine.refused("--setup", "--spark")
    assert "unknown option --colour" in machine.refused("--setup", "--colour")
    (copy / ".venv").mkdir()
    chosen = 'die() { :; }; source "$ROOT/deploy/environment.sh"; find_spark "$1"; echo "$SPARK"'
    variables = {"ROOT": str(copy), "VENV": f"{copy}/.venv"}

    def spark(option: str) -> str:
        return subprocess.run(
            ["bash", "-c", chosen, "bash", option],
            env=machine.environment | variables,
            capture_output=True,
            text=True,
        ).stdout.strip()

    assert (spark(""), spark("4.2")) == ("4.0", "4.2")
    (copy / ".venv" / ".stamp").write_text("123-456 kafka,spark 4.2\n")
    assert (spark(""), spark("4.1")) == ("4.2", "4.1")


def test_options_go_to_spark_or_to_the_job(machine: Machine) -> None:
    answer = machine.run(
        *("--driver-memory", "3g", "quota", "--executor-memory=4g", "--name", "two words"),
        *("--conf", "a.yaml", "--spark-conf", "spark.x=it's", "--conf", "spark.y=2"),
        "--law=static",
        *("--executor-cores", "2", "--num-executors", "3", "--total-executor-cores", "6"),
        *("--queue", "q", "--driver-java-options", "-Da=b -Dc=d", "-v", "$HOME", "--print-command"),
    )
    assert answer.command[2:] == ["--conf", "a.yaml", "--law=static", "-v", "$HOME"]
    pairs = list(zip(answer.spark[:-1:2], answer.spark[1:-1:2], strict=True))
    assert pairs[3:] == [
        ("--driver-memory", "3g"),
        ("--executor-memory", "4g"),
        ("--name", "two words"),
        ("--conf", "spark.x=it's"),
        ("--conf", "spark.y=2"),
        ("--executor-cores", "2"),
        ("--num-executors", "3"),
        ("--total-executor-cores", "6"),
        ("--queue", "q"),
        ("--driver-java-options", "-Da=b -Dc=d"),
    ]


def test_after_two_dashes_everything_is_the_jobs(machine: Machine) -> None:
    answer = machine.run("--print-command", "quota", "--", "--name", "x", "--print-command")
    assert answer.command[2:] == ["--name", "x", "--print-command"]
    assert "--name" not in answer.spark


def test_a_properties_file_adds_to_the_defaults(machine: Machine) -> None:
    answer = machine.run("quota", "--properties-file", "mine.conf", "--print-command")
    assert answer.spark[-4:-1] == ["--properties-file", "mine.conf", "--load-spark-defaults"]
    assert answer.variables["SPARK_CONF_DIR"] == f"{ROOT}/conf"  # where Spark looks for defaults


def test_java_gets_the_class_archive_that_was_made_for_it(machine: Machine) -> None:
    copy = machine.fresh_checkout()
    (copy / ".venv").mkdir()
    made_for = machine.java("17.0.9", "made-for", release_file=True)
    other = machine.java("17.0.10", "other", release_file=True)
    script = 'die() { :; }; source "$ROOT/deploy/environment.sh"; SPARK=4.0 class_archive'
    variables = {"ROOT": str(copy), "VENV": f"{copy}/.venv", "JAVA_HOME": str(made_for)}
    archive = subprocess.run(
        ["bash", "-c", script], env=machine.environment | variables, capture_output=True, text=True
    ).stdout
    command = ("quota", "--print-command")
    answer = machine.run(*command, JAVA_HOME=str(made_for), SPARK_SUBMIT_OPTS="-Dmine=1")
    assert answer.variables["SPARK_SUBMIT_OPTS"].split() == ["-Dmine=1"]
    Path(archive).touch()
    answer = machine.run(*command, JAVA_HOME=str(made_for))
    options = shlex.split(answer.variables["SPARK_SUBMIT_OPTS"])
    assert options == [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]
    answer = machine.run(*command, JAVA_HOME=str(other))
    assert answer.variables["SPARK_SUBMIT_OPTS"].split() == []
    # Java would refuse it: Spark puts this folder first on the class path
    (copy / "conf").unlink()
    (copy / "conf").mkdir()
    (copy / "conf" / "spark-env.sh").touch()
    answer = machine.run(*command, JAVA_HOME=str(made_for))
    assert answer.variables["SPARK_CONF_DIR"] == f"{copy}/conf"
    assert "SPARK_SUBMIT_OPTS" not in answer.variables


def test_a_cluster_is_sent_the_package_and_its_environment(machine: Machine) -> None:
    answer = machine.run(
        *("quota", "--master", "spark://10.0.0.1:7077", "--print-command"),
        *("--py-files", "mine.zip", "--archives", "data.zip#data", "--jars", "mine.jar"),
    )
    spark = answer.spark
    assert spark[spark.index("--py-files") + 1] == "mine.zip,quotaplane.zip"
    sent = spark[spark.index("--archives") + 1]
    assert sent == "data.zip#data,environment.tar.gz#environment"
    assert spark[spark.index("--jars") + 1] == f"{ROOT}/.venv/jars/*.jar,mine.jar"
    assert "spark.executorEnv.PYTHONPATH=quotaplane.zip" in spark
    assert answer.variables["PYSPARK_PYTHON"] == "python3"
    assert "SPARK_LOCAL_IP" not in answer.variables


def test_executors_that_have_this_folder_are_sent_nothing_of_it(machine: Machine) -> None:
    job = ("quota", "--master", "k8s://https://h:6443", "--jars", "mine.jar", "--print-command")
    spark = machine.run(*job, QUOTAPLANE_EXECUTORS="installed").spark
    assert not {"--py-files", "--archives"} & {*spark}
    *own, mine = spark[spark.index("--jars") + 1].split(",")
    assert own
    assert all(jar.startswith(f"local:{ROOT}/.venv/jars/") for jar in own)
    assert mine == "mine.jar"
    assert f"spark.executorEnv.PYTHONPATH={ROOT}/pipelines" in spark
    assert "only 'installed'" in machine.refused(*job, QUOTAPLANE_EXECUTORS="yes")
    in_cluster = (*job, "--deploy-mode", "cluster")
    assert "client mode" in machine.refused(*in_cluster, QUOTAPLANE_EXECUTORS="installed")


def test_in_cluster_mode_spark_starts_the_job(machine: Machine) -> None:
    answer = machine.run(
        *("quota", "--master", "yarn", "--deploy-mode", "cluster", "--files", "ca.pem"),
        *("--conf", "of/mine/a.yaml", "--print-command"),
        QUOTAPLANE_UMASK="027",
        PASSWORD="secret",
    )
    command = answer.command
    assert f"{ROOT}/.venv/jars/*.jar" in command
    assert command[0] == f"{ROOT}/.venv/spark/bin/spark-submit"
    assert command[-3:] == [f"{ROOT}/jobs/run_quota.py", "--conf", "a.yaml"]
    sent = command[command.index("--archives") + 1]
    assert sent == "environment.tar.gz#environment,driver.tar.gz#driver"
    sent = command[command.index("--files") + 1]
    assert sent == "ca.pem,of/mine/a.yaml,quotaplane-secrets.json"
    assert "spark.yarn.appMasterEnv.PYTHONPATH=driver" in command
    assert "spark.yarn.appMasterEnv.QUOTAPLANE_UMASK=027" in command
    assert "secret" not in answer.out.replace("quotaplane-secrets.json", "")


def test_a_pod_gets_its_secrets_from_kubernetes(machine: Machine) -> None:
    answer = machine.run(
        *("quota", "--master", "k8s://https://h:6443", "--deploy-mode=cluster", "--conf=b/a.yaml"),
        "--print-command",
    )
    assert answer.command[answer.command.index("--files") + 1] == "b/a.yaml"
    assert answer.command[-1] == "--conf=a.yaml"
    assert "spark.kubernetes.driverEnv.PYTHONPATH=driver" in answer.command


def settings_file(folder: Path, history: str) -> Path:
    """Settings of a job on YARN, which need two variables."""
    file = folder / "settings.yaml"
    file.write_text(
        f"""
        transport:
          kind: kafka
          bootstrap_servers: ${{SERVERS}}
          report_topics: [reports]
          limits_topic: limits
          security:
            protocol: SASL_SSL
            sasl_mechanism: PLAIN
            username: me
            password: ${{PASSWORD}}
        history: {{path: {history}}}
        checkpoint: hdfs://h/checkpoint  # no ${{VARIABLE}} of a comment
        """
    )
    return file


def check(settings: Path, secrets: object = "", *options: str) -> None:
    """The check before a driver is sent to a cluster."""
    script = str(ROOT / "jobs" / "run_quota.py")
    words = ("--conf", settings.name, *options)
    main = load_script(ROOT / "deploy" / "cluster_check.py").main
    main(str(settings), str(secrets), script, *words)


def test_the_secrets_of_a_settings_file_travel_in_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, secrets = settings_file(tmp_path, "hdfs://h/history"), tmp_path / "secrets.json"
    variables = {"SERVERS": "h:9092", "PASSWORD": 'a"b\\'}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check(file, secrets)
    assert json.loads(secrets.read_text()) == variables
    assert secrets.stat().st_mode & 0o777 == 0o600


def test_a_mistake_is_told_before_a_driver_is_sent_to_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = settings_file(tmp_path, "data/history")
    monkeypatch.setenv("SERVERS", "h:9092")
    with pytest.raises(ConfigError, match="variable PASSWORD is not set"):
        check(file)
    monkeypatch.setenv("PASSWORD", "x")
    with pytest.raises(ConfigError, match=r"history.path: 'data/history' is another folder on"):
        check(file)
    with pytest.raises(ConfigError, match="unrecognized arguments: --verbose"):
        check(file, "", "--verbose")


def test_a_folder_that_all_machines_share_is_named_with_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVERS", "PASSWORD"):
        monkeypatch.setenv(name, "x")
    check(settings_file(tmp_path, "file:///shared/history"))


def test_a_job_may_be_any_file(machine: Machine) -> None:
    (machine.folder / "my job.py").touch()
    answer = machine.run("my job.py", "--print-command", "a b")
    assert answer.command[1:] == ["my job.py", "a b"]
