"""Parts of run_all that test: the device tests, and the small ones again under compute-sanitizer."""

import os
import re
import shutil

from results import FAILED, OK, SKIPPED

_MOST_NAMES = 3  # of failed tests, in a row
# Short and telling first, by name or beginning of a name; what is not here comes between.
_FIRST = ("runtime/", "training/update_gate", "training/optimizer", "layers/relu", "layers/reshape",
          "layers/accuracy", "layers/dropout")
_LAST = ("training/training_step", "layers/conv2d", "primitives/")
# The rest of it is the CPU's.
_FILTERS = {"training/training_step_test": "*AnyDevice*"}
# Kernels of ours alone: vendors' libraries would be instrumented for minutes.
_SANITIZED = ("runtime/any_parallel", "layers/relu", "layers/dropout", "layers/pool2d",
              "layers/softmax_cross_entropy", "training/update_gate", "training/optimizer")


def _failed_names(output):
    names = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.MULTILINE)
    return list(dict.fromkeys(names))


def _add(results, part, outcome):
    passed = re.search(r"^\[  PASSED  \] (\d+) test", outcome.output, re.MULTILINE)
    names = _failed_names(outcome.output)
    numbers = dict(seconds=outcome.seconds, failed=names)
    if outcome.ok and passed and int(passed.group(1)):
        results.add(part, OK, "%s tests, %.1f s" % (passed.group(1), outcome.seconds), **numbers)
    elif names:
        more = len(names) - _MOST_NAMES
        text = ", ".join(names[:_MOST_NAMES]) + (" and %d more" % more if more > 0 else "")
        results.add(part, FAILED, text, **numbers)
    else:
        results.add(part, FAILED, outcome.why(), **numbers)


def _environment(settings):
    return {"GYRE_TEST_DEVICE": settings.device, "OMP_WAIT_POLICY": "passive"}


def _order(name):
    for order, names in ((0, _FIRST), (2, _LAST)):
        for i, beginning in enumerate(names):
            if name.startswith(beginning):
                return order, i, name
    return 1, 0, name


def run_tests(programs, results, settings):
    """Every test program that is asked for, a row each."""
    for name in sorted((test[len("tests/"):] for test in programs.tests()), key=_order):
        if settings.tests and name not in settings.tests:
            continue
        if programs.seconds_left() < 2:
            results.add(name, SKIPPED, "out of time")
            continue
        command = [programs.path("tests/" + name)]
        if name in _FILTERS:
            command.append("--gtest_filter=" + _FILTERS[name])
        _add(results, name, programs.run(command, programs.seconds_left() / 2 + 1,
                                         env=_environment(settings)))


def _sanitizer():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for candidate in (shutil.which("compute-sanitizer"), home + "/bin/compute-sanitizer"):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return None


def run_sanitizer(programs, results, settings):
    """memcheck and racecheck in turn, and a row each."""
    if settings.device == "cpu":
        return
    sanitizer = _sanitizer()
    tools = ("memcheck", "racecheck")
    broken, clean = {tool: [] for tool in tools}, {tool: [] for tool in tools}
    for name in _SANITIZED if sanitizer else ():
        for tool in tools:
            if programs.seconds_left() < 2:
                continue
            outcome = programs.run(
                [sanitizer, "--tool", tool, "--error-exitcode", "9", "--launch-timeout", "0",
                 programs.path("tests/%s_test" % name)],
                programs.seconds_left() / 2 + 1, env=_environment(settings))
            if outcome.ok:
                clean[tool].append(name)
                continue
            found = re.findall(r"^========= ((?:Invalid|Error|Race|ERROR).*)$", outcome.output,
                               re.MULTILINE)
            broken[tool].append("%s: %s" % (name, found[0] if found else outcome.why()))
    for tool in tools:
        if sanitizer is None:
            results.add(tool, SKIPPED, "compute-sanitizer is not installed")
        elif broken[tool]:
            results.add(tool, FAILED, "; ".join(broken[tool]))
        elif clean[tool]:
            results.add(tool, OK, "clean: " + ", ".join(clean[tool]))
        else:
            results.add(tool, SKIPPED, "out of time")
