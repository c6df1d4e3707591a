"""Checks random nets against PyTorch:  check_random_nets.py TRAIN FIRST LAST

Each seed trains on one rank, and again as the seed chooses: on `sim` or `cpu`, on 1 to 3 ranks, some
of them under mpirun, killed and resumed on the way; in F64 all to 1e-10, in F32 the first loss to 1e-4.
"""

import sys
import tempfile

from case import Numbers
from gyre import Gyre, compare, summarised
from pytorch import judge
from random_nets import random_case

F64, F32 = 1e-10, 1e-4


def check(train, seed, folder):
    case, numbers = random_case(seed), Numbers(seed + 2**32)
    case.write(folder)
    want = summarised(judge(case), 1000)
    gyre = Gyre(train, folder)
    faults, worst = [], 0
    gyre.run("straight", [])
    gyre.run("F32", [], precision="F32")
    device = [f"--device={numbers.pick(['cpu', 'sim'])}"]
    how = {"ranks": numbers.between(1, 3), "mpirun": numbers.chance(12)}
    gyre.run_interrupted("other", device, numbers.between(1, 4), **how)
    for out, arguments, of_run in (("straight", [], {}), ("other", device, how)):
        got = gyre.result(out)
        got["gradients"] = gyre.gradients(arguments, **of_run)
        lines, largest = compare(got, want, F64)
        faults += [f"{out} {arguments} {of_run}: {line}" for line in lines]
        worst = max(worst, largest)
    first = {"steps": want["steps"][:1]}
    lines, _ = compare({"steps": gyre.result("F32")["steps"][:1]}, first, F32)
    return faults + [f"F32: {line}" for line in lines], worst


def main():
    train, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bad, worst = 0, 0
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                faults, largest = check(train, seed, folder)
            except Exception as error:  # of one seed; the others go on
                faults, largest = [f"{type(error).__name__}: {error}"], 0
        worst = max(worst, largest)
        bad += bool(faults)
        for fault in faults[:5]:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"{last - first + 1} seeds, {bad} with faults, largest difference {worst:.2g}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
