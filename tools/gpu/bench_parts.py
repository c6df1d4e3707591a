"""Parts of run_all that measure training steps: Gyre's, and PyTorch's beside them."""

import os
import sys

from programs import json_lines
from results import FAILED, OK, SKIPPED

# Failures of a net's step in both ways, replayed and plain, after which its like are left out.
_MOST_ALIKE = 2


def precision_flags(precision):
    return ["--tf32"] if precision == "TF32" else ["--precision=" + precision]


def net_command(programs, settings, program, bench, device=None):
    """A program of tools/bench on a net."""
    return [programs.path("tools/bench/" + program), "--net=models/%s/net.textproto" % bench.folder,
            "--batch=%d" % bench.batch, "--device=" + (device or settings.device)] + settings.threads


def bench_net(programs, settings, bench, flags, limit_s, device=None):
    """bench_net's JSON line or None, and its outcome."""
    outcome = programs.run(
        net_command(programs, settings, "bench_net", bench, device) + ["--steps=%d" % bench.steps]
        + flags, limit_s * settings.scale)
    lines = json_lines(outcome.output, ["refusal"], [
        "ms_per_step", "ms_min", "ms_max", "batch", "images_per_second", "graph_nodes", "planned_bytes"])
    return (lines[0] if outcome.ok and lines else None), outcome


def say_failure(results, part, outcome):
    """Also of a program that ends well and prints nothing that it should."""
    if outcome.ok:
        results.add(part, FAILED, "no result in its output")
    else:
        results.add(part, outcome.status, outcome.why())


class Steps:
    """Rows of training steps.  A failure is met once: where capturing fails steps are enqueued plainly,
    and nets of a kind (images, sequences) are left out once two of it fail in both ways."""

    def __init__(self, programs, results, settings):
        self._programs, self._results, self._settings = programs, results, settings
        self._only_replaying_fails = 0
        self._failed = {}  # kind: reasons
        self.ms = {}  # (net, precision): of the fastest way

    def row(self, bench, precision, plain=False, tuned=True):
        """Tries a step, by measured algorithms as `train` takes; where it fails, a plain one."""
        name = "%s %s" % (bench.net, precision)
        reasons = self._failed.get(bench.kind, [])
        if len(reasons) >= _MOST_ALIKE:
            self._results.add(name, SKIPPED, "%s failed alike: %s" % (bench.kind, reasons[-1]))
            return
        if not plain and self._only_replaying_fails >= _MOST_ALIKE:
            plain = True
        line, outcome = self._try(bench, name, precision, plain, tuned)
        if line is not None or outcome.status == SKIPPED:
            return
        if not plain:
            line, outcome = self._try(bench, name, precision, True, False)
            if line is not None:
                self._only_replaying_fails += 1
                return
        self._failed.setdefault(bench.kind, []).append(outcome.why())

    def _try(self, bench, name, precision, plain, tuned):
        flags = precision_flags(precision) + ["--rounds=%d" % self._settings.rounds]
        flags += ["--autotune=%s" % ("true" if tuned else "false")]
        if plain:
            flags += ["--replay=false"]
        name += (" plain" if plain else "") + ("" if tuned or plain else " recommended")
        line, outcome = bench_net(self._programs, self._settings, bench, flags, bench.limit_s)
        if line is None:
            say_failure(self._results, name, outcome)
            return None, outcome
        before = self.ms.get((bench.net, precision))
        self.ms[bench.net, precision] = min(line["ms_per_step"], before or line["ms_per_step"])
        text = "%.3f ms a step of %d (%.3f to %.3f), %.0f a second" % (
            line["ms_per_step"], line["batch"], line["ms_min"], line["ms_max"],
            line["images_per_second"])
        if before:
            text += ", %.2f x as fast as before" % (before / line["ms_per_step"])
        if "gemm_share" in line:
            text += "; %.2f of GEMM's %.3g TFLOP/s; copies: %.0f GB/s, up %.0f, down %.0f" % (
                line["gemm_share"], line["gemm_gflops"] / 1e3, line["device_copy_gb_per_s"],
                line["upload_gb_per_s"], line["download_gb_per_s"])
        if not plain:
            text += "; %s nodes" % line["graph_nodes"] if line["graph_nodes"] else (
                "; not replayed: " + line["refusal"])
        self._results.add(name, OK, text, **line)
        return line, outcome


def run_steps(programs, results, settings):
    """A row a net and precision."""
    settings.steps = Steps(programs, results, settings)
    for bench, precision, how in settings.step_rows:
        with results.row("%s %s" % (bench.net, precision)):
            settings.steps.row(bench, precision, **how)


def run_pytorch(programs, settings, bench, precisions, modes, rounds, limit_s):
    """peer_pytorch.py's JSON lines and outcome."""
    outcome = programs.run(
        [sys.executable, os.path.join(programs.bundle, "peer_pytorch.py"), "--net=" + bench.net,
         "--batch=%d" % bench.batch, "--device=" + settings.device, "--modes=" + ",".join(modes),
         "--precision=" + ",".join(precisions), "--steps=%d" % bench.steps,
         "--rounds=%d" % rounds], limit_s * settings.scale, own_libraries=False)
    return json_lines(outcome.output, ["precision", "mode"]), outcome


def no_pytorch(outcome):
    return "PyTorch is missing" in outcome.output


def _compare(results, settings, part, ours, peers, missing):
    """ours: milliseconds, or None; missing: modes without a line, and why."""
    timed = {mode: line["ms_per_step"] for mode, line in peers.items() if "ms_per_step" in line}
    errors = ["%s: %s" % (mode, line.get("error")) for mode, line in peers.items()
              if "ms_per_step" not in line]
    if not timed:
        results.add(part, FAILED, "; ".join(errors + missing) or "no result")
        return
    best = min(timed, key=timed.get)
    text = "Gyre has no step" if not ours else "%.2f x the best's speed: " % (timed[best] / ours)
    if ours and settings.device == "cuda":
        text = "goal 1.0 x %s: " % ("met" if timed[best] >= ours else "MISSED") + text
    text += ", ".join("%s %.3f ms" % item for item in timed.items())
    if errors or missing:
        text += "; without " + "; ".join(errors + missing)
    results.add(part, OK, text, gyre_ms=ours, best=best, pytorch=list(peers.values()))


def _run_peers(programs, results, settings, rows, modes_of):
    """A net's rows when its process has ended; of no net after two that failed whole."""
    broken = 0
    for bench, precisions in rows:
        parts = ["%s %s / PyTorch" % (bench.net, precision) for precision in precisions]
        modes = modes_of(bench)
        if broken >= 2:
            for part in parts:
                results.add(part, SKIPPED, "PyTorch failed alike twice")
            continue
        lines, outcome = run_pytorch(programs, settings, bench, precisions, modes, settings.rounds, 40)
        if no_pytorch(outcome):
            results.add("PyTorch", SKIPPED, "it is not installed for %s" % sys.executable)
            return
        broken = 0 if lines or outcome.status == SKIPPED else broken + 1
        for precision, part in zip(precisions, parts):
            found = {line["mode"]: line for line in lines if line["precision"] == precision}
            if not found:
                say_failure(results, part, outcome)
                continue
            missing = [mode for mode in modes if mode not in found]
            why = ["%s: %s" % (", ".join(missing), outcome.why())] if missing else []
            ours = settings.steps.ms.get((bench.net, precision)) if settings.steps else None
            with results.row(part):
                _compare(results, settings, part, ours, found, why)


def run_peers(programs, results, settings):
    """A row a net and precision: PyTorch's steps as CUDA graphs, which are its fastest, beside ours."""
    def modes(bench):
        if settings.device == "cpu":
            return ["eager"]
        return ["graph", "graph:contiguous"] if bench.kind == "images" else ["graph"]

    _run_peers(programs, results, settings, settings.peer_rows, modes)


def run_compiled_peers(programs, results, settings):
    """The modes that compile, which takes minutes; beside the precisions measured in this call."""
    if settings.device == "cpu":
        return
    _run_peers(programs, results, settings, settings.compiled_rows,
               lambda bench: ["compile", "compile-graph"])


def run_operations(programs, results, settings):
    """A row a precision: how many operations and ways of doing them, and what choosing gains."""
    nets = ",".join("models/%s/net.textproto:%d" % (b.folder, b.batch) for b in settings.op_benches)
    limit_s = 40 * settings.scale
    seconds = min(limit_s, programs.seconds_left())
    outcome = programs.run(
        [programs.path("tools/bench/bench_ops"), "--nets=" + nets, "--device=" + settings.device,
         "--precisions=" + ",".join(settings.op_precisions),
         "--time_limit=%d" % max(1, 0.8 * seconds)] + settings.threads, limit_s)
    rows = json_lines(outcome.output, ["operation", "pass", "precision", "way"])
    for precision in settings.op_precisions:
        passes, refused = {}, []
        for row in rows:
            if row["precision"] != precision:
                continue
            if "refused" in row:
                refused.append(row)
            else:
                passes.setdefault((row["operation"], row["pass"]), []).append(row)
        part = "operations " + precision
        if not passes and not refused:
            if outcome.ok or outcome.cut:
                results.add(part, SKIPPED, "out of time" if outcome.ok else outcome.why())
            else:
                results.add(part, FAILED, outcome.why())
            continue
        # The reference is first; then the vendors' ways, their favourite first.
        ways = [found[1:] or found for found in passes.values()]
        wrong = ["%s, %s: %s" % (row["operation"], row["pass"], row["way"])
                 for found in passes.values() for row in found if not row["right"]]
        text = "%d passes in %d ways; favourites %.3f ms, the fastest %.3f ms" % (
            len(passes), sum(map(len, passes.values())), sum(found[0]["ms"] for found in ways),
            sum(min(row["ms"] for row in found) for found in ways))
        if refused:
            text = "%d refused (%s, %s: %s); %s" % (
                len(refused), refused[0]["operation"], refused[0]["way"] or "all ways",
                refused[0]["refused"], text)
        if wrong:
            text = "%d results are wrong (%s); %s" % (len(wrong), wrong[0], text)
        results.add(part, FAILED if wrong or refused else OK, text,
                    rows=[row for row in rows if row["precision"] == precision])
    if not outcome.ok and rows and not any("refused" in row or not row["right"] for row in rows):
        results.add("operations", outcome.status, outcome.why())
