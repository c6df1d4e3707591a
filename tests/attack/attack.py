"""What the attacks share: a small training run, commands under time and memory limits, verdicts.

A trial's number is its seed, so `PROGRAM TOOLS NUMBER 1` makes it again.  The standard library alone.
"""

import dataclasses
import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT_S = 120  # of a command; a hang takes that long
MEMORY = 6 << 30  # of address space: what a command asks for without need
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
CRASH_WORDS = re.compile(r"check failed|Sanitizer|runtime error:|terminate called|libgomp:|\*\*\* stack")

# A script, which is not built.
NAMESPACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/namespaces")

NET = """name: "victim"
input { name: "image" dims: [7, 6, 1] }
input { name: "label" type: LABEL }
layer { name: "conv" conv2d { filters: 4 kernel: 3 padding: 1 } }
layer { name: "relu" relu {} }
layer { name: "pool" pool2d { kind: MAX kernel: 2 } }
layer { name: "drop" dropout { rate: 0.25 } }
layer { name: "flat" flatten {} }
layer { name: "fc" dense { outputs: 5 weight { decay_multiplier: 0.5 } } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
layer { name: "accuracy" input: "fc" input: "label" accuracy { top_k: 1 } }
"""
TRAINER = """net: "net.textproto"
data {
  train { idx { images: "train-images.idx" labels: "train-labels.idx" } }
  test { idx { images: "test-images.idx" labels: "test-labels.idx" } }
  normalization { mean: 0.25 std: 0.5 }
}
optimizer { sgd { momentum: 0.9 } clip_norm: 1 weight_decay: 0.001 }
learning_rate { base: 0.05 warmup_steps: 30 cosine { final: 0.001 } }
batch: 6
test_batch: 5
steps: %d
evaluate_every: 40
checkpoint_every: 1000000
seed: 3
"""


@dataclasses.dataclass
class Outcome:
    command: list
    code: int = None  # None: ended by the time limit
    out: str = ""
    err: str = ""

    def crash(self):
        """What must never come of anything; None where it did not."""
        if self.code is None:
            return f"no end after {LIMIT_S} s"
        if -self.code in CRASHES or self.code - 128 in CRASHES:
            return f"ended by signal, code {self.code}"
        word = CRASH_WORDS.search(self.out + self.err)
        return word and f"said \"{word[0]}\""

    def refusal(self):
        """A failure without a reason; None where all is well."""
        if self.code in (0, 130) or "error: " in self.err:
            return None
        return f"code {self.code} without `error: `"

    def __str__(self):
        return f"{' '.join(self.command)}\n{self.out[-1500:]}{self.err[-1500:]}"


def write_data(folder, name, samples, seed):
    numbers = random.Random(seed)
    labels = bytes(numbers.randrange(5) for _ in range(samples))
    pixels = bytes(numbers.randrange(256) for _ in range(42 * samples))
    for kind, data in (("images", struct.pack(">4I", 0x803, samples, 7, 6) + pixels),
                       ("labels", struct.pack(">2I", 0x801, samples) + labels)):
        with open(f"{folder}/{name}-{kind}.idx", "wb") as file:
            file.write(data)


class Victim:
    """The tools, and a folder with a net, data and their runs."""

    def __init__(self, tools, folder, steps):
        self.tools, self.folder, self.hosts = os.path.abspath(tools), folder, True
        with open(f"{tools}/train", "rb") as file:
            self.sanitized = b"__asan_init" in file.read()  # its shadow takes terabytes of addresses
        write_data(folder, "train", 40, 1)
        write_data(folder, "test", 11, 2)
        # What a parameter server takes, too, to the same bits.
        os.mkdir(f"{folder}/served")
        served = TRAINER.replace(" clip_norm: 1", "").replace(': "', ': "../')
        served += 'distributed { allreduce: "direct" }\n'
        for name, text in (("net", NET), ("trainer", TRAINER % steps), ("served/trainer", served % steps)):
            with open(f"{folder}/{name}.textproto", "w") as file:
                file.write(text)
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def command(self, tool, arguments, trainer=None):
        command = [f"{self.tools}/{tool}"] + arguments
        if tool != "export":
            command += [f"--trainer={trainer or self.folder}/trainer.textproto", "--threads=1"]
        return command

    def start(self, command, ranks=1, hosts=False):
        """With `ranks` under mpirun, each on a host of its own.  A Popen with the files of what it says."""
        env = self.env
        limits = None
        scratch = None
        if hosts:
            command = [NAMESPACES, f"--hosts={ranks}", "--rate=10gbit"] + command
        elif ranks > 1:
            # Open MPI's sockets have paths of at most 108 characters, and its components leak.
            scratch = tempfile.mkdtemp(prefix="gyre.", dir="/tmp")
            command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "--mca",
                       "plm", "isolated", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include",
                       "lo"] + command
            env = dict(env, TMPDIR=scratch, ASAN_OPTIONS="detect_leaks=0")
        elif not self.sanitized:
            limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   start_new_session=True, preexec_fn=limits)
        process.files = out, err
        process.scratch = scratch
        return process

    @staticmethod
    def said(process):
        texts = []
        for file in process.files:
            data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
            texts.append(data.decode(errors="replace"))
        return texts

    def wait(self, process):
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
            self.end(process)
        outcome = Outcome(process.args, code, *self.said(process))
        for file in process.files:
            file.close()
        if process.scratch:
            subprocess.run(["rm", "-rf", process.scratch], check=False)
        return outcome

    @staticmethod
    def end(process):
        children = [pid for pid, stat in processes().items() if stat[1] == process.pid]
        for pid in children + list(ranks_of(process).values()):
            end_process(pid)
        try:
            process.wait(5)  # it may clean up
        except subprocess.TimeoutExpired:
            end_process(process.pid)
            process.wait()

    def run(self, tool, arguments, trainer=None, ranks=1):
        return self.wait(self.start(self.command(tool, arguments, trainer), ranks))

    def steps_kept(self, out):
        try:
            names = os.listdir(f"{self.folder}/{out}/checkpoints")
        except FileNotFoundError:
            return []
        return sorted(int(name[5:]) for name in names if name.startswith("step_"))

    def metrics(self, out):
        """What the run wrote of steps and tests, but for what a clock tells."""
        with open(f"{self.folder}/{out}/metrics.jsonl") as file:
            lines = [json.loads(line) for line in file]
        of_clock = ("samples_per_second", "seconds", "data_wait_seconds")
        return [{k: v for k, v in line.items() if k not in of_clock}
                for line in lines if "loss" in line or "test_loss" in line]


def digest_of(outcome):
    match = re.search(r"weights sha256 (\w{64})\n\Z", outcome.out)
    return match and outcome.code == 0 and match[1]


def end_process(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stat_of(pid):
    """(state, parent) of a process; None once it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else (fields[0], int(fields[1]))
    except (FileNotFoundError, ProcessLookupError):
        return None


def processes():
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid: stat for pid in pids if (stat := stat_of(pid))}


def ranks_of(process):
    """The pids of mpirun's ranks below `process`, by rank."""
    stats, ranks = processes(), {}
    for pid in stats:
        above = pid
        while above != process.pid and above in stats:
            above = stats[above][1]
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)\0", b"\0" + file.read())
        except OSError:
            continue
        if above == process.pid and rank:
            ranks[int(rank[1])] = pid
    return ranks


def main(trial, steps):
    """Runs `PROGRAM TOOLS FIRST COUNT`; trial(victim, number) gives a list of faults."""
    tools, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begin, bad = time.monotonic(), 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        victim = Victim(tools, folder, steps)
        for number in range(first, first + count):
            faults = trial(victim, number)
            bad += bool(faults)
            for fault in faults:
                print(f"trial {number}: {fault}", flush=True)
    print(f"{count} trials from {first}, {bad} with faults, {time.monotonic() - begin:.0f} s")
    sys.exit(bad > 0)
