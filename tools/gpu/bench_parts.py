"""Parts of run_all that measure: training steps of Gyre, and of PyTorch on the same device."""

import json
import os
import sys

from results import FAILED, OK, SKIPPED

# Of the best that PyTorch does: AlexNet and VGG.  Of what it does as written: LeNet.
_GOALS = {"lenet": ("eager", 3.0), "alexnet": ("best", 1.0), "vgg11": ("best", 1.0)}


def _json_lines(output):
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def describe_device(programs, results, settings):
    """A row that names the device; False if there is none to go on with."""
    outcome = programs.run(
        [programs.path("tools/bench_net"), "--net=models/lenet/net.textproto", "--rounds=1",
         "--steps=1", "--device=" + settings.device] + settings.threads, 60)
    lines = _json_lines(outcome.output)
    if not outcome.ok or not lines:
        results.add("device", FAILED, outcome.why())
        return False
    driver = programs.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                           "--format=csv,noheader"], 20, own_libraries=False) \
        if settings.device == "cuda" else None
    text = lines[0]["device"]
    if driver is not None and driver.ok:
        text += " (nvidia-smi: %s)" % driver.output.strip()
    results.add("device", OK, text)
    return True


def _bench(programs, results, settings, bench, precision):
    """Milliseconds a step of Gyre, or None."""
    part = "%s %s" % (bench.net, precision)
    if programs.seconds_left() < 10:
        results.add(part, SKIPPED, "out of time")
        return None
    outcome = programs.run(
        [programs.path("tools/bench_net"), "--net=models/%s/net.textproto" % bench.folder,
         "--batch=%d" % bench.batch, "--device=" + settings.device, "--steps=%d" % bench.steps,
         "--rounds=%d" % settings.rounds] + settings.threads
        + (["--tf32"] if precision == "TF32" else []), settings.bench_s)
    lines = _json_lines(outcome.output)
    if not outcome.ok or not lines:
        results.add(part, FAILED, outcome.why())
        return None
    line = lines[0]
    results.add(
        part, OK,
        "%.3f ms a step of %d (%.3f to %.3f), %.0f images/s, %.2f of GEMM's %.3g TFLOP/s; copies: "
        "%.0f GB/s, up %.0f, down %.0f" % (
            line["ms_per_step"], line["batch"], line["ms_min"], line["ms_max"],
            line["images_per_second"], line["gemm_share"], line["gemm_gflops"] / 1e3,
            line["device_copy_gb_per_s"], line["upload_gb_per_s"], line["download_gb_per_s"]),
        **line)
    return line["ms_per_step"]


def _measure_peer(programs, settings, bench, modes):
    """{(precision, mode): JSON line} and the reason of a failure, or None."""
    outcome = programs.run(
        [sys.executable, os.path.join(programs.bundle, "peer_pytorch.py"), "--net=" + bench.net,
         "--batch=%d" % bench.batch, "--device=" + settings.device, "--modes=" + modes,
         "--precision=" + ",".join(settings.precisions), "--steps=%d" % bench.steps,
         "--rounds=%d" % settings.rounds], settings.peer_s, own_libraries=False)
    lines = {(line["precision"], line["mode"]): line for line in _json_lines(outcome.output)}
    return lines, None if outcome.ok else outcome.why()


def _compare(results, settings, bench, precision, ours, peers, why):
    """why: some modes have no line, or None."""
    part = "%s %s / PyTorch" % (bench.net, precision)
    timed = {mode: line["ms_per_step"] for mode, line in peers.items() if "ms_per_step" in line}
    errors = ["%s: %s" % (mode, line["error"]) for mode, line in peers.items() if "error" in line]
    if not timed:
        results.add(part, FAILED, "; ".join(errors))
        return
    ratios = {mode: ms / ours for mode, ms in timed.items()}
    best = min(ratios, key=ratios.get)
    against, goal = _GOALS[bench.net]
    reached = ratios.get(best if against == "best" else against)
    text = ""
    if reached is not None and settings.device == "cuda":
        text = "goal %.1f x %s %s: " % (goal, against, "met" if reached >= goal else "MISSED")
    text += ", ".join("%s %.2f x (%.3f ms)" % (mode, ratios[mode], timed[mode]) for mode in timed)
    wanted = ",".join(settings.peer_modes).split(",")
    missing = [mode for mode in wanted if mode not in timed]
    if missing:
        text += "; without %s (%s)" % (", ".join(missing), "; ".join(errors + ([why] if why else [])))
    results.add(part, OK, text, ratios=ratios, goal=goal, best=best, pytorch=list(peers.values()))


def run(programs, results, settings):
    """Gyre's rows, then a row a net and precision that compares PyTorch's steps with them."""
    ours = {}
    for bench in settings.benches:
        for precision in settings.precisions:
            ours[bench.net, precision] = _bench(programs, results, settings, bench, precision)
    peers, reasons = {}, {}
    for modes in settings.peer_modes:
        for bench in settings.benches:
            if programs.seconds_left() < 20:
                reasons.setdefault(bench.net, "out of time")
                continue
            lines, why = _measure_peer(programs, settings, bench, modes)
            peers.setdefault(bench.net, {}).update(lines)
            if why:
                reasons.setdefault(bench.net, why)
            if why and "PyTorch is missing" in why:
                results.add("PyTorch", SKIPPED, "it is not installed for %s" % sys.executable)
                return
    for bench in settings.benches:
        for precision in settings.precisions:
            found = {mode: line for (of, mode), line in peers.get(bench.net, {}).items()
                     if of == precision}
            part = "%s %s / PyTorch" % (bench.net, precision)
            if not ours[bench.net, precision]:
                results.add(part, SKIPPED, "nothing to compare with")
            elif not found:
                results.add(part, SKIPPED, reasons.get(bench.net, "no result"))
            else:
                _compare(results, settings, bench, precision, ours[bench.net, precision], found,
                         reasons.get(bench.net))
