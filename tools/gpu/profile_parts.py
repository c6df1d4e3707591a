"""Parts of run_all that say where a step's time goes: kernel by kernel, by a profiler of NVIDIA's where
there is one, and layer by layer, by bench_layers."""

import csv
import os
import re

from bench_parts import net_command, precision_flags, say_failure
from programs import cuda_tool, json_lines
from results import FAILED, OK, SKIPPED

_MOST_LAUNCHES = 1200  # a profiler takes milliseconds for each
_MOST_NAMES = 6  # in a row
_NANOSECONDS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6,
                "s": 1e9, "second": 1e9}


def short_name(kernel):
    """Without what templates and arguments add."""
    kernel = re.sub(r"^void ", "", kernel)
    depth, kept = 0, []
    for c in kernel:
        depth += c in "<("
        if depth == 0:
            kept.append(c)
        depth -= c in ">)"
    functor = re.search(r"gyre::(?:\(anonymous namespace\)|<unnamed>)::(\w+)<", kernel)
    name = "".join(kept).strip()
    return "%s of %s" % (name, functor.group(1)) if functor else name


def kernels_of_ncu(output):
    """[(kernel, nanoseconds)] of ncu --csv, launch by launch."""
    lines = output.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        return []
    found = []
    for row in csv.DictReader(line for line in lines[heads[0]:] if line.startswith('"')):
        try:
            value = float(row["Metric Value"].replace(",", ""))
            found.append((row["Kernel Name"], value * _NANOSECONDS[row["Metric Unit"]]))
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
    return found


def kernels_of_nsys(output):
    """[(kernel, nanoseconds)] of nsys stats' cuda_gpu_kern_sum, kernel by kernel."""
    lines = output.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("Time (%)")]
    if not heads:
        return []
    found = []
    for row in csv.DictReader(lines[heads[0]:]):
        try:
            found.append((row["Name"], float(row["Total Time (ns)"])))
        except (KeyError, TypeError, ValueError):
            pass
    return found


def _profile(programs, settings, bench, precision):
    """Kernels, the name of the profiler, and the last program's outcome; None: no profiler."""
    command = net_command(programs, settings, "bench_net", bench) + [
        "--rounds=1", "--steps=1", "--replay=false", "--autotune=false"] + precision_flags(precision)
    limit_s = 35 * settings.scale
    ncu, nsys = cuda_tool("ncu"), cuda_tool("nsys")
    outcome = None
    if ncu:
        outcome = programs.run(
            [ncu, "--metrics", "gpu__time_duration.sum", "--clock-control", "none",
             "--cache-control", "none", "--launch-count", str(_MOST_LAUNCHES), "--kill", "yes",
             "--csv"] + command, limit_s)
        found = kernels_of_ncu(outcome.output)
        if found:
            return found, "ncu", outcome
    if nsys:
        report = os.path.join(programs.scratch, bench.net)
        outcome = programs.run([nsys, "profile", "--trace=cuda", "--force-overwrite=true",
                                "--output=" + report] + command, limit_s)
        if outcome.ok:
            outcome = programs.run([nsys, "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv",
                                    report + ".nsys-rep"], limit_s)
            return kernels_of_nsys(outcome.output), "nsys", outcome
    return [], "", outcome


def run_profile(programs, results, settings):
    """A row a net: what its kernels take, from the first launch of steps that are not replayed."""
    if settings.device == "cpu":
        return
    for bench, precision in settings.profile_rows:
        part = "%s %s kernels" % (bench.net, precision)
        launches, by, outcome = _profile(programs, settings, bench, precision)
        if not launches:
            if outcome is None:
                results.add(part, SKIPPED, "neither ncu nor nsys is installed; see the layers' rows")
            else:
                say_failure(results, part, outcome)
            continue
        totals, counts = {}, {}
        for kernel, nanoseconds in launches:
            name = short_name(kernel)
            totals[name] = totals.get(name, 0) + nanoseconds
            counts[name] = counts.get(name, 0) + 1
        whole = sum(totals.values())
        names = sorted(totals, key=totals.get, reverse=True)
        results.add(part, OK, "%s: %d launches, %.3f ms: %s" % (
            by, len(launches), whole / 1e6, ", ".join(
                "%.0f %% %s (%d)" % (100 * totals[n] / whole, n, counts[n])
                for n in names[:_MOST_NAMES])),
            kernels=[dict(name=n, count=counts[n], ms=totals[n] / 1e6) for n in names[:200]])


def run_layer_times(programs, results, settings):
    """A row a net: the layers' passes that take longest, as far as there was time."""
    for bench, precision in settings.layer_rows:
        part = "%s %s by layer" % (bench.net, precision)
        outcome = programs.run(
            net_command(programs, settings, "bench_layers", bench)
            + ["--rounds=1", "--precision=" + precision], 25 * settings.scale)
        lines = json_lines(outcome.output, ["layer", "direction"], ["ms", "gemm_share", "copy_share"])
        if not lines:
            say_failure(results, part, outcome)
            continue
        whole = sum(line["ms"] for line in lines)
        longest = sorted(lines, key=lambda line: -line["ms"])[:_MOST_NAMES]
        text = "%d passes, %.3f ms: %s" % (len(lines), whole, ", ".join(
            "%s %s %.3f ms (%.2f of GEMM, %.2f of copies)" % (
                line["layer"], line["direction"], line["ms"], line["gemm_share"], line["copy_share"])
            for line in longest))
        if not outcome.ok:
            text += "; then " + outcome.why()
        failed = not outcome.ok and not outcome.cut
        results.add(part, FAILED if failed else OK, text, rows=lines)
