"""Part of run_all that trains in less device memory than a step would take, beside what PyTorch does
about that: first a net's step with all in memory, then in shares of what it takes, then PyTorch's ways of
saving memory, and Gyre in as much as each of them takes."""

import os
import sys

from bench_parts import json_lines
from results import FAILED, OK, SKIPPED

# Of what the step with all in memory takes, and the throughput wanted of that step's.  With as much
# it may cost 1 %, and so it may with a little less.
_CAPACITIES = ((1.00, 1 / 1.01), (0.82, 1 / 1.01), (0.43, 0.90), (0.13, 0.65))
_WAYS = ("offload", "offload-activations", "checkpoint")
_AT_EQUAL_MEMORY = 1.15  # times as fast as PyTorch
_LOSS_BOUND = 1e-3  # of ways that compute the same in other orders
_UNBOUNDED = 1 << 50
_MIB = 1 << 20


class Paging:
    """One net's rows."""

    def __init__(self, programs, results, settings, bench):
        self._programs, self._results, self._settings = programs, results, settings
        self._bench = bench
        self._resident = None  # bench_net's line
        self._plain = None  # PyTorch's, as written

    def shares(self):
        """Rows of Gyre alone: all in memory, and capacities of that.  Whether the first ran."""
        part = self._bench.net + " resident"
        line, why = self._gyre(_UNBOUNDED, ["--planner=none", "--digest", "--autotune=false"])
        if line is None:
            self._results.add(part, FAILED, why)
            return False
        self._resident = line
        self._results.add(part, OK, "%.3f ms a step of %d in %d MiB, algorithms as recommended; "
                          "weights sha256 %s..." % (line["ms_per_step"], line["batch"],
                                                    line["planned_bytes"] / _MIB,
                                                    line["weights_sha256"][:16]), **line)
        for share, wanted in _CAPACITIES:
            self._share(share, wanted)
        return True

    def _share(self, share, wanted):
        part = "%s at %.0f %%" % (self._bench.net, 100 * share)
        if self._programs.seconds_left() < 3:
            self._results.add(part, SKIPPED, "out of time")
            return
        whole = self._resident
        capacity = int(share * whole["planned_bytes"])
        line, why = self._gyre(capacity, ["--digest", "--autotune=false"])
        if line is None:
            self._results.add(part, FAILED, why)
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
        """Rows of PyTorch's ways and of Gyre in as much memory.  False: there is no PyTorch."""
        layouts = self._settings.saving_layouts
        modes = [way + layout for way in ("eager",) + _WAYS for layout in layouts]
        found, why = {}, "out of time"
        if self._programs.seconds_left() > 5:
            found, why = self._pytorch(modes)
        if why and "PyTorch is missing" in why:
            return False
        plain = [found[m] for m in modes if m.startswith("eager") and "ms_per_step" in found.get(m, {})]
        if plain:
            self._plain = min(plain, key=lambda line: line["ms_per_step"])
        for way in _WAYS:
            lines = [found[way + layout] for layout in layouts if way + layout in found]
            self._peer(way, lines, why)
        return True

    def _peer(self, way, lines, why):
        """lines: of its layouts."""
        timed = [line for line in lines if "ms_per_step" in line]
        if not timed:
            errors = [line["error"] for line in lines] + ([why] if why else [])
            self._row(way, SKIPPED, "; ".join(errors) or "no result")
            return
        peer = min(timed, key=lambda line: line["ms_per_step"])
        memory = peer["steps_peak_bytes"]
        about = "PyTorch %.3f ms in %d MiB" % (peer["ms_per_step"], memory / _MIB)
        if self._plain:
            about += " (as written %.3f ms in %d MiB)" % (
                self._plain["ms_per_step"], self._plain["steps_peak_bytes"] / _MIB)
            if abs(peer["loss"] - self._plain["loss"]) > _LOSS_BOUND * abs(self._plain["loss"]):
                self._row(way, FAILED, "PyTorch's loss is %g instead of %g; %s" % (
                    peer["loss"], self._plain["loss"], about), pytorch=peer)
                return
        if self._programs.seconds_left() < 3:
            self._row(way, SKIPPED, "out of time for Gyre's step; " + about, pytorch=peer)
            return
        line, why = self._gyre(memory, [])
        if line is None:
            self._row(way, FAILED, "%s; %s" % (why, about), pytorch=peer)
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
        """bench_net's line or None, and then why."""
        bench = self._bench
        outcome = self._programs.run(
            [self._programs.path("tools/bench_net"), "--net=models/%s/net.textproto" % bench.folder,
             "--batch=%d" % bench.batch, "--device=" + self._settings.paging_device,
             "--device_memory=%d" % memory, "--steps=%d" % bench.steps,
             "--rounds=%d" % self._settings.paging_rounds] + self._settings.threads + flags,
            self._programs.seconds_left() / 2 + 1)
        lines = json_lines(outcome.output)
        return (lines[0], None) if outcome.ok and lines else (None, outcome.why())

    def _pytorch(self, modes):
        """{mode: JSON line} and the reason of a failure, or None."""
        bench = self._bench
        outcome = self._programs.run(
            [sys.executable, os.path.join(self._programs.bundle, "peer_pytorch.py"),
             "--net=" + bench.net, "--batch=%d" % bench.batch, "--device=" + self._settings.device,
             "--modes=" + ",".join(modes), "--steps=%d" % bench.steps,
             "--rounds=%d" % self._settings.paging_rounds],
            self._programs.seconds_left() / 2 + 1, own_libraries=False)
        lines = {line["mode"]: line for line in json_lines(outcome.output)}
        return lines, None if outcome.ok else outcome.why()


def _memory(line):
    """What a step takes of the device, and what it copies."""
    text = "%d MiB" % (line["planned_bytes"] / _MIB)
    if "fetched_bytes" not in line:
        return text + ", nothing paged"
    return text + ", %d MiB in and %d out" % (line["fetched_bytes"] / _MIB,
                                              line["written_bytes"] / _MIB)


def run(programs, results, settings):
    """All nets by themselves first, then beside PyTorch."""
    nets = [Paging(programs, results, settings, bench) for bench in settings.paging_benches]
    ran = [net for net in nets if net.shares()]
    for net in ran:
        if not net.peers():
            results.add("PyTorch saving memory", SKIPPED, "it is not installed for %s" % sys.executable)
            return
