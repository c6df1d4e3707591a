"""Part of run_all that trains in less device memory than a step would take, beside what PyTorch does
about that: first a net's step with all in memory, then in shares of what it takes, then PyTorch's ways of
saving memory, and Gyre in as much as each of them takes."""

import sys

from bench_parts import bench_net, no_pytorch, run_pytorch, say_failure
from programs import json_lines
from results import FAILED, OK, SKIPPED

# Of what the step with all in memory takes, and the throughput wanted of that step's.
_CAPACITIES = ((0.43, 0.90), (0.33, 0.65))
_WAYS = ("offload", "offload-activations", "checkpoint")
_AT_EQUAL_MEMORY = 1.15  # times as fast as PyTorch
_LOSS_BOUND = 1e-3  # of ways that compute the same in other orders
_UNBOUNDED = 1 << 50
_MIB = 1 << 20
_LIMIT_S = 30


class Paging:
    """One net's rows."""

    def __init__(self, programs, results, settings, bench):
        self._programs, self._results, self._settings = programs, results, settings
        self._bench = bench
        self._resident = None  # bench_net's line
        self._plain = None  # PyTorch's, as written

    def shares(self):
        """Rows of Gyre alone: all in memory, and shares of that."""
        part = self._bench.net + " resident"
        line, outcome = self._gyre(_UNBOUNDED, ["--planner=none", "--digest"])
        if line is None:
            say_failure(self._results, part, outcome)
            return
        self._resident = line
        self._results.add(part, OK, "%.3f ms a step of %d in %d MiB, algorithms as recommended; "
                          "weights sha256 %s..." % (line["ms_per_step"], line["batch"],
                                                    line["planned_bytes"] / _MIB,
                                                    line["weights_sha256"][:16]), **line)
        for share, wanted in _CAPACITIES:
            self._share(share, wanted)

    def _share(self, share, wanted):
        part = "%s at %.0f %%" % (self._bench.net, 100 * share)
        whole = self._resident
        capacity = int(share * whole["planned_bytes"])
        line, outcome = self._gyre(capacity, ["--digest"])
        if line is None:
            say_failure(self._results, part, outcome)
            return
        kept = whole["ms_per_step"] / line["ms_per_step"]
        text = self._goal("%.2f of the resident throughput" % wanted, kept >= wanted) + (
            "%.3f of it, %.3f ms a step, in %s" % (kept, line["ms_per_step"], _memory(line)))
        status = OK
        if line["planned_bytes"] > capacity:
            status, text = FAILED, "more than %d MiB; %s" % (capacity / _MIB, text)
        if line["weights_sha256"] != whole["weights_sha256"]:
            status, text = FAILED, "other weights than the resident ones; " + text
        elif status == OK:
            text += "; weights as resident"
        self._results.add(part, status, text, capacity_bytes=capacity, kept=kept, wanted=wanted, **line)

    def peers(self):
        """Rows of PyTorch's ways and of Gyre in as much memory, way by way."""
        layouts = self._settings.saving_layouts
        for way in ("eager",) + _WAYS:
            found, outcome = run_pytorch(
                self._programs, self._settings, self._bench, ["F32"],
                [way + layout for layout in layouts], self._settings.paging_rounds, _LIMIT_S)
            if no_pytorch(outcome):
                self._results.add("PyTorch saving memory", SKIPPED,
                                  "it is not installed for %s" % sys.executable)
                return
            timed = json_lines(outcome.output, ["mode"], ["ms_per_step", "steps_peak_bytes", "loss"])
            if not timed:
                errors = "; ".join(str(line.get("error")) for line in found)
                self._row(way, FAILED if errors or outcome.ok else outcome.status,
                          errors or outcome.why())
                continue
            fastest = min(timed, key=lambda line: line["ms_per_step"])
            if way == "eager":
                self._plain = fastest
                self._row(way, OK, "%.3f ms in %d MiB" % (
                    fastest["ms_per_step"], fastest["steps_peak_bytes"] / _MIB), pytorch=fastest)
            else:
                self._peer(way, fastest)

    def _peer(self, way, peer):
        memory = peer["steps_peak_bytes"]
        about = "PyTorch %.3f ms in %d MiB" % (peer["ms_per_step"], memory / _MIB)
        if self._plain and abs(peer["loss"] - self._plain["loss"]) > _LOSS_BOUND * abs(
                self._plain["loss"]):
            self._row(way, FAILED, "PyTorch's loss is %g instead of %g; %s" % (
                peer["loss"], self._plain["loss"], about), pytorch=peer)
            return
        line, outcome = self._gyre(memory, [])
        if line is None:
            self._row(way, FAILED if outcome.ok else outcome.status,
                      "Gyre in as much memory: %s; %s" % (outcome.why(), about), pytorch=peer)
            return
        ratio = peer["ms_per_step"] / line["ms_per_step"]
        text = self._goal("%.2f x" % _AT_EQUAL_MEMORY, ratio >= _AT_EQUAL_MEMORY) + (
            "%.2f x as fast, %.3f ms a step in %s; %s" % (
                ratio, line["ms_per_step"], _memory(line), about))
        self._row(way, OK if line["planned_bytes"] <= memory else FAILED, text,
                  ratio=ratio, gyre=line, pytorch=peer)

    def _row(self, way, status, text, **numbers):
        self._results.add("%s / %s" % (self._bench.net, way), status, text, **numbers)

    def _goal(self, goal, met):
        """Of a GPU alone."""
        if self._settings.device != "cuda":
            return ""
        return "goal %s %s: " % (goal, "met" if met else "MISSED")

    def _gyre(self, memory, flags):
        """bench_net's line or None, and its outcome."""
        return bench_net(
            self._programs, self._settings, self._bench,
            ["--device_memory=%d" % memory, "--rounds=%d" % self._settings.paging_rounds,
             "--autotune=false"] + flags, _LIMIT_S, self._settings.paging_device)


def _memory(line):
    """What a step takes of the device, and what it copies."""
    text = "%d MiB" % (line["planned_bytes"] / _MIB)
    if "fetched_bytes" not in line:
        return text + ", nothing paged"
    return text + ", %d MiB in and %d out" % (line["fetched_bytes"] / _MIB,
                                              line["written_bytes"] / _MIB)


def run(programs, results, settings):
    """Gyre by itself first, then beside PyTorch."""
    paging = Paging(programs, results, settings, settings.paging_bench)
    with results.row("paging"):
        paging.shares()
    with results.row("PyTorch saving memory"):
        paging.peers()
