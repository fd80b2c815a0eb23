"""Bytes that quotaplane's balancer moves, beside the exact minimum (a MIP, solved by HiGHS).

python -m benchmarks.balance_bound [--clusters N] [--seconds S]
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies
from quotaplane.console.option_parser import OptionParser
from quotaplane.model import FloatArray, IntArray

LEVELS: Final = (0.15, 0.10, 0.05)
SIZES: Final = ("uniform", "lognormal", "zipf")
STORIES: Final = ("one hot", "new empty", "random", "heterogeneous")


class Case(NamedTuple):
    """A cluster of B brokers and N bundles."""

    sizes: FloatArray
    """Shape (N,): bytes per second."""
    owner: IntArray
    capacity: FloatArray
    """Shape (B,): relative."""


class Minimum(NamedTuple):
    """The bounds of the fewest bytes that must move."""

    found: float
    """Bytes per second of the best plan found; inf = none found, or none exists."""
    proven: float
    """No plan moves less."""


def make_case(sizes: str, story: str, brokers: int, bundles: int, seed: int) -> Case:
    """A random cluster."""
    random = np.random.default_rng(seed)
    load = {
        "uniform": lambda: random.uniform(0.5, 1.5, bundles),
        "lognormal": lambda: random.lognormal(0, 1, bundles),
        "zipf": lambda: random.permutation(1 / np.arange(1, bundles + 1) ** 0.8),
    }[sizes]() * 1e6
    capacity = np.ones(brokers)
    if story == "heterogeneous":
        capacity = random.choice([0.5, 1.0, 2.0], brokers)
    owner = np.zeros(bundles, np.int64)
    carried = np.zeros(brokers)
    usable = brokers - (story == "new empty")
    if story == "random":
        owner = random.integers(0, brokers, bundles)
    else:
        for bundle in np.argsort(-load):
            owner[bundle] = int((carried[:usable] / capacity[:usable]).argmin())
            carried[owner[bundle]] += load[bundle]
    if story == "one hot":
        load = np.where(owner == 0, load * 1.8, load)
    if story == "heterogeneous":
        owner = np.where(random.random(bundles) < 0.3, random.integers(0, brokers, bundles), owner)
    return Case(load, owner, capacity)


def excess_bound(case: Case, eps: float) -> float:
    """Bytes that must leave brokers above (1 + eps) times the mean, as if bundles could be cut."""
    carried = np.bincount(case.owner, case.sizes, len(case.capacity))
    allowed = (1 + eps) * case.sizes.sum() / case.capacity.sum() * case.capacity
    return float(np.maximum(carried - allowed, 0).sum())


def exact_minimum(case: Case, eps: float, seconds: float) -> Minimum:
    """The fewest bytes to move so that every broker carries at most (1 + eps) times the mean.

    Variable (i, b) is 1 when bundle i moves to broker b, which is not its owner.
    """
    import highspy

    bundles, brokers = len(case.sizes), len(case.capacity)
    sizes = case.sizes / case.sizes.sum()
    allowed = (1 + eps) * case.capacity / case.capacity.sum()
    carried = np.bincount(case.owner, sizes, brokers)
    bundle, target = np.divmod(np.arange(bundles * brokers), brokers)
    other = target != case.owner[bundle]
    bundle, target = bundle[other], target[other]
    columns = len(bundle)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, bundles + brokers
    model.col_cost_ = sizes[bundle]
    model.col_lower_, model.col_upper_ = np.zeros(columns), np.ones(columns)
    model.integrality_ = [highspy.HighsVarType.kInteger] * columns
    model.row_lower_ = np.full(bundles + brokers, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate([np.ones(bundles), allowed - carried])
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    matrix.start_ = np.arange(columns + 1) * 3
    rows = np.stack([bundle, bundles + case.owner[bundle], bundles + target], axis=1)
    matrix.index_ = rows.ravel()
    ones = np.ones(columns)
    matrix.value_ = np.stack([ones, -sizes[bundle], sizes[bundle]], axis=1).ravel()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", seconds)
    solver.setOptionValue("mip_rel_gap", 0.005)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    info = solver.getInfo()
    total = float(case.sizes.sum())
    solved = info.primal_solution_status == 2
    found = info.objective_function_value * total if solved else np.inf
    return Minimum(found, max(info.mip_dual_bound * total, excess_bound(case, eps)))


def ours(case: Case, eps: float, rounds: int = 6) -> tuple[float, int, int, float]:
    """The result of quotaplane: bytes moved, moves, rounds that moved something, and the final
    maximum / mean.
    """
    options = BalanceOptions(
        start_above=eps,
        stop_below=eps,
        confirm_samples=1,
        confirm_window_samples=1,
        noise_z=0,
        max_bytes_share_per_round=1,
        allow_splits=False,
    )
    brokers = [f"b{i:03d}" for i in range(len(case.capacity))]
    policies = Policies(capacity_weights=dict(zip(brokers, case.capacity.tolist(), strict=True)))
    names = [f"acme/n{i:05d}/0x00000000_0xffffffff" for i in range(len(case.sizes))]
    owner, state = case.owner.copy(), BalanceState.empty()
    zeros = np.zeros((len(brokers), 5))
    rates = np.stack([case.sizes, *np.zeros((3, len(names)))], axis=1)
    moved, moves, active = 0.0, 0, 0
    for minute in range(rounds):
        load = ClusterLoad(brokers, zeros, zeros, names, owner.copy(), rates)
        age_s = np.zeros(len(brokers))
        round_ = BalanceRound(load, 60.0 * minute, age_s, age_s > 0)
        state, decided = decide(state, round_, options, policies)
        for move in decided.moves:
            owner[names.index(move.bundle)] = brokers.index(move.target)
            moved += move.bytes_per_s
        moves += len(decided.moves)
        active += bool(decided.moves)
    use = np.bincount(owner, case.sizes, len(brokers)) / case.capacity
    return moved, moves, active, float(use.max() / (case.sizes.sum() / case.capacity.sum()))


def main() -> None:
    """Print a table, and the ratios over all clusters."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=2, help="of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each exact minimum")
    given = parser.parse_args()
    print(
        "| bundles | story | B x N | eps | moved / proven minimum | / found | max/mean | rounds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    ratios: dict[float, list[float]] = {eps: [] for eps in LEVELS}
    for sizes in SIZES:
        for story in STORIES:
            for seed in range(given.clusters):
                brokers, bundles = ((10, 150), (20, 300))[seed % 2]
                case = make_case(sizes, story, brokers, bundles, seed)
                for eps in LEVELS:
                    least = exact_minimum(case, eps, given.seconds)
                    moved, _, rounds, final = ours(case, eps)
                    if least.proven <= 0:
                        continue
                    if final <= 1 + eps + 1e-6:
                        ratios[eps].append(moved / least.proven)
                    print(
                        f"| {sizes} | {story} | {brokers} x {bundles} | {eps:.2f}"
                        f" | {moved / least.proven:.3f} | {moved / least.found:.3f}"
                        f" | {final:.3f} | {rounds} |",
                        flush=True,
                    )
    for eps, values in ratios.items():
        if values:
            print(
                f"eps {eps:.2f}: {len(values)} clusters reached; moved / proven minimum:"
                f" median {np.median(values):.3f}, highest {max(values):.3f}"
            )


if __name__ == "__main__":
    main()
