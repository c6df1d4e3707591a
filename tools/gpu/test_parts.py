"""Parts of run_all that test: the device tests, and the small ones again under compute-sanitizer."""

import os
import re
import shutil
import time

from results import FAILED, OK, SKIPPED

_MOST_NAMES = 3  # of failed tests, in a row
# No vendor library in them, which the tools would instrument for minutes.
_SANITIZED = ("relu", "dropout", "flatten", "pool2d", "softmax_cross_entropy", "accuracy")


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


def run_tests(programs, results, settings):
    """Every test program that is asked for, a row each."""
    for test in programs.tests():
        name = os.path.basename(os.path.dirname(test)) + "/" + os.path.basename(test)
        if settings.tests and name not in settings.tests:
            continue
        if programs.seconds_left() < 5:
            results.add(name, SKIPPED, "out of time")
            continue
        _add(results, name, programs.run([programs.path(test)], settings.test_s,
                                         env=_environment(settings)))


def _sanitizer():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for candidate in (shutil.which("compute-sanitizer"), home + "/bin/compute-sanitizer"):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return None


def run_sanitizer(programs, results, settings):
    """memcheck and racecheck, a row each."""
    sanitizer = _sanitizer()
    for tool in ("memcheck", "racecheck"):
        if sanitizer is None:
            results.add(tool, SKIPPED, "compute-sanitizer is not installed")
            continue
        broken, ran = [], 0
        start = time.monotonic()
        for layer in _SANITIZED:
            if programs.seconds_left() < 5 or time.monotonic() - start > settings.sanitizer_s:
                break
            outcome = programs.run(
                [sanitizer, "--tool", tool, "--error-exitcode", "9", "--launch-timeout", "0",
                 programs.path("tests/layers/%s_test" % layer), "--gtest_filter=*Contract*"],
                settings.test_s, env=_environment(settings))
            ran += 1
            if not outcome.ok:
                found = re.findall(r"^========= ((?:Invalid|Error|Race|ERROR).*)$", outcome.output,
                                   re.MULTILINE)
                broken.append("%s: %s" % (layer, found[0] if found else outcome.why()))
        if broken:
            results.add(tool, FAILED, "; ".join(broken))
        elif ran == 0:
            results.add(tool, SKIPPED, "out of time")
        else:
            results.add(tool, OK, "clean: " + ", ".join(_SANITIZED[:ran]))
