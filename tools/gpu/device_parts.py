"""Parts of run_all that run device_tests: what the device is, a smoke test, all layers, and kernels
under compute-sanitizer."""

import fnmatch
import os
import re

from programs import cuda_tool
from results import FAILED, OK, SKIPPED

_LOST = 3  # device_tests' exit code: the GPU's context is gone
_MOST_STARTS = 4  # of what is left, after a test that ended the program
_SILENCE_S = 15  # of one test, or of one case of a layer's contract
_MOST_NAMES = 3  # of failed tests, in a row

# Row: tests.  The first that fits; the order is GoogleTest's.
_SMOKE = [
    ("copies, events, capture", "AnyStreamTest.*"),
    ("loop skeletons", "AnyParallelTest.*"),
    ("step kernels", "Smoke/StepKernelsTest.*"),
    ("step kernels", "StepScalars.*"),
] + [("layers %s %s" % (precision, by), "Smoke/LayerKernels.*/%s%s_*" % (precision, by))
     for precision in ("F32", "BF16", "F16", "F64") for by in ("Best", "Reference")
] + [("large layers", "Large/LayerKernels.*")]
# Of TrainingStep all others are the CPU's.
_NOT_OF_A_DEVICE = re.compile(r"TrainingStep\.(?!AnyDevice)")
# Kernels of ours alone: vendors' libraries would be instrumented for minutes.
_SANITIZED = ["Smoke/LayerKernels.*/F32Reference_*", "AnyParallelTest.Scatters*",
              "Smoke/StepKernelsTest.*/F32"]
_CPU_SMOKE = ["AnyStreamTest.BytesComeBack*", "Smoke/LayerKernels.*/F32Best_relu_*",
              "Smoke/LayerKernels.*/BF16Best_relu_*"]
_CPU_LAYERS = ["Relu.*"]


def _fits(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _environment(settings):
    return {"GYRE_TEST_DEVICE": settings.device, "OMP_WAIT_POLICY": "passive"}


def describe_device(programs, results, settings):
    """Rows that name the device, its memory and the libraries that were opened; nothing is tuned."""
    if settings.device == "cuda":
        fields = "name,driver_version,memory.total,memory.free,clocks.max.sm"
        driver = programs.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"], 5 * settings.scale,
                              own_libraries=False)
        answered = driver.ok and driver.output.count(",") >= fields.count(",")
        results.add("nvidia-smi", OK if answered else FAILED if driver.ok else driver.status,
                    "%s: %s" % (fields, driver.output.strip()) if answered else driver.why())
    outcome = programs.run([programs.path("tests/device_tests"), "--describe"], 20 * settings.scale,
                           env=_environment(settings))
    found = {}
    for line in outcome.output.splitlines():
        key, colon, value = line.partition(": ")
        if colon and key in ("device", "memory", "library", "copies", "error"):
            found.setdefault(key, []).append(value)
    for key in ("device", "memory", "copies"):
        if key in found:
            ok = key != "copies" or found[key] == ["ok"]
            results.add(key, OK if ok else FAILED, found[key][0])
    libraries = [os.path.basename(path) for path in found.get("library", [])]
    if "device" in found:
        results.add("libraries", OK, ", ".join(libraries) or "none of CUDA's",
                    paths=found.get("library", []))
    if not outcome.ok or "device" not in found:
        results.add("opening the device", outcome.status if not outcome.ok else FAILED,
                    outcome.why() if not outcome.ok else "it does not say what it is")


class Group:
    """The tests of a row."""

    def __init__(self, names):
        self.left, self.count = set(names), len(names)
        self.failed, self.seconds, self.details = [], 0.0, []


class DeviceTests:
    """Tests in one process, and, when one has ended it, those that are left in another."""

    def __init__(self, programs, results, settings, label):
        self._programs, self._results, self._settings = programs, results, settings
        self._label = label
        self._groups, self._of = {}, {}  # row: Group; test: row
        self._running, self._case, self._said = None, "", []
        self.lost = ""  # the GPU's context: what the program says of it

    def run(self, rows, limit_s):
        """rows: {row: tests}."""
        for row, names in rows.items():
            self._groups[row] = Group(names)
            self._of.update((name, row) for name in names)
        starts, outcome, pending = 0, None, self._pending()
        while pending and starts < _MOST_STARTS:
            starts += 1
            self.lost = ""
            outcome = self._programs.run(
                [self._programs.path("tests/device_tests"), "--gtest_filter=" + ":".join(pending)],
                limit_s, silence_s=_SILENCE_S * self._settings.scale, env=_environment(self._settings),
                on_line=self._line)
            before, ended_in = pending, self._running
            if ended_in and outcome.status != SKIPPED:
                self._ended(ended_in, False, 0, self._case + outcome.why())
            self._running = None
            if self.lost:
                self._results.add(self._label + ": device lost", FAILED, self.lost)
            pending = self._pending()
            if outcome.status == SKIPPED or pending == before:
                break
        self._finish(outcome)

    def _pending(self):
        return [name for name, row in self._of.items() if name in self._groups[row].left]

    def _line(self, line):
        """GoogleTest's, as it comes."""
        began = re.match(r"^\[ RUN      \] (\S+)$", line)
        ended = re.match(r"^\[(       OK |  FAILED  |  SKIPPED )\] (\S+?),? .*\((\d+) ms\)$", line)
        if began:
            self._running, self._case, self._said = began.group(1), "", []
        elif ended and ended.group(2) == self._running:
            self._running = None
            self._ended(ended.group(2), ended.group(1) != "  FAILED  ", int(ended.group(3)) / 1e3,
                        " ".join(self._said))
        elif line.startswith("device lost: "):
            self.lost = line[len("device lost: "):]
        elif line.startswith("case: "):
            self._case = "in %s: " % line[len("case: "):]
        elif self._running and len(self._said) < 12:
            self._said.append(line.strip())

    def _ended(self, name, fine, seconds, said):
        group = self._groups.get(self._of.get(name))
        if group is None or name not in group.left:
            return
        group.left.discard(name)
        group.seconds += seconds
        if not fine:
            group.failed.append(name)
            group.details.append(said[:1000])
        if not group.left:
            self._add(self._of[name], group, "")

    def _add(self, row, group, why):
        """why: it is not whole."""
        text = "%d tests, %.1f s" % (group.count - len(group.left), group.seconds)
        if group.failed:
            more = len(group.failed) - _MOST_NAMES
            text = "%d of %d: %s%s; %s" % (
                len(group.failed), group.count, ", ".join(group.failed[:_MOST_NAMES]),
                " and %d more" % more if more > 0 else "", group.details[0])
        if group.left:
            text += "; %d did not run: %s" % (len(group.left), why)
        status = FAILED if group.failed else SKIPPED if group.left else OK
        self._results.add("%s: %s" % (self._label, row), status, text, seconds=group.seconds,
                          failed=group.failed, details=group.details, left=sorted(group.left))

    def _finish(self, outcome):
        unfinished = [row for row, group in self._groups.items() if group.left]
        if not unfinished:
            return
        why = "nothing to run" if outcome is None else outcome.why()
        if outcome is not None and outcome.status != SKIPPED:  # it broke before the first test
            self._results.add(self._label, FAILED, why)
        for row in unfinished:
            self._add(row, self._groups[row], why)


def _run(programs, results, settings, label, row_of, limit_s):
    """The tests that row_of(name) gives a row."""
    outcome = programs.run([programs.path("tests/device_tests"), "--gtest_list_tests"], 10 * settings.scale,
                           env=_environment(settings))
    names, suite = [], ""
    for line in outcome.output.splitlines() if outcome.ok else ():
        line = line.partition("#")[0].rstrip()
        if re.match(r"^[\w/]+\.$", line):
            suite = line
        elif suite and re.match(r"^  [\w/]+$", line):
            names.append(suite + line.strip())
    if not names:
        results.add(label, FAILED if outcome.ok else outcome.status,
                    outcome.why() if not outcome.ok else "it has no tests")
        return
    rows = {}
    for name in names:
        rows.setdefault(row_of(name), []).append(name)
    rows.pop(None, None)
    DeviceTests(programs, results, settings, label).run(rows, limit_s * settings.scale)


def _smoke_row(name):
    return next((row for row, pattern in _SMOKE if fnmatch.fnmatchcase(name, pattern)), None)


def run_smoke(programs, results, settings):
    """Each kernel, call of a library, copy and capture once, in one process."""
    def row_of(name):
        return _smoke_row(name) if settings.device != "cpu" or _fits(name, _CPU_SMOKE) else None

    _run(programs, results, settings, "smoke", row_of, 40)


def run_layers(programs, results, settings):
    """All other tests of a device, a row a suite: layers against the CPU first."""
    def row_of(name):
        if _smoke_row(name) or _NOT_OF_A_DEVICE.match(name):
            return None
        fits = settings.device != "cpu" or _fits(name, _CPU_LAYERS)
        return name.partition(".")[0].rpartition("/")[2] if fits else None

    _run(programs, results, settings, "layers", row_of, 240)


def run_sanitizer(programs, results, settings):
    """memcheck and racecheck, a row each."""
    if settings.device == "cpu":
        return
    sanitizer = cuda_tool("compute-sanitizer")
    for tool in ("memcheck", "racecheck"):
        if sanitizer is None:
            results.add(tool, SKIPPED, "compute-sanitizer is not installed")
            continue
        outcome = programs.run(
            [sanitizer, "--tool", tool, "--error-exitcode", "9", "--launch-timeout", "0",
             programs.path("tests/device_tests"), "--gtest_filter=" + ":".join(_SANITIZED)],
            30 * settings.scale, env=_environment(settings))
        errors = re.findall(r"^========= ((?:Invalid|Error|Race|ERROR).*)$", outcome.output,
                            re.MULTILINE)
        errors = [error for error in errors if not error.startswith("ERROR SUMMARY: 0")]
        passed = len(re.findall(r"^\[       OK \]", outcome.output, re.MULTILINE))
        text = "%d tests" % passed
        if errors:
            results.add(tool, FAILED, "%d errors in %s: %s" % (len(errors), text, errors[0]),
                        errors=errors[:50])
        elif outcome.ok and passed:
            results.add(tool, OK, "clean: " + text)
        else:
            status = SKIPPED if outcome.cut and passed else FAILED
            results.add(tool, status, "clean in %s; then %s" % (text, outcome.why()))
