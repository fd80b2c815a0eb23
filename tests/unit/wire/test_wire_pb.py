"""The generated code is what the schemas generate."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from grpc_tools import protoc
from packaging.requirements import Requirement
from packaging.version import Version

from quotabalance.wire.pb import balance_pb2
from quotaplane.wire.pb import pulsar_resource_usage_pb2, quotaplane_pb2
from tests.unit.repo.pages import ROOT

GENERATED = [Path(str(one.__file__)).parent for one in (quotaplane_pb2, balance_pb2)]


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    schemas = sorted((ROOT / "schemas").glob("*.proto"))
    out = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["protoc", f"-I{ROOT / 'schemas'}", *out, *map(str, schemas)]) == 0
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    files = [path for folder in GENERATED for path in folder.glob("*_pb2.py*")]
    assert made == {path.name: path.read_text() for path in files}


def test_generated_code_is_not_newer_than_the_oldest_runtime_allowed() -> None:
    """Protobuf refuses code that was generated for a newer version than the one installed."""
    text = Path(str(quotaplane_pb2.__file__)).read_text()
    found = re.search(r"^# Protobuf Python Version: (\S+)$", text, re.MULTILINE)
    assert found is not None
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = [
        Requirement(line) for line in setup["options"]["install_requires"].split("\n") if line
    ]
    (protobuf,) = (requirement for requirement in needed if requirement.name == "protobuf")
    oldest = next(spec.version for spec in protobuf.specifier if spec.operator == ">=")
    assert Version(found.group(1)) <= Version(oldest)


def test_the_stock_schema_is_pulsars() -> None:
    file = pulsar_resource_usage_pb2.DESCRIPTOR
    assert file.package == "pulsar.resource.usage"
    found = {
        name: [f"{field.name}={field.number}" for field in message.fields]
        for name, message in file.message_types_by_name.items()
    }
    assert found == {
        "NetworkUsage": ["bytesPerPeriod=1", "messagesPerPeriod=2"],
        "StorageUsage": ["totalBytes=1"],
        "ResourceUsage": ["owner=1", "publish=2", "dispatch=3", "storage=4"],
        "ResourceUsageInfo": ["broker=1", "usageMap=2"],
    }
