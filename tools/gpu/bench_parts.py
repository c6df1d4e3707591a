"""Parts of run_all that measure: the device, operations, training steps, and PyTorch's."""

import json
import os
import re
import sys

from results import FAILED, OK, SKIPPED

# Of the best that PyTorch does: AlexNet and VGG.  Of what it does as written: LeNet.
_GOALS = {"lenet": ("eager", 3.0), "alexnet": ("best", 1.0), "vgg11": ("best", 1.0)}


def json_lines(output):
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def _bench_net(programs, settings, bench, flags, env=None):
    """Runs bench_net."""
    return programs.run(
        [programs.path("tools/bench_net"), "--net=models/%s/net.textproto" % bench.folder,
         "--batch=%d" % bench.batch, "--device=" + settings.device] + settings.threads + flags,
        programs.seconds_left(), env=env)


def describe_device(programs, results, settings):
    """Rows that name the device and the libraries that were opened."""
    text = ""
    if settings.device == "cuda":
        fields = "name,driver_version,memory.total,memory.free,clocks.max.sm"
        driver = programs.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"], 5,
                              own_libraries=False)
        text = " (nvidia-smi: %s: %s)" % (fields, driver.output.strip() if driver.ok else driver.why())
    outcome = _bench_net(programs, settings, settings.benches[0], ["--rounds=1", "--steps=1"],
                         env={"LD_DEBUG": "libs"})
    lines = json_lines(outcome.output)
    if not outcome.ok or not lines:
        results.add("device", FAILED, outcome.why() + text)
    else:
        results.add("device", OK, lines[0]["device"] + text, **lines[0])
    opened = dict.fromkeys(re.findall(r"calling init: (\S+)", outcome.output))
    found = [path for path in opened if not path.startswith(programs.scratch)
             and re.search(r"cublas|cudnn|libcuda|libnv|nccl", path)]
    results.add("libraries", OK, ", ".join(found) if found else "none of CUDA's", paths=found)


def run_operations(programs, results, settings):
    """A row a precision: how many operations and ways of doing them, and what choosing gains."""
    nets = ",".join("models/%s/net.textproto:%d" % (b.folder, b.batch) for b in settings.benches)
    seconds = programs.seconds_left()
    outcome = programs.run(
        [programs.path("tools/bench_ops"), "--nets=" + nets, "--device=" + settings.device,
         "--precisions=" + ",".join(settings.op_precisions), "--time_limit=%d" % (0.8 * seconds)]
        + settings.threads, seconds)
    rows = [line for line in json_lines(outcome.output) if line["benchmark"] == "operation"]
    for precision in settings.op_precisions:
        passes = {}
        for row in rows:
            if row["precision"] == precision:
                passes.setdefault((row["operation"], row["pass"]), []).append(row)
        part = "operations " + precision
        if not passes:
            results.add(part, SKIPPED if outcome.ok or outcome.timed_out else FAILED, outcome.why())
            continue
        # The reference is first; then the vendors' ways, their favourite first.
        ways = [found[1:] or found for found in passes.values()]
        first = sum(found[0]["ms"] for found in ways)
        best = sum(min(row["ms"] for row in found) for found in ways)
        wrong = ["%s, %s: %s" % (row["operation"], row["pass"], row["way"])
                 for found in passes.values() for row in found if not row["right"]]
        text = "%d passes in %d ways; favourites %.3f ms, the fastest %.3f ms" % (
            len(passes), sum(map(len, passes.values())), first, best)
        if wrong:
            text = "%d results are wrong (%s); %s" % (len(wrong), wrong[0], text)
        results.add(part, FAILED if wrong else OK, text,
                    rows=[row for found in passes.values() for row in found])
    if not outcome.ok and rows:
        results.add("operations", FAILED if not outcome.timed_out else SKIPPED, outcome.why())


def run_steps(programs, results, settings):
    """A row a net and precision, and what replaying them as graphs is about."""
    settings.ours, lines = {}, {}
    for precision in settings.precisions:
        for bench in settings.benches:
            line = _step(programs, results, settings, bench, precision)
            settings.ours[bench.net, precision] = line and line["ms_per_step"]
            lines[bench.net, precision] = line
    nodes = {"%s %s" % key: line["graph_nodes"] for key, line in lines.items() if line}
    text = ", ".join("%s %s" % (key, count or "none") for key, count in nodes.items())
    results.add("graph nodes", OK if nodes else SKIPPED, text or "no step ran", nodes=nodes)
    for bench in settings.benches:
        _plain_step(programs, results, settings, bench, lines[bench.net, settings.precisions[0]])


def _plain_step(programs, results, settings, bench, replayed):
    """A row that says what a step takes that is enqueued anew each time."""
    precision = settings.precisions[0]
    part = "%s %s, no graph" % (bench.net, precision)
    if programs.seconds_left() < 3 or not replayed:
        results.add(part, SKIPPED, "nothing to compare with" if not replayed else "out of time")
        return
    outcome = _bench_net(programs, settings, bench, [
        "--replay=false", "--steps=%d" % bench.steps, "--rounds=%d" % settings.rounds]
        + _precision_flags(precision))
    lines = json_lines(outcome.output)
    if not outcome.ok or not lines:
        results.add(part, FAILED, outcome.why())
        return
    results.add(part, OK, "%.3f ms a step, %.2f x a replayed one" % (
        lines[0]["ms_per_step"], lines[0]["ms_per_step"] / replayed["ms_per_step"]), **lines[0])


def _precision_flags(precision):
    return {"TF32": ["--tf32"], "F64": ["--precision=F64"]}.get(precision, [])


def _step(programs, results, settings, bench, precision):
    """bench_net's line, or None."""
    part = "%s %s" % (bench.net, precision)
    if programs.seconds_left() < 3:
        results.add(part, SKIPPED, "out of time")
        return None
    outcome = _bench_net(
        programs, settings, bench, ["--steps=%d" % bench.steps, "--rounds=%d" % settings.rounds]
        + _precision_flags(precision))
    lines = json_lines(outcome.output)
    if not outcome.ok or not lines:
        results.add(part, FAILED, outcome.why())
        return None
    line = lines[0]
    results.add(
        part, OK,
        "%.3f ms a step of %d (%.3f to %.3f), %.0f images/s, %.2f of GEMM's %.3g TFLOP/s; copies: "
        "%.0f GB/s, up %.0f, down %.0f%s" % (
            line["ms_per_step"], line["batch"], line["ms_min"], line["ms_max"],
            line["images_per_second"], line["gemm_share"], line["gemm_gflops"] / 1e3,
            line["device_copy_gb_per_s"], line["upload_gb_per_s"], line["download_gb_per_s"],
            "; not replayed: " + line["refusal"] if line["refusal"] else ""),
        **line)
    return line


def _measure_peer(programs, settings, bench, modes):
    """{(precision, mode): JSON line} and the reason of a failure, or None."""
    precisions = [precision for precision in settings.precisions if precision != "F64"]
    outcome = programs.run(
        [sys.executable, os.path.join(programs.bundle, "peer_pytorch.py"), "--net=" + bench.net,
         "--batch=%d" % bench.batch, "--device=" + settings.device, "--modes=" + modes,
         "--precision=" + ",".join(precisions), "--steps=%d" % bench.steps,
         "--rounds=%d" % settings.rounds], programs.seconds_left(), own_libraries=False)
    lines = {(line["precision"], line["mode"]): line for line in json_lines(outcome.output)}
    return lines, None if outcome.ok else outcome.why()


def _compare(results, settings, bench, precision, ours, peers, modes, why):
    """why: some modes have no line, or None."""
    part = "%s %s / PyTorch" % (bench.net, precision)
    timed = {mode: line["ms_per_step"] for mode, line in peers.items() if "ms_per_step" in line}
    errors = ["%s: %s" % (mode, line["error"]) for mode, line in peers.items() if "error" in line]
    if not timed:
        results.add(part, FAILED, "; ".join(errors))
        return
    ratios = {mode: ms / ours for mode, ms in timed.items()}
    best = min(ratios, key=ratios.get)
    against, goal = _GOALS.get(bench.net, ("best", 1.0))
    reached = ratios.get(best if against == "best" else against)
    text = ""
    if reached is not None and settings.device == "cuda":
        text = "goal %.1f x %s %s: " % (goal, against, "met" if reached >= goal else "MISSED")
    text += ", ".join("%s %.2f x (%.3f ms)" % (mode, ratios[mode], timed[mode]) for mode in timed)
    missing = [mode for mode in modes.split(",") if mode not in timed]
    if missing:
        text += "; without %s (%s)" % (", ".join(missing), "; ".join(errors + ([why] if why else [])))
    results.add(part, OK, text, ratios=ratios, goal=goal, best=best, pytorch=list(peers.values()))


def run_peers(programs, results, settings):
    """A row a net and precision that compares PyTorch's steps with ours."""
    _run_peers(programs, results, settings, settings.peer_modes)


def run_compiled_peers(programs, results, settings):
    """The same for the modes that compile, which takes minutes."""
    if settings.compile_modes:
        _run_peers(programs, results, settings, settings.compile_modes)


def _run_peers(programs, results, settings, modes):
    for bench in settings.benches:
        lines, why = {}, "out of time"
        if programs.seconds_left() > 5:
            lines, why = _measure_peer(programs, settings, bench, modes)
        if why and "PyTorch is missing" in why:
            results.add("PyTorch", SKIPPED, "it is not installed for %s" % sys.executable)
            return
        for precision in settings.precisions:
            found = {mode: line for (of, mode), line in lines.items() if of == precision}
            part = "%s %s / PyTorch" % (bench.net, precision)
            if precision == "F64":
                continue
            if not settings.ours.get((bench.net, precision)):
                results.add(part, SKIPPED, "nothing to compare with")
            elif not found:
                results.add(part, SKIPPED, why or "no result")
            else:
                _compare(results, settings, bench, precision,
                         settings.ours[bench.net, precision], found, modes, why)
