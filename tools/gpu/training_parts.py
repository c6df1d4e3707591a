"""Parts of run_all that train LeNet on Fashion-MNIST: accuracy, the same bits, resuming, ranks."""

import json
import os
import re

from bench_parts import say_failure
from results import FAILED, OK

_FIRST_STEPS = 10  # the ranks' roundings grow from step to step
_RANKS_BOUND = 1e-5
# Between devices the sums have another order in every layer.
_DEVICES_BOUND = 1e-4
_GOAL = 0.88  # on the bundle's 12,000 training images
_LIMIT_S = 25


class Training:
    """Runs of train and what they left."""

    def __init__(self, programs, results, settings):
        self._programs, self._results, self._settings = programs, results, settings
        self._trainer = os.path.join("models", "lenet", "trainer.textproto")

    def parts(self):
        """All parts, in order."""
        first = self._train("lenet", self._settings.training_flags)
        if first is None:
            return
        self._accuracy()
        self._same_bits("lenet: again", first, self._train("again", self._settings.training_flags))
        checkpoint = self._checkpoint_before_last("lenet")
        if checkpoint is None:
            self._results.add("lenet: resumed", FAILED, "the run left fewer than two checkpoints")
        else:
            self._same_bits("lenet: resumed", first, self._train(
                "resumed", self._settings.training_flags + ["--resume=" + checkpoint]))
        few = ["--steps=%d" % _FIRST_STEPS]
        self._near("lenet: 2 ranks", "2 ranks on one device and 1", _RANKS_BOUND,
                   ("one", few), ("two", few + ["--ranks=2"]))
        if self._settings.device == "cuda":
            self._near("lenet: cpu", "a CPU and the GPU", _DEVICES_BOUND,
                       ("gpu", few), ("cpu", few + ["--device=cpu"]))

    def _train(self, name, flags):
        """The digest of a run, or None."""
        out = self._folder(name)
        command = [self._programs.path("tools/train"), "--trainer=" + self._trainer, "--out=" + out]
        if "--device=cpu" not in flags:
            command.append("--device=" + self._settings.device)
            # Measured choices may differ from run to run, and with them bits.
            command.append("--autotune=off")
        outcome = self._programs.run(command + self._settings.threads + flags,
                                     _LIMIT_S * self._settings.scale)
        digest = re.search(r"^weights sha256 ([0-9a-f]{64})$", outcome.output, re.MULTILINE)
        if outcome.ok and digest:
            return digest.group(1)
        say_failure(self._results, "train " + name, outcome)
        return None

    def _accuracy(self):
        outcome = self._programs.run(
            [self._programs.path("tools/evaluate"), "--trainer=" + self._trainer,
             "--weights=" + self._folder("lenet"), "--device=" + self._settings.device]
            + self._settings.threads, _LIMIT_S * self._settings.scale)
        found = re.search(r"^test accuracy ([0-9.]+)", outcome.output, re.MULTILINE)
        if not outcome.ok or not found:
            say_failure(self._results, "lenet: accuracy", outcome)
            return
        accuracy = float(found.group(1))
        if self._settings.judge_accuracy:
            status = OK if accuracy >= _GOAL else FAILED
            text = "%.4f on the test images, wanted %.2f" % (accuracy, _GOAL)
        else:
            status, text = OK, "%.4f after a few steps (not judged)" % accuracy
        self._results.add("lenet: accuracy", status, text, accuracy=accuracy)

    def _same_bits(self, part, expected, digest):
        if digest is None:
            return
        same = digest == expected
        self._results.add(part, OK if same else FAILED, "weights sha256 %s... %s" % (
            digest[:16], "as before" if same else "instead of %s..." % expected[:16]))

    def _near(self, part, who, bound, first, second):
        """Compares the losses of two runs' first steps."""
        losses = []
        for name, flags in (first, second):
            if self._train(name, flags) is None:
                return
            losses.append(self._losses(name))
        a, b = losses
        if len(a) != _FIRST_STEPS or len(b) != _FIRST_STEPS:
            self._results.add(part, FAILED, "metrics.jsonl lacks steps: %d and %d" % (len(a), len(b)))
            return
        largest = max(abs(x - y) / abs(x) for x, y in zip(a, b))
        self._results.add(
            part, OK if largest <= bound else FAILED,
            "losses of %s: largest relative difference %.1e in %d steps, bound %.0e" % (
                who, largest, _FIRST_STEPS, bound), difference=largest)

    def _losses(self, name):
        with open(os.path.join(self._folder(name), "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        return [line["loss"] for line in lines if "loss" in line]

    def _checkpoint_before_last(self, name):
        folder = os.path.join(self._folder(name), "checkpoints")
        found = sorted(entry for entry in os.listdir(folder) if entry.startswith("step_"))
        return os.path.join(folder, found[-2]) if len(found) > 1 else None

    def _folder(self, name):
        return os.path.join(self._programs.scratch, "runs", name)


def run(programs, results, settings):
    """All of them."""
    Training(programs, results, settings).parts()
