"""Writes the golden files beside it by PyTorch:  write_golden.py NET...  (texts, as BUILD has them)"""

import json
import os
import sys

from golden_nets import golden_cases
from gyre import summarised
from pytorch import judge
from random_nets import random_case

SEEDS = range(30)


def write(name, cases, samples):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "w") as file:
        for case in cases:
            result = {"case": case.name, **summarised(judge(case), samples)}
            file.write(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    recurrent = [net for net in sys.argv[1:] if "recurrent" in net]
    write("nets.jsonl", golden_cases([net for net in sys.argv[1:] if net not in recurrent]), 12)
    write("recurrent.jsonl", golden_cases(recurrent), 6)
    write("random_nets.jsonl", map(random_case, SEEDS), 3)
