#!/usr/bin/env python3
"""Compares training with values that PyTorch computed in F64 (write_golden.py).

golden_test.py TRAIN GOLDEN,... NET... the nets of golden_nets.py, in which every layer occurs
golden_test.py TRAIN GOLDEN            random nets, in the ways that their seeds choose
"""

import sys

sys.dont_write_bytecode = True

import json
import os
import tempfile

from case import layers_of
from golden_nets import golden_cases
from gyre import Gyre, compare
from layers import KINDS
from random_nets import random_case, way_of
from texts import parse

# F64: sums of a few hundred terms in another order.  F32: likewise, over ten steps; Adam divides by
# the root of what may be rounding alone, so of its run the losses count.
TOLERANCE = {"F64": 1e-10, "F32": 1e-4}


def of_nets(gyre, case, want):
    case.write(gyre.folder)
    for precision in ("F64", "F32"):
        out = f"{case.name} {precision}".replace(" ", "_")
        gyre.run(out, [], precision=precision)
        got, expected = gyre.result(out), dict(want)
        if precision == "F32" and "adam" in case.name:
            expected = {"steps": [{"loss": step["loss"]} for step in want["steps"]]}
            got = {"steps": [{"loss": step["loss"]} for step in got["steps"]]}
        elif "momentum" in case.name:  # the first gradients are the same for all optimizers
            got["gradients"] = gyre.gradients([], precision=precision)
        else:
            expected.pop("gradients")
        yield precision, compare(got, expected, TOLERANCE[precision])


def of_random_nets(gyre, case, want):
    case.write(gyre.folder)
    device, step, how = way_of(case, int(case.name.split()[1]))
    gyre.run_interrupted("out", device, step, **how)
    got = gyre.result("out")
    got["gradients"] = gyre.gradients(device, **how)
    yield f"{device} {how}", compare(got, want, TOLERANCE["F64"])


def unused_layers(nets):
    """The layers of layers.py that no net has."""
    texts = [parse(open(net).read()) for net in nets]
    used = {layer.kind for text in texts for layer in layers_of(text)}
    return [kind for kind in KINDS if kind not in used]


def main():
    train, golden, *nets = sys.argv[1:]
    if nets and (unused := unused_layers(nets)):
        sys.exit(f"in no golden net: {unused}")
    wanted = {}
    for name in golden.split(","):
        with open(name) as file:
            wanted |= {line.pop("case"): line for line in map(json.loads, file)}
    cases = golden_cases(nets) if nets else (random_case(int(n.split()[1])) for n in wanted)
    failed = compared = 0
    for case in cases:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            check = of_nets if nets else of_random_nets
            for how, (lines, worst) in check(Gyre(train, folder), case, wanted[case.name]):
                compared += 1
                failed += bool(lines)
                print(f"{'FAILED' if lines else 'ok'} {case.name} {how}: largest difference {worst:.2g}")
                print("".join(f"  {line}\n" for line in lines[:10]), end="")
    sys.exit(failed > 0 or compared < len(wanted))


if __name__ == "__main__":
    main()
