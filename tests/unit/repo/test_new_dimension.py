"""A ninth dimension costs two edits by hand; generated files are made anew."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from grpc_tools import protoc

from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    DECLARED_DIMENSIONS,
    DIMENSIONS,
    LIMIT_COLUMNS,
    PARTS,
    RATE_COLUMNS,
    SAFE_COLUMNS,
    THROTTLED_COLUMNS,
    group_id,
)
from quotaplane.quota.state import ShardState
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate, UsageReport
from quotaplane.wire.shard_inputs import pack_groups
from tests.unit.repo.pages import ROOT
from tests.unit.streams.shard_cases import PROGRAM

NAME = "admin_lookups"
DECLARATION = f'    Dimension("{NAME}", "lookups"),\n'


def test_basic_dimensions_come_first_and_totals_are_sums_of_them() -> None:
    assert [one.is_basic for one in DECLARED_DIMENSIONS[:BASIC]] == [True] * BASIC
    assert {part for parts in PARTS.values() for part in parts} <= set(range(BASIC))
    assert {DIMENSIONS[total]: [DIMENSIONS[part] for part in PARTS[total]] for total in PARTS} == {
        "total_messages": ["publish_messages", "dispatch_messages"],
        "total_bytes": ["publish_bytes", "dispatch_bytes"],
    }


def test_every_dimension_has_its_columns_in_our_messages() -> None:
    report, limits = (m.DESCRIPTOR.fields_by_name for m in (UsageReport, LimitsUpdate))
    wanted = {*RATE_COLUMNS, *THROTTLED_COLUMNS, *LIMIT_COLUMNS, *COUNTER_COLUMNS}
    assert not wanted - set(report), "schemas/quotaplane.proto: message UsageReport"
    wanted = {*RATE_COLUMNS, *SAFE_COLUMNS}
    assert not wanted - set(limits), "schemas/quotaplane.proto: message LimitsUpdate"


SCENARIO = """
import base64, contextlib, io, json, sys
import numpy as np, pyarrow as pa
from pathlib import Path
from quotaplane.arrow import unpack
from quotaplane.cli.main import main
from quotaplane.groups.policy_options import FLOOR_COLUMNS
from quotaplane.query.views import VIEWS
from quotaplane.history.ddl import render
from quotaplane.history.store import ensure_history
from quotaplane.history.tables import TABLES
from quotaplane.history.stamped_rows import stamped
from quotaplane.model import BASIC, COUNTED, DIMENSIONS, Round, group_id
from quotaplane.registry.table import list_groups
from quotaplane.settings import History, parse_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.reports import decode
from quotaplane.wire.shard_inputs import pack_groups, pack_reports

folder, history, name = *sys.argv[1:3], "NAME"
texts = json.loads(Path(folder, "earlier").read_text())
earlier = {key: base64.b64decode(text) for key, text in texts.items()}
at = DIMENSIONS.index(name)
assert (len(DIMENSIONS), at, BASIC) == (9, 8, 4)

# tables, DDL, audits
ensure_history(History(path=history))
for table in ("usage", "limits", "resource_groups"):
    assert f"  {name}_per_s DOUBLE COMMENT" in render(TABLES[table])
assert f"floor_{name}_per_s" in FLOOR_COLUMNS
without = [view.name for view in VIEWS.values() if f"{name}_per_s" not in view.sql]
# The first has all columns of limits, the second none of dimensions.
assert without == ["recent_limits", "covered_stretches"], without

def groups(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["groups", "put", *words, "--history", history]) == 0
    return json.loads(out.getvalue())

terms = {"b1": {"ceiling": {f"{name}_per_s": 2}}}
throttle = {name: {"mode": "hard"}}
put = groups("g", "--quota", "12 lookups/s", "--brokers", json.dumps(terms),
             "--throttle", json.dumps(throttle), "--floor-admin-lookups-per-s", "1")
assert put[f"{name}_per_s"] == 12.0 and put["brokers"] == terms and put["throttle"] == throttle

# a shard without the dimension goes on, with the new quota
settings = parse_settings({
    "transport": {"kind": "delta", "path": "topics"}, "history": {"path": "history"},
    "checkpoint": "checkpoint", "reports": {"interval_s": 1.0},
})
program = quota_program(settings, epoch=1)
state = program.load(earlier["state"])
changes = list_groups(History(path=history))
for column, value in {"group_id": group_id("g"), "deleted": False, "version": 5}.items():
    changes = changes.append_column(column, pa.array([value]))
((_, packed),) = pack_groups(changes, 1)

def report(broker, now_ms, lookups):
    usage = np.zeros((1, len(DIMENSIONS)))
    usage[0, at] = lookups
    return encode_report(broker=broker, started_at_ms=1, sequence=now_ms, window_ms=1000,
                         groups=["g"], usage=usage, throttled=usage,
                         counters=10 * usage[:, COUNTED])

def reports(now_ms, **lookups):
    values = [report(broker, now_ms, used) for broker, used in lookups.items()]
    places = [f"reports/0@{i}" for i in range(len(values))]
    decoded = decode(values, np.full(len(values), now_ms), places, now_ms=now_ms,
                     reports=settings.reports)
    assert not len(decoded.rejected), decoded.rejected
    return [payload for _, payload in pack_reports(decoded, 1)]

state, outputs = program.run(
    state, {"groups": [packed], "reports": reports(2000, b1=9.0, b2=9.0)}, Batch(0, 2, 2000)
)
state = program.load(program.dump(state))
tables = {output.kind: output.payload for output in outputs}
messages = [decode_limits(value) for value in unpack(tables["messages"])[0]["value"].to_pylist()]
limits = {message.broker: message.limits[0, at] for message in messages}
assert limits == {"b1": 2.0, "b2": 10.0}, limits
assert all(np.isfinite(message.safe_limits[0, at]) for message in messages)
for table in ("usage", "limits"):
    kept = stamped(TABLES[table], unpack(tables[table])[0], Round(1, 2, 2000))
    assert table == "limits" or set(kept[f"counter_{name}"].to_pylist()) == {90.0}
    assert set(kept[f"{name}_per_s"].to_pylist()) == ({9.0} if table == "usage" else {2.0, 10.0})
assert decode_limits(earlier["limits"]).limits[0, at] == np.inf
print("done")
""".replace("NAME", NAME)


def earlier_bytes() -> dict[str, bytes]:
    """A shard's state and a message, as the package writes them today."""
    row = {"group": "g", "group_id": group_id("g"), "deleted": False, "version": 1}
    rates = {RATE_COLUMNS[0]: 100.0}
    ((_, packed),) = pack_groups(pa.Table.from_pylist([{**row, **rates}]), 1)
    state, _ = PROGRAM.run(ShardState(), {"groups": [packed]}, Batch(0, 1, 1000))
    head = {"broker": "b", "shard": 0, "epoch": 1, "seq": 1, "issued_at_ms": 0, "lease_ms": 1}
    limits = np.full((1, len(DIMENSIONS)), 5.0)
    return {
        "state": PROGRAM.dump(state),
        "limits": encode_limits(**head, groups=["g"], limits=limits),  # type: ignore[arg-type]
    }


def with_fields(proto: str, message: str, names: list[str]) -> str:
    """The schema with further columns at the end of a message."""
    found = re.search(rf"^message {message} \{{.*?^\}}$", proto, re.MULTILINE | re.DOTALL)
    assert found is not None
    last = max(map(int, re.findall(r" = (\d+);", found[0])))
    fields = [f"  repeated double {name} = {last + 1 + i};" for i, name in enumerate(names)]
    longer = found[0].removesuffix("}") + "\n".join(fields) + "\n}"
    return proto.replace(found[0], longer)


def test_a_ninth_dimension_is_two_edits(tmp_path: Path) -> None:
    package = tmp_path / "pipelines" / "quotaplane"
    shutil.copytree(ROOT / "pipelines" / "quotaplane", package)
    model = package / "model.py"
    text, end = model.read_text("utf-8"), '\n)\n"""Every dimension, the basic ones first.'
    assert text.count(end) == 1
    model.write_text(text.replace(end, f"\n{DECLARATION}{end[1:]}"), "utf-8")
    proto = (ROOT / "schemas" / "quotaplane.proto").read_text("utf-8")
    rate = f"{NAME}_per_s"
    columns = {
        "UsageReport": [rate, f"throttled_{rate}", f"limit_{rate}", f"counter_{NAME}"],
        "LimitsUpdate": [rate, f"safe_{rate}"],
    }
    for message, names in columns.items():
        proto = with_fields(proto, message, names)
    (tmp_path / "quotaplane.proto").write_text(proto, "utf-8")
    made = f"--python_out={package / 'wire' / 'pb'}"  # as `make proto` does
    assert protoc.main(["protoc", f"-I{tmp_path}", made, f"{tmp_path}/quotaplane.proto"]) == 0

    texts = {key: base64.b64encode(value).decode() for key, value in earlier_bytes().items()}
    (tmp_path / "earlier").write_text(json.dumps(texts), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path), str(tmp_path / "history")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(package.parent), "PATH": ""},
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr
