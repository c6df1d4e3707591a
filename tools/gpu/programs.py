"""Unpacks the bundle's programs and runs them, each within a limit of its own, its part's and the call's."""

import glob
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import threading
import time

from results import FAILED, OK, SKIPPED

_POLL_S = 0.05
_LEAST_S = 0.5  # with less left nothing is started
_MOST_BYTES = 4 << 20  # of output
_REAP_S = 2  # a killed program that a driver holds is left behind
_GRACE_S = 3  # beyond the call's budget, until run_all ends itself


def cuda_library_folders():
    """Where cuBLAS, cuDNN and the rest may be, beside the system's own folders: PyTorch's wheels."""
    folders = []
    for base in dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()]):
        folders += sorted(glob.glob(os.path.join(base, "nvidia", "*", "lib")))
    return folders


def cuda_tool(name):
    """The path of a program of NVIDIA's, or None."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(name) or shutil.which(name, path=home + "/bin")


def json_lines(output, texts=(), numbers=()):
    """The objects among its lines that have such members."""
    found = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                read = json.loads(line)
            except ValueError:
                continue
            if (all(isinstance(read.get(name), str) for name in texts)
                    and all(isinstance(read.get(name), (int, float)) for name in numbers)):
                found.append(read)
    return found


class Outcome:
    """A command that has ended, was ended, or was not started."""

    def __init__(self, output="", code=None, seconds=0.0, ended="", status=FAILED):
        # ended: why it was ended or not started; "" if it ended by itself.
        self.output, self.code, self.seconds = output, code, seconds
        self._ended, self._status = ended, status

    @property
    def ok(self):
        """Ended by itself, with exit code 0."""
        return self.code == 0 and not self._ended

    @property
    def cut(self):
        """Ended by run_all."""
        return bool(self._ended)

    @property
    def status(self):
        """Of its row.  Skipped: there was no time for it."""
        return OK if self.ok else self._status

    def why(self):
        """The reason of a failure, in a line."""
        if self._ended:
            return self._ended
        lines = [line for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
        return "exit code %s: %s" % (self.code, (errors or lines or ["no output"])[-1].strip())


class Programs:
    """The unpacked programs; a context manager that removes them, and all they wrote to `scratch`."""

    def __init__(self, bundle, out, scratch, end):
        """end: time.monotonic() at which all is over."""
        self.bundle, self.scratch = bundle, scratch
        self._log = open(os.path.join(out, "log.txt"), "wb", buffering=0)
        self._read = open(os.path.join(out, "log.txt"), "rb", buffering=0)
        self._end = self._part_end = end
        self._process = None
        # For what no time limit of a program covers.
        self._guard = threading.Timer(max(0, end - time.monotonic()) + _GRACE_S, self._give_up)
        self._guard.daemon = True

    def __enter__(self):
        self._guard.start()
        return self

    def __exit__(self, *unused):
        self._guard.cancel()
        self._log.close()
        self._read.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def unpack(self):
        """Raises what is wrong with the archive."""
        archive = os.path.join(self.bundle, "programs.tar.xz")
        try:
            with tarfile.open(archive) as file:
                file.extractall(self.scratch)
        except tarfile.CompressionError:  # a Python without lzma
            subprocess.run(["tar", "-C", self.scratch, "-xJf", archive], check=True, timeout=60)

    def begin_part(self, end):
        """What is run from now on ends then, or with the call."""
        self._part_end = min(self._end, end)

    def seconds_left(self):
        """Of this part."""
        return self._part_end - time.monotonic()

    def path(self, program):
        """Of tools/train and so on."""
        return os.path.join(self.scratch, program)

    def run(self, command, limit_s, silence_s=None, env=None, own_libraries=True, on_line=None):
        """Runs a command to its end, or ends it: after limit_s, after silence_s without output, or
        where the part's time is up.  Its output goes to the log as it comes, and to on_line."""
        left_s = self.seconds_left()
        if left_s < _LEAST_S:
            return Outcome(ended="out of time", status=SKIPPED)
        environment = dict(os.environ, **(env or {}))
        if own_libraries:
            folders = [os.path.join(self.scratch, "lib")] + cuda_library_folders()
            before = os.environ.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = ":".join(folders + ([before] if before else []))
        self._say("== " + " ".join(command)[:2000])
        reader = _Reader(self._read, self._log.tell(), on_line)
        start = time.monotonic()
        try:
            self._process = subprocess.Popen(
                command, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, cwd=self.bundle, start_new_session=True)
        except OSError as error:
            self._say("-- %s" % error)
            return Outcome("error: %s" % error, 127)
        ended, status = "", FAILED
        try:
            while not ended and self._process.poll() is None:
                time.sleep(_POLL_S)
                reader.read()
                now = time.monotonic()
                if now - start >= limit_s:
                    ended = "ended at its time limit, after %.0f s" % (now - start)
                elif silence_s and now - max(reader.grown, start) >= silence_s:
                    ended = "ended after %.0f s without output" % silence_s
                elif reader.bytes > _MOST_BYTES:
                    ended = "ended after %d MiB of output" % (reader.bytes >> 20)
                elif now >= self._part_end:
                    ended, status = "ended after %.0f s: out of time" % (now - start), SKIPPED
        finally:  # also of an interrupt
            self._kill()
        reader.read(last=True)
        outcome = Outcome(reader.text(), self._process.returncode, time.monotonic() - start, ended,
                          status)
        self._say("\n-- %s, %.1f s\n" % (ended or "exit code %s" % outcome.code, outcome.seconds))
        return outcome

    def _kill(self):
        """The whole group, also what a program that has ended left behind."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            self._process.wait(timeout=_REAP_S)
        except subprocess.TimeoutExpired:
            self._say("-- it does not end")

    def _give_up(self):
        print("run_all: the call's budget is over", flush=True)
        if self._process is not None and self._process.poll() is None:
            self._kill()
        os._exit(1)

    def _say(self, line):
        self._log.write((line + "\n").encode())


class _Reader:
    """What a program has added to the log."""

    def __init__(self, file, begin, on_line):
        self._file, self._at, self._on_line = file, begin, on_line
        self._parts, self._line = [], b""
        self.grown, self.bytes = 0.0, 0

    def read(self, last=False):
        """last: what is left is a line, too."""
        self._file.seek(self._at)
        new = self._file.read()
        if new:
            self._at += len(new)
            self.bytes += len(new)
            self._parts.append(new)
            self.grown = time.monotonic()
        if self._on_line is None:
            return
        lines = (self._line + new).split(b"\n")
        self._line = lines.pop()
        if last and self._line:
            lines.append(self._line)
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def text(self):
        return b"".join(self._parts).decode(errors="replace")
