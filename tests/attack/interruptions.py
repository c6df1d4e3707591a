#!/usr/bin/env python3
"""Interrupts training at random moments and resumes it:  interruptions.py TOOLS FIRST COUNT

A run on 1 to 3 ranks, threads or processes under mpirun, on one host or each on a host of its own, is
killed, asked to stop, asked for a checkpoint, halted for a while or slowed; a rank under mpirun is stopped
for good, or the link of its host is cut.  It may crash and hang never, and who is silent is named; whatever
came, no checkpoint is broken, and going on gives the bits and the metrics of a run that was left alone; by a
parameter server's ssp and async, which have other bits each time, a line for each step.  Some runs are in 16
bits, some accumulate, some are on `sim`, which now holds all, now pages.
"""

import sys

sys.dont_write_bytecode = True

import functools
import os
import random
import re
import shutil
import signal
import subprocess
import time

from attack import NAMESPACES, digest_of, main, ranks_of, stat_of

STEPS = 1000
STALL, SLOW, CUT = "stall", "slow", "cut"
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGUSR1]
ORPHAN_S = 20  # a rank whose mpirun was killed ends within seconds, one that waits after STALL_S more
STALL_S = 5


def have_hosts(victim):
    if victim.hosts is True:
        made = subprocess.run([NAMESPACES, "--hosts=1", "true"], capture_output=True, text=True, check=False)
        victim.hosts = made.returncode == 0
        if not victim.hosts:
            print(f"no hosts: {made.stderr}", flush=True)
    return victim.hosts


def await_training(victim, process):
    while process.poll() is None and "training" not in victim.said(process)[0]:
        time.sleep(0.005)


@functools.lru_cache(maxsize=None)
def straight(victim, ranks, mpirun, hosts, trainer, servers, kind):
    """Digest, metrics and seconds of a run that is left alone."""
    out = f"straight{ranks}{mpirun}{hosts}{len(trainer)}{servers}{''.join(kind)}"
    arguments = [f"--out={victim.folder}/{out}", *kind] + ([] if mpirun else [f"--ranks={ranks}"])
    arguments += ["--sync=bsp", f"--servers={servers}"] if servers else []
    process = victim.start(victim.command("train", arguments, trainer), ranks if mpirun else 1, hosts)
    await_training(victim, process)
    begin = time.monotonic()
    outcome = victim.wait(process)
    seconds = time.monotonic() - begin
    assert digest_of(outcome), outcome
    return digest_of(outcome), victim.metrics(out), seconds


@functools.lru_cache(maxsize=None)
def least_memory(victim, ranks, trainer, arguments):
    """Of a device on which a run pages as much as it can: bytes."""
    little = ["--plan", "--device_memory=1K", f"--ranks={ranks}", *arguments]
    outcome = victim.run("train", little, trainer)
    said = re.search(r"device memory: expected at least (\d+) bytes", outcome.err)
    assert said, outcome
    return said[1]


def kind_of(numbers):
    """What all of a trial's runs have: arguments."""
    return (*numbers.choice([[], [], ["--precision=F16"], ["--precision=BF16"]]),
            *numbers.choice([[], [], ["--batch=3", "--set=accumulate=2"]]),
            *numbers.choice([[], ["--device=sim"]]))


def interrupt(victim, process, numbers, what, mpirun, hosts, seconds):
    """Does it at some moment, to the command or one rank.  The ranks, and which was met: -1 is all of
    them, None that it came too late."""
    if mpirun:
        # A rank killed while Open MPI starts may hang mpirun itself, 4.1 has it so: wait for training.
        await_training(victim, process)
    time.sleep(numbers.uniform(0, seconds))
    ranks = ranks_of(process) if mpirun else {}
    rank, pid = -1, process.pid
    if ranks and (hosts or what in (STALL, SLOW) or numbers.random() < 0.5):
        rank, pid = numbers.choice(sorted(ranks.items()))
    if process.poll() is not None or not stat_of(pid) or (mpirun and not ranks):
        return ranks, None
    try:
        if what == CUT:
            subprocess.run(["nsenter", f"--target={pid}", "--user", "--net", "--preserve-credentials", "ip",
                            "link", "set", "eth0", "down"], check=True, capture_output=True,
                           env=dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin"))
        elif what == SLOW:
            for _ in range(numbers.randint(1, 20)):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(numbers.uniform(0, 0.1))
                os.kill(pid, signal.SIGCONT)
                time.sleep(numbers.uniform(0, 0.01))
        else:
            os.kill(pid, signal.SIGSTOP if what == STALL else what)
        if what == signal.SIGSTOP:
            time.sleep(numbers.uniform(0, 0.3))
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return ranks, None
    except subprocess.CalledProcessError:
        if stat_of(pid):
            raise
        return ranks, None
    return ranks, rank


def judge(victim, out, outcome, what, met, mpirun):
    """What is wrong with how an interrupted run ended."""
    # Before it has anything to lose it may simply die of a signal that asks for something.
    if what in SIGNALS and outcome.code == -what and "training" not in outcome.out and what != signal.SIGSTOP:
        return []
    # mpirun ended by us (code None) has said all it can: a cut leaves it waiting for its daemon.
    faults = [] if what == CUT else [outcome.crash()]
    if what in (signal.SIGTERM, signal.SIGINT) and not mpirun:
        said = re.search(r"stopped after step (\d+);", outcome.err)
        if outcome.code == 130 and (not said or victim.steps_kept(out)[-1:] != [int(said[1])]):
            faults.append("stopped without the checkpoint that it names")
        elif outcome.code not in (0, 130):
            faults.append(f"code {outcome.code} after {what.name}")
    elif what in (signal.SIGSTOP, signal.SIGUSR1, SLOW) and outcome.code != 0:
        faults.append(f"code {outcome.code} after {what}")
    elif what == signal.SIGKILL and met >= 0 and not re.search(rf"\brank {met}\b", outcome.err):
        faults.append(f"rank {met} was killed, and not named")
    elif what in (STALL, CUT) and outcome.code != 0 and not re.search("^weights sha256", outcome.out, re.M):
        named = set(map(int, re.findall(r"rank (\d+) on host \S+ has been silent", outcome.err)))
        # Those on either side of a cut name each other; once all is done, in MPI_Finalize, nobody is named.
        if what == STALL and named != {met} or not named:
            faults.append(f"rank {met} was met by a {what}, and {named or 'nobody'} named")
    return [fault for fault in faults if fault]


def trial(victim, number):
    numbers = random.Random(number)
    ranks, where = numbers.randint(1, 3), numbers.choice(["threads", "mpirun", "hosts", "hosts"])
    if where == "hosts" and not have_hosts(victim):
        where = "mpirun"
    if ranks == 1:
        where = "threads"
    mpirun, hosts = where != "threads", where == "hosts"
    sync = numbers.choice(["", "bsp", "bsp", "ssp", "async"]) if ranks > 1 else ""
    servers = numbers.choice([0, numbers.randint(0, ranks - 1)]) if sync else 0
    trainer = victim.folder + ("/served" if sync else "")
    kind = kind_of(numbers)
    digest, metrics, seconds = straight(victim, ranks, mpirun, hosts, trainer, servers, kind)
    out = f"out{number}"
    arguments = [*kind, f"--out={victim.folder}/{out}", f"--checkpoint_every={numbers.choice([5, 40, 300, 5000])}",
                 f"--stall_timeout_s={STALL_S}"]
    if not mpirun:
        arguments.append(f"--ranks={ranks}")
    history = f"{ranks} ranks, {where}, {' '.join(arguments)}{f', {sync}, {servers} serve' if sync else ''}:"
    faults = []

    def mode():
        bound = [f"--staleness={numbers.randint(0, 3)}"] if sync == "ssp" else []
        chosen = [f"--sync={sync}", f"--servers={servers}"] * bool(sync) + bound
        if sync in ("", "bsp") and servers == 0:
            # Now rank 0 writes checkpoints alone, now every rank a part; by sums, or by a server's owners.
            choices = [[], ["--shard_optimizer"]] * (ranks > 1) + [["--sync=bsp"]] * 2 * bool(sync)
            chosen = numbers.choice(choices or [[]])
        if "--device=sim" in kind and numbers.random() < 0.5:
            chosen.append(f"--device_memory={least_memory(victim, ranks, trainer, (*kind, *chosen))}")
        return chosen

    def go_on():
        # What is there without a checkpoint is in the way of a run that begins, but for `auto`.
        if numbers.random() < 0.5:
            resume = ["--resume=auto"]
        elif victim.steps_kept(out):
            resume = ["--resume=latest"]
        else:
            resume = []
            shutil.rmtree(f"{victim.folder}/{out}", ignore_errors=True)
        return victim.start(victim.command("train", arguments + resume + mode(), trainer), ranks if mpirun else 1,
                            hosts)

    for _ in range(numbers.randint(1, 3)):
        choices = SIGNALS + [SLOW] + [STALL] * mpirun
        if hosts:  # signals to the script that makes them are not mpirun's
            choices = [SLOW, STALL, CUT, CUT, signal.SIGKILL]
        what = numbers.choice(choices)
        left = 1 - max(victim.steps_kept(out), default=0) / STEPS
        process = go_on()
        pids, met = interrupt(victim, process, numbers, what, mpirun, hosts, seconds * left)
        begin = time.monotonic()
        gone = lambda: not any(map(stat_of, pids.values()))
        if what == CUT and met is not None:
            while not (ended := gone()) and time.monotonic() < begin + STALL_S + ORPHAN_S:
                time.sleep(0.01)
            if not ended:  # asked once: a number may soon be another process's
                faults.append(f"ranks outlive a cut by {STALL_S + ORPHAN_S} s")
            victim.end(process)
        if what == STALL and met is not None:
            # One that is stopped in its last moments, when nobody is left to miss it, ends with our help.
            others = [pid for rank, pid in pids.items() if rank != met]
            while process.poll() is None and any(map(stat_of, others)):
                if time.monotonic() > begin + STALL_S + ORPHAN_S:
                    break
                time.sleep(0.01)
            if not any(map(stat_of, others)) and stat_of(pids[met]) and "weights sha256" in victim.said(process)[0]:
                os.kill(pids[met], signal.SIGCONT)
        outcome = victim.wait(process)
        if "warning: skipped" in outcome.out:
            faults.append(f"a broken checkpoint was left\n{outcome}")
        while not gone():
            if time.monotonic() > begin + STALL_S + ORPHAN_S:
                faults.append(f"ranks outlive mpirun by {ORPHAN_S} s")
                break
            time.sleep(0.01)
        history += f" {getattr(what, 'name', what)}{'' if met is not None else ' (late)'}"
        history += f" {time.monotonic() - begin:.1f} s"
        if met is not None:
            faults += [f"{fault}\n{outcome}" for fault in judge(victim, out, outcome, what, met, mpirun)]
    outcome = victim.wait(go_on())
    if sync in ("ssp", "async"):
        steps = [line["step"] for line in victim.metrics(out) if "loss" in line] if digest_of(outcome) else []
        if steps != list(range(1, STEPS + 1)):
            faults.append(f"going on gives {len(steps)} of {STEPS} steps\n{outcome}")
    elif digest_of(outcome) != digest:
        faults.append(f"going on gives another digest than {digest}\n{outcome}")
    elif victim.metrics(out) != metrics:
        faults.append(f"going on gives other metrics\n{outcome}")
    if "warning: skipped" in outcome.out:
        faults.append(f"a broken checkpoint was left\n{outcome}")
    shutil.rmtree(f"{victim.folder}/{out}", ignore_errors=True)
    if os.environ.get("ATTACK_TELL"):
        print(f"trial {number}: {history}", flush=True)
    return [f"{history}: {fault}" for fault in faults]


if __name__ == "__main__":
    main(trial, STEPS)
