"""A program that measures a round for each line it is sent, so that two can take turns."""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Bench:
    """It sleeps between rounds."""

    def __init__(self, command, **options):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, cwd=ROOT, **options)
        self._lines = []
        self._wait("ready")

    def round(self):
        print(file=self._process.stdin, flush=True)
        self._wait("done")

    def finish(self, show=True):
        """Its JSON lines."""
        rest, _ = self._process.communicate()
        lines = [json.loads(line) for line in self._lines + rest.splitlines()]
        if self._process.returncode != 0 or not lines:
            sys.exit("error: %s failed" % self._process.args[0])
        for line in lines if show else []:
            print(json.dumps(line), flush=True)
        return lines

    def _wait(self, word):
        for line in self._process.stdout:
            if line.strip() == word:
                return
            self._lines.append(line)
        sys.exit("error: %s ended early" % self._process.args[0])
