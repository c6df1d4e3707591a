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
        with open(os.path.join(out, "log.txt"), "wb"):
            pass
        self._log = open(os.path.join(out, "log.txt"), "ab+", buffering=0)
        self._end = self._part_end = time.monotonic() + budget_s

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

    def begin_part(self, budget_s):
        """What is run from now on ends within so many seconds."""
        self._part_end = min(self._end, time.monotonic() + budget_s)

    def seconds_left(self):
        """Of this part's budget, and of the whole run's."""
        return self._part_end - time.monotonic()

    def path(self, program):
        """Of tools/train, tests/layers/relu_test and so on."""
        return os.path.join(self.scratch, program)

    def tests(self):
        """All test programs."""
        found = glob.glob(os.path.join(self.scratch, "tests", "*", "*"))
        return sorted(os.path.relpath(path, self.scratch) for path in found)

    def run(self, command, limit_s, env=None, own_libraries=True):
        """Runs a command to its end or time limit; its output goes to the log as it comes."""
        limit_s = max(1.0, min(limit_s, self.seconds_left()))
        environment = dict(os.environ, **(env or {}))
        if own_libraries:
            folders = [os.path.join(self.scratch, "lib")] + cuda_library_folders()
            before = os.environ.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = ":".join(folders + ([before] if before else []))
        self._say("== " + " ".join(command))
        begin = self._log.seek(0, os.SEEK_END)
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                command, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, cwd=self.bundle, start_new_session=True)
        except OSError as error:
            self._say("-- %s" % error)
            return Outcome("error: %s" % error, 127, 0.0, False)
        timed_out = False
        try:
            process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:  # also of an interrupt
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._log.seek(begin)
        output = self._log.read().decode(errors="replace")
        outcome = Outcome(output, process.returncode, time.monotonic() - start, timed_out)
        self._say("-- exit code %d after %.1f s%s\n" % (
            outcome.code, outcome.seconds, ", its time limit" if timed_out else ""))
        return outcome

    def _say(self, line):
        self._log.seek(0, os.SEEK_END)
        self._log.write((line + "\n").encode())
