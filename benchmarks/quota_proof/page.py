"""Common parts of both proofs' pages: verdicts, cells, and how files are written."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from benchmarks.machine import machine_on
from benchmarks.quota_proof.figures import SETTLED_S, WINDOW_S, Figures, by_window, fair, means
from benchmarks.quota_proof.load import Arrivals
from benchmarks.quota_proof.plots import picture
from benchmarks.quota_proof.record import SLOTS_PER_S, Record

WANTED_FAIR_S: Final = 3.0
"""How soon after its event a scenario shall be fair again."""
WANTED_SERVED_S: Final = 10.0
"""The same after the take-over, for producers that were muted or not limited until then."""
WANTED_UTILISATION: Final = 0.97
WANTED_OVER: Final = 0.05
_OF_ARRIVALS: Final[Mapping[Arrivals, str]] = {
    "even": "",
    "poisson": "",
    "on_off": " (0.25 s each)",
}
_DIGITS: Final = {
    "utilisation": 3,
    "throttled_innocents": 3,
    "seconds_to_fair": 1,
    "over_settled": 3,
}


class Scene(Protocol):
    """A scenario, as far as pages show it; rates are in one unit."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def quota(self) -> float: ...
    @property
    def quota_after(self) -> float | None: ...
    @property
    def before(self) -> tuple[float, ...]: ...
    @property
    def after(self) -> tuple[float, ...]: ...
    @property
    def arrivals(self) -> Arrivals: ...
    @property
    def before_control(self) -> bool: ...


class Named(Protocol):
    """A contender, as far as pages show it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...


SceneT = TypeVar("SceneT", bound=Scene)
FiguresT = TypeVar("FiguresT", bound=Figures)


def within_s(scene: Scene) -> float:
    """How soon it shall be fair."""
    return WANTED_SERVED_S if scene.before_control else WANTED_FAIR_S


def misses(scene: Scene, found: Figures) -> list[str]:
    """The figures that are not as good as wanted."""
    seconds = found.seconds_to_fair
    missed = []
    if seconds is None or seconds > within_s(scene):
        missed.append("seconds_to_fair")
    if found.utilisation < WANTED_UTILISATION:
        missed.append("utilisation")
    if found.over_settled > WANTED_OVER:
        missed.append("over_settled")
    return missed


def words(found: Figures) -> dict[str, str]:
    """Each figure in a sentence, by its name."""
    took = found.seconds_to_fair
    return {
        "seconds_to_fair": "never fair" if took is None else f"fair after {took:.1f} s",
        "utilisation": f"utilisation {found.utilisation:.1%}",
        "over_settled": f"overshoot, settled, {found.over_settled:.1%}",
    }


@dataclass(frozen=True)
class Verdicts(Generic[SceneT, FiguresT]):
    """Figures of contenders in scenarios, and what is wanted of them."""

    scenes: Sequence[SceneT]
    """All there are."""
    found: Mapping[tuple[str, str], FiguresT]
    """From the names of scenario and contender."""
    misses: Callable[[SceneT, FiguresT], list[str]]
    words: Callable[[FiguresT], Mapping[str, str]]

    def judged(self, contender: Named) -> tuple[list[SceneT], list[SceneT]]:
        """The scenarios in which a contender was as good as wanted, and the others."""
        own = [scene for scene in self.scenes if (scene.name, contender.name) in self.found]
        missed = [s for s in own if self.misses(s, self.found[s.name, contender.name])]
        return [scene for scene in own if scene not in missed], missed

    def verdict(self, contender: Named) -> str:
        """A line about a contender."""
        met, missed = self.judged(contender)
        own = [one for (_, name), one in self.found.items() if name == contender.name]
        unfair = sum(one.seconds_to_fair is None for one in own)
        over = max(one.over_settled for one in own)
        return (
            f"- {contender.title}: met in {len(met)} of {len(met) + len(missed)} scenarios; never "
            f"fair in {unfair}; overshoot, settled, up to {over:.1%}."
        )

    def marked(self, figure: str, scene: SceneT, found: FiguresT, words: str) -> str:
        """A cell, bold where the figure is not as good as wanted."""
        return f"**{words}**" if figure in self.misses(scene, found) else words

    def seconds(self, scene: SceneT, found: FiguresT | None) -> str:
        """The cell of the seconds to fair; empty if there are no figures."""
        if found is None:
            return ""
        took = found.seconds_to_fair
        return self.marked(
            "seconds_to_fair", scene, found, "never" if took is None else f"{took:.1f}"
        )

    def miss(self, scene: SceneT, contender: Named, cause: str) -> str:
        """A scenario that misses what is wanted, with the figures that do, and why."""
        found = self.found[scene.name, contender.name]
        said = self.words(found)
        missed = ", ".join(said[name] for name in self.misses(scene, found))
        return f"- *{scene.title}*: {missed}.{cause}"


def titled(scene: Scene, folder: str) -> str:
    """A scenario's title, which leads to its plot."""
    return f"[{scene.title}{_OF_ARRIVALS[scene.arrivals]}]({folder}/{scene.name}.svg)"


def wants(scene: Scene, scale: float = 1.0, unit: str = "") -> str:
    """Demand at the brokers before and after the event, and the quota, divided by ``scale``."""

    def rates(values: Sequence[float]) -> str:
        return "/".join(f"{value / scale:g}" for value in values)

    wanted = rates(scene.before)
    if scene.after != scene.before:
        wanted += f" → {rates(scene.after)}"
    quota = rates([scene.quota])
    if scene.quota_after is not None:
        quota += f" → {rates([scene.quota_after])}"
    return f"{wanted} of {quota}{unit}"


def meanings(after_a_kill: str) -> tuple[str, ...]:
    """Explanations of the figures; ``after_a_kill`` ends the sentence about the time."""
    return (
        "- *seconds to fair*: after the event, until each broker's mean over the next "
        f"{WINDOW_S:.0f} s was within 10 % of its fair share and stayed so; {after_a_kill}",
        "- *utilisation*: used of what could be, min(quota, demand), in the last "
        f"{SETTLED_S:.0f} s.",
        "- *overshoot, settled*: by how much all brokers together exceeded the quota at most "
        f"in the last {SETTLED_S:.0f} s, as means over {WINDOW_S:.0f} s; *at most*: at any "
        "time after the event.",
    )


def figures_csv(found: Mapping[tuple[str, str], Figures]) -> str:
    """All figures of all contenders as CSV; empty: never fair, or no innocents."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    names = next((list(asdict(one)) for one in found.values()), [])
    rows.writerow(["scenario", "contender", *names])
    for (scene, contender), one in found.items():
        cells = (
            None if value is None else f"{value:.{_DIGITS.get(name, 2)}f}"
            for name, value in asdict(one).items()
        )
        rows.writerow([scene, contender, *cells])
    return out.getvalue()


def results_csv(records: Sequence[Record]) -> str:
    """Each second of each broker: what it wanted, should have had and used, as CSV."""
    out = io.StringIO()
    names = ("scenario", "contender", "second", "broker", "quota", "demand", "fair", "used")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(names)
    for record in records:
        wanted, used = (by_window(series, 1.0) for series in (record.demand, record.usage))
        series = (wanted, fair(record, 1.0), used, means(np.asarray(record.quota), 1.0))
        wanted, due, used, quota = (each[::SLOTS_PER_S] for each in series)
        for second, allowed in enumerate(quota.tolist()):
            for broker in range(used.shape[1]):
                cells = (values[second, broker] for values in (wanted, due, used))
                at = (f"{record.from_s + second:.0f}", broker + 1, f"{allowed:g}")
                rows.writerow(
                    [record.scenario, record.contender, *at, *(f"{cell:.1f}" for cell in cells)]
                )
    return out.getvalue()


def write_files(
    docs: Path,
    name: str,
    scenes: Sequence[Scene],
    contenders: Sequence[Named],
    records: Sequence[Record],
    found: Mapping[tuple[str, str], Figures],
    text: Callable[[str | None], str],
) -> Path:
    """Write the page ``name``.md, and its plots and numbers in the folder ``name``.

    Args:
        docs: The folder of measured pages.
        name: Of the page.
        scenes: All scenarios.
        contenders: All contenders, in the order of their panels.
        records: One of each scenario and contender.
        found: Their figures.
        text: Makes the page; gets the paragraph about the machine if the figures are those of the
            page that is there, else None.

    Returns:
        The page's path.
    """
    folder = docs / name
    folder.mkdir(parents=True, exist_ok=True)
    for scene in scenes:
        shown = [
            (contender, record)
            for contender in contenders
            for record in records
            if (record.contender, record.scenario) == (contender.name, scene.name)
        ]
        if shown:
            titles = [contender.title for contender, _ in shown]
            drawn = picture([record for _, record in shown], titles)
            (folder / f"{scene.name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "results.csv").write_text(results_csv(records), encoding="utf-8")
    path, figures_file, new = docs / f"{name}.md", folder / "figures.csv", figures_csv(found)
    known = path.exists() and figures_file.exists() and figures_file.read_text() == new
    figures_file.write_text(new, encoding="utf-8")
    path.write_text(text(machine_on(path) if known else None), encoding="utf-8")
    return path
