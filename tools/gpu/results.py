"""What run_all found: rows of a table for people, and results.jsonl for programs."""

import json
import os
import time

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"
MOST_LINES = 60
_WIDTH = 180


class Results:
    """Rows in the order they came; each is written down at once, so that an interrupted run keeps them."""

    def __init__(self, out):
        self._out = out
        self._rows = []
        self._start = time.monotonic()
        with open(os.path.join(out, "results.jsonl"), "w"):
            pass

    def add(self, part, status, text, **numbers):
        """text: for the table.  numbers: for results.jsonl only."""
        self._rows.append((part, status, text))
        with open(os.path.join(self._out, "results.jsonl"), "a") as file:
            file.write(json.dumps(dict(part=part, status=status, text=text,
                                       at_s=time.monotonic() - self._start, **numbers)) + "\n")
        print("%-7s  %s: %s" % (status, part, text), flush=True)

    def count(self, status):
        """Rows of that status."""
        return sum(1 for row in self._rows if row[1] == status)

    def table(self):
        """At most MOST_LINES lines; failures are never left out in favour of what went well."""
        rows = list(self._rows)
        left_out = 0
        while len(rows) + 5 > MOST_LINES:
            fine = [i for i, row in enumerate(rows) if row[1] == OK]
            del rows[fine[-1] if fine else -1]
            left_out += 1
        width = max([len(row[0]) for row in rows] + [4])
        lines = ["%-*s  %-7s  %s" % (width, "part", "status", "result"), "-" * (width + 30)]
        for part, status, text in rows:
            lines.append(("%-*s  %-7s  %s" % (width, part, status, " ".join(text.split())))[:_WIDTH])
        if left_out:
            lines.append("(%d rows left out; see results.jsonl)" % left_out)
        lines.append("-" * (width + 30))
        lines.append("%d ok, %d FAILED, %d skipped" % tuple(map(self.count, (OK, FAILED, SKIPPED))))
        return "\n".join(lines)

    def exit_code(self):
        """0: all ran and passed; 1: something failed; 3: nothing failed, but something did not run."""
        if self.count(FAILED) or not self._rows:
            return 1
        return 3 if self.count(SKIPPED) else 0
