"""Checks random nets against PyTorch:  check_random_nets.py TRAIN FIRST LAST

Each seed trains as it chooses: on `sim` or `cpu`, on 1 to 3 ranks, some of them under mpirun, killed
and resumed on the way; in F64 all to 1e-10, in F32 the first loss to 1e-4.  A net that turns a rounding
of its weights into as large a difference in PyTorch itself (a batch_norm of what another has made equal)
is counted apart: of it no more can be said.
"""

import math
import sys
import tempfile

import torch

from gyre import Gyre, compare, summarised
from pytorch import judge
from random_nets import random_case, way_of
from random_numbers import Numbers

F64, F32 = 1e-10, 1e-4


def check(train, seed, folder):
    case = random_case(seed)
    case.write(folder)
    want = summarised(judge(case), 1000)
    gyre = Gyre(train, folder)
    device, step, how = way_of(case, seed)
    how["mpirun"] = Numbers(seed + 2**33).chance(8)
    gyre.run_interrupted("out", device, step, **how)
    got = gyre.result("out")
    got["gradients"] = gyre.gradients(device, **how)
    lines, worst = compare(got, want, F64)
    gyre.run("F32", ["--steps=1"], precision="F32")
    in_f32, _ = compare({"steps": gyre.result("F32")["steps"]}, {"steps": want["steps"][:1]}, F32)
    if lines and not in_f32:
        _, moved = compare(judge(case, nudge=2**-52), want, F64)
        if math.isfinite(moved) and worst < 4 * moved:
            return None, moved
    return [f"{device} {how}: {line}" for line in lines] + [f"F32: {line}" for line in in_f32], worst


def main():
    train, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    bad, worst, unstable = 0, 0, 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                faults, largest = check(train, seed, folder)
            except Exception as error:  # of one seed; the others go on
                faults, largest = [f"{type(error).__name__}: {error}"], 0
        if faults is None:
            print(f"seed {seed}: a rounding of its weights moves PyTorch by {largest:.2g}", flush=True)
            unstable += 1
            continue
        worst = max(worst, largest)
        bad += bool(faults)
        for fault in faults[:5]:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"{last - first + 1} seeds, {bad} with faults, {unstable} that roundings move; "
          f"of the others the largest difference is {worst:.2g}")
    sys.exit(bad > 0 or unstable > (last - first + 1) / 50 + 1)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
