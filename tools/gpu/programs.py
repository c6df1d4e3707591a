"""Unpacks the bundle's programs and runs them with a time limit, their own libraries and CUDA's."""

import glob
import os
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import time

_LOG_CHARACTERS = 20000  # kept of each command's output


def cuda_library_folders():
    """Where cuBLAS, cuDNN and the rest may be, beside the system's own folders: PyTorch's wheels."""
    folders = []
    for base in dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()]):
        folders += sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib")))
    return folders


class Outcome:
    """A command that has ended."""

    def __init__(self, output, code, seconds, timed_out):
        self.output, self.code, self.seconds, self.timed_out = output, code, seconds, timed_out

    @property
    def ok(self):
        """Ended by itself, with exit code 0."""
        return self.code == 0 and not self.timed_out

    def why(self):
        """The reason of a failure, in a line."""
        if self.timed_out:
            return "ended at its time limit, after %.0f s" % self.seconds
        lines = [line for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if "error:" in line.lower()]
        return "exit code %d: %s" % (self.code, (errors or lines or ["no output"])[-1])


class Programs:
    """The unpacked programs; a context manager that removes them, and all they wrote to `scratch`."""

    def __init__(self, bundle, out, scratch, budget_s):
        self.bundle, self.scratch = bundle, scratch
        self._log = open(os.path.join(out, "log.txt"), "w")
        self._end = time.monotonic() + budget_s

    def __enter__(self):
        archive = os.path.join(self.bundle, "programs.tar.xz")
        try:
            with tarfile.open(archive) as file:
                file.extractall(self.scratch)
        except (tarfile.ReadError, tarfile.CompressionError):  # a Python without lzma
            subprocess.run(["tar", "-C", self.scratch, "-xJf", archive], check=True)
        return self

    def __exit__(self, *unused):
        self._log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def seconds_left(self):
        """Of the whole run's budget."""
        return self._end - time.monotonic()

    def path(self, program):
        """Of tools/train, tests/layers/relu_test and so on."""
        return os.path.join(self.scratch, program)

    def tests(self):
        """All test programs."""
        found = glob.glob(os.path.join(self.scratch, "tests", "*", "*"))
        return sorted(os.path.relpath(path, self.scratch) for path in found)

    def run(self, command, limit_s, env=None, own_libraries=True):
        """Runs a command to its end or time limit; its output goes to the log."""
        limit_s = max(1.0, min(limit_s, self.seconds_left()))
        environment = dict(os.environ, **(env or {}))
        if own_libraries:
            folders = [os.path.join(self.scratch, "lib")] + cuda_library_folders()
            before = os.environ.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = ":".join(folders + ([before] if before else []))
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment, cwd=self.bundle, start_new_session=True)
        timed_out = False
        try:
            output = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:  # also of an interrupt
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        if timed_out:
            output = process.communicate()[0]
        output = output.decode(errors="replace")
        outcome = Outcome(output, process.returncode, time.monotonic() - start, timed_out)
        self._log.write("== %s\n%s\n-- exit code %d after %.1f s%s\n\n" % (
            " ".join(command), output[-_LOG_CHARACTERS:], outcome.code, outcome.seconds,
            ", its time limit" if timed_out else ""))
        self._log.flush()
        return outcome
