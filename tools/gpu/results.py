"""What run_all finds: rows of a table for people, and results.jsonl for programs.

Each row is printed, and written to table.txt and results.jsonl, when it is known, so that a run that
is cut short leaves all rows that it had.
"""

import contextlib
import json
import os
import time

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"
_WIDTH = 180  # of a line; results.jsonl has more of the text
_MOST_TEXT = 2000


class Results:
    """Rows in the order they came."""

    def __init__(self, out, title):
        self._out = out
        self._counts = {OK: 0, FAILED: 0, SKIPPED: 0}
        self._start = time.monotonic()
        for name in ("results.jsonl", "table.txt"):
            with open(os.path.join(out, name), "w"):
                pass
        self._line(title)
        self._line("%-36s %-7s %5s  %s" % ("row", "status", "at s", "result"))

    def add(self, part, status, text, **numbers):
        """text: for the table.  numbers: for results.jsonl only."""
        self._counts[status] += 1
        text = "".join(c for c in text[:_MOST_TEXT] if c.isprintable() or c.isspace())
        at_s = time.monotonic() - self._start
        with open(os.path.join(self._out, "results.jsonl"), "a") as file:
            file.write(json.dumps(dict(part=part, status=status, text=text, at_s=at_s, **numbers),
                                  default=str) + "\n")
        self._line(("%-36s %-7s %5.0f  %s" % (part, status, at_s, " ".join(text.split())))[:_WIDTH])

    @contextlib.contextmanager
    def row(self, part):
        """What fails within, whatever it is, is that row's failure."""
        try:
            yield
        except Exception as error:
            self.add(part, FAILED, "%s: %s" % (type(error).__name__, error))

    def finish(self):
        """The last line: totals and the time taken."""
        self._line("%d ok, %d FAILED, %d skipped after %.0f s" % (
            self._counts[OK], self._counts[FAILED], self._counts[SKIPPED],
            time.monotonic() - self._start))

    def exit_code(self):
        """0: all ran and passed; 1: something failed; 3: nothing failed, but something did not run."""
        if self._counts[FAILED] or not any(self._counts.values()):
            return 1
        return 3 if self._counts[SKIPPED] else 0

    def _line(self, line):
        with open(os.path.join(self._out, "table.txt"), "a") as file:
            file.write(line + "\n")
        print(line, flush=True)
