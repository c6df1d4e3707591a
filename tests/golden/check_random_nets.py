"""Checks random nets against PyTorch:  check_random_nets.py TRAIN FIRST LAST

Each seed trains as it chooses: on 1 to 3 ranks, some of them under mpirun, which sum gradients or have a
parameter server, by a batch a step or several, killed and resumed on the way.  In F64, on `sim` or `cpu`,
all must come out to 1e-10; in F32 the first loss to 1e-4; in F16 or BF16, with the same bits on both, all
but accuracies within 4 times what rounding each number that is kept does to PyTorch.  A net that turns a
rounding of F64 into as large a difference in PyTorch itself (a batch_norm of what another has made equal)
is counted apart, and so is one with numbers beyond F16: of these no more can be said.
"""

import collections
import math
import sys
import tempfile

import torch

from gyre import Gyre, compare, differences, summarised
from pytorch import judge, roundings
from random_nets import random_case, way_of
from random_numbers import Numbers
from texts import parse

F64, F32 = 1e-10, 1e-4
# Of roundings, and how many each number is moved by: more where the first do not explain a difference.
DRAWS = (range(6), 1), (range(6, 40), 4)
# What rounding to nearest changes at most, as a share: half the last bit.
UNITS = {"F16": (torch.float16, 2**-11), "BF16": (torch.bfloat16, 2**-8), "F64": (torch.float64, 2**-53)}


def moved(case, want, precision, draws=DRAWS[0], of=lambda result: result):
    """How far a rounding of all that is kept moves what PyTorch gives: compare's `moved`."""
    most = collections.defaultdict(float)
    dtype, unit = UNITS[precision]
    seeds, times = draws
    for seed in seeds:
        # First to the nearest, and then, what that may hide, from up to `times` units beside it.
        got = judge(case, roundings(dtype, times * unit * (seed > 0), seed))
        for what, difference, _ in differences(of(got), of(want)):
            most[what] = max(most[what], difference / times)
    return most


def without_accuracies(result):
    """A label that is among the first by a rounding is a whole sample's difference."""
    losses = lambda metrics: {name: v for name, v in metrics.items() if not name.startswith("accu")}
    return result | {kind: list(map(losses, result[kind])) for kind in ("steps", "tests")}


def check_16_bits(gyre, case, want, precision, arguments, step, how):
    """Lines about what is wrong; None where numbers are beyond the precision."""
    bounds = moved(case, want, precision, of=without_accuracies)
    if not all(map(math.isfinite, bounds.values())):
        return None
    results = []
    for device in "cpu", "sim":
        there = arguments + [f"--device={device}"]
        gyre.run_interrupted(precision + device, there, step, precision=precision, **how)
        results.append(gyre.result(precision + device))
    results[0]["gradients"] = gyre.gradients(arguments + ["--device=cpu"], precision=precision, **how)
    # At least four roundings: a layer's, a rank's or batch's part, their sum, the parameter's copy.
    judged = lambda bounds: compare(without_accuracies(results[0]), without_accuracies(want),
                                    4 * UNITS[precision][1], bounds)[0]
    lines = judged(bounds)
    if lines:  # perhaps a score at a hinge's edge, which all four roundings may take across
        lines = judged(moved(case, want, precision, DRAWS[1], without_accuracies))
    # Of several ranks the norm's last bit may differ.
    if how["ranks"] == 1 or "clip_norm" not in parse(case.trainer)["optimizer"][0]:
        if results[1]["weights"] != results[0]["weights"]:
            lines.append("sim and cpu have other bits")
    return lines


def check(train, seed, folder):
    """Lines about what is wrong, the largest difference in F64, and of what no more can be said."""
    case = random_case(seed)
    case.write(folder)
    want = summarised(judge(case), 1000)
    gyre = Gyre(train, folder)
    arguments, step, how = way_of(case, seed)
    numbers = Numbers(seed + 2**33)
    how["mpirun"] = numbers.chance(8)
    gyre.run_interrupted("out", arguments, step, **how)
    got = gyre.result("out")
    got["gradients"] = gyre.gradients(arguments, **how)
    lines, worst = compare(got, want, F64)
    unstable = []
    if lines and not compare(got, want, F64, moved(case, want, "F64"))[0]:
        lines, worst = [], 0
        unstable.append("F64")
    gyre.run("F32", ["--steps=1"], precision="F32")
    in_f32, _ = compare({"steps": gyre.result("F32")["steps"]}, {"steps": want["steps"][:1]}, F32)
    precision = numbers.pick(["F16", "BF16"])
    in_16 = check_16_bits(gyre, case, want, precision, arguments, step, how)
    if in_16 is None:
        unstable.append(precision)
    found = {"F64": lines, "F32": in_f32, precision: in_16 or []}
    return ([f"{arguments} {how} {kind}: {line}" for kind, some in found.items() for line in some],
            worst, unstable)


def main():
    train, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    bad, worst, apart = 0, 0, collections.Counter()
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                faults, largest, unstable = check(train, seed, folder)
            except Exception as error:  # of one seed; the others go on
                faults, largest, unstable = [f"{type(error).__name__}: {error}"], 0, []
        apart.update(unstable)
        worst = max(worst, largest)
        bad += bool(faults)
        for precision in unstable:
            print(f"seed {seed}: in {precision} roundings move PyTorch as far", flush=True)
        for fault in faults[:5]:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"{last - first + 1} seeds, {bad} with faults, apart {dict(apart)}; "
          f"of the others the largest difference in F64 is {worst:.2g}")
    sys.exit(bad > 0 or any(count > (last - first + 1) / 50 + 1 for count in apart.values()))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
