"""Runs Gyre on a Case and compares what comes out with what the judge said."""

import glob
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time

from case import read_safetensors, summary

LIMIT_S = 120
_METRICS = ("step", "learning_rate", "samples_per_second", "epoch", "seconds",
            "data_wait_seconds")


class Gyre:
    """The programs, and a folder for a case's runs."""

    def __init__(self, train, folder):
        self.train, self.folder = os.path.abspath(train), folder
        self.env = dict(os.environ, OMP_NUM_THREADS="1")

    def command(self, out, arguments, precision="F64", ranks=1, mpirun=False):
        command = [self.train, f"--trainer={self.folder}/trainer.textproto", "--threads=1",
                   f"--precision={precision}", f"--out={self.folder}/{out}"] + arguments
        if "--resume=latest" not in arguments:
            weights = "F64" if precision == "F64" else "F32"
            command.append(f"--weights={self.folder}/{weights}.safetensors")
        if not mpirun:
            return command + [f"--ranks={ranks}"]
        return ["mpirun", "--allow-run-as-root", "-np", str(ranks), "--oversubscribe", "--bind-to",
                "none", "--mca", "btl", "self,vader", "--mca", "plm", "isolated"] + command

    def run(self, out, arguments, **how):
        result = subprocess.run(self.command(out, arguments, **how), env=self.env, text=True,
                                capture_output=True, timeout=LIMIT_S)
        if result.returncode != 0:
            raise AssertionError(f"{arguments} {how}: {result.returncode}\n{result.stdout}{result.stderr}")

    def checkpoints(self, out):
        try:
            names = os.listdir(f"{self.folder}/{out}/checkpoints")
        except FileNotFoundError:
            return []
        return sorted(int(n[5:]) for n in names if n.startswith("step_"))

    def run_interrupted(self, out, arguments, step, **how):
        """Killed once there is a checkpoint of `step`, or cut back to it, and resumed."""
        arguments = arguments + ["--checkpoint_every=1", "--set=keep_checkpoints=1000"]
        process = subprocess.Popen(self.command(out, arguments, **how), env=self.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < end:
            if step in self.checkpoints(out):
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for later in self.checkpoints(out):
            if later > step:
                shutil.rmtree(f"{self.folder}/{out}/checkpoints/step_{later:08d}")
        self.run(out, arguments + ["--resume=latest"], **how)

    def gradients(self, arguments, **how):
        """Of the first step: what momentum's memory holds after it."""
        path = f"{self.folder}/trainer.textproto"
        with open(path) as file:
            text = file.read()
        plain = re.sub(r"optimizer \{.*\}\n", "optimizer { sgd { momentum: 0.5 } }\n", text)
        with open(path, "w") as file:
            file.write(plain)
        self.run("gradients", arguments + ["--steps=1"], **how)
        with open(path, "w") as file:
            file.write(text)
        tensors = {}  # of one file, or one a rank
        for path in glob.glob(f"{self.folder}/gradients/checkpoints/step_00000001/optimizer*.safetensors"):
            tensors |= read_safetensors(path)
        shutil.rmtree(f"{self.folder}/gradients")
        return {name.removesuffix(".momentum"): values for name, values in tensors.items()}

    def result(self, out):
        """Of a finished run, as the judge gives it, but for gradients."""
        result = {"steps": [], "tests": []}
        with open(f"{self.folder}/{out}/metrics.jsonl") as file:
            for line in map(json.loads, file):
                if "loss" in line:
                    assert line["step"] == len(result["steps"]) + 1, line
                    result["steps"].append({n: v for n, v in line.items() if n not in _METRICS})
                else:
                    result["tests"].append({n.removeprefix("test_"): v for n, v in line.items()
                                            if n not in _METRICS})
        last = self.checkpoints(out)[-1]
        result["weights"] = read_safetensors(
            f"{self.folder}/{out}/checkpoints/step_{last:08d}/weights.safetensors")
        return result


def summarised(result, samples):
    """A judge's result with few numbers a tensor; what a golden file keeps."""
    summaries = lambda tensors: {n: summary(v, samples) for n, v in sorted(tensors.items())}
    return {n: summaries(v) if n in ("gradients", "weights") else v for n, v in result.items()}


def compare(got, want, tolerance, moved=None):
    """Lines about what differs by more than `tolerance`, or than 4 times what `moved` says of it, and the
    largest difference."""
    bounds = {what: max(tolerance, 4 * by) for what, by in (moved or {}).items()}
    found = list(differences(got, want))
    return ([line for what, difference, line in found if difference > bounds.get(what, tolerance)],
            max((difference for _, difference, _ in found), default=0))


def differences(got, want):
    """(what, difference, a line about it), number by number; what is the losses of a step, or a tensor.

    A tensor's difference is relative to the value, the tensor's root mean square or a hundredth of
    the largest one, whichever is largest: what cancels out, as a bias before a batch_norm, is the
    rounding of what it is computed from.
    """
    def found(what, where, a, b, scale):
        difference = abs(a - b) / scale if a != b else 0
        return (what, math.inf if math.isnan(difference) else difference,
                f"{what} {where}: expected {b!r}, got {a!r}")

    for kind in ("steps", "tests"):
        if kind not in want:
            continue
        assert len(got[kind]) == len(want[kind]), (kind, len(got[kind]))
        for i, (a, b) in enumerate(zip(got[kind], want[kind])):
            assert a.keys() == b.keys(), (kind, a, b)
            for name in b:
                yield found(f"{kind}[{i}]", name, a[name], b[name], max(abs(b[name]), 0.01))
    for kind in ("gradients", "weights"):
        if kind not in want:
            continue
        # A parameter that is not trained may have no memory of a gradient.
        assert want[kind].keys() <= got[kind].keys(), (kind, sorted(got[kind]), sorted(want[kind]))
        rms = {n: v[0] / math.sqrt(len(got[kind][n])) for n, v in want[kind].items()}
        least = max([1e-30, *rms.values()]) / 100
        for name, values in want[kind].items():
            norm, *samples = values
            own = summary(got[kind][name], len(samples)) if len(samples) > 1 else summary(got[kind][name], 2)
            for i, (a, b) in enumerate(zip(own, values)):
                yield found(f"{kind} {name}", f"sample {i - 1}" if i else "norm", a, b,
                            max(abs(b), rms[name], least))
