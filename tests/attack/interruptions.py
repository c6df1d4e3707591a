#!/usr/bin/env python3
"""Interrupts training at random moments and resumes it:  interruptions.py TOOLS FIRST COUNT

A run on 1 to 3 ranks, threads or processes under mpirun, is killed, asked to stop, asked for a
checkpoint or halted for a while.  It may crash and hang never; whatever came, going on gives the bits
and the metrics of a run that was left alone.
"""

import sys

sys.dont_write_bytecode = True

import functools
import os
import random
import re
import shutil
import signal
import time

from attack import digest_of, main, ranks_of, stat_of

STEPS = 150
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGUSR1]
ORPHAN_S = 20  # a rank whose mpirun was killed ends within seconds


@functools.lru_cache(maxsize=None)
def straight(victim, ranks):
    """Digest, metrics and seconds of a run that is left alone."""
    out = f"straight{ranks}"
    begin = time.monotonic()
    outcome = victim.run("train", [f"--out={victim.folder}/{out}", f"--ranks={ranks}"])
    seconds = time.monotonic() - begin
    assert digest_of(outcome), outcome
    return digest_of(outcome), victim.metrics(out), seconds


def interrupt(victim, process, numbers, number, mpirun, seconds):
    """Sends the signal at some moment, to the command or one rank; says whether it was sent."""
    if mpirun:
        # A rank killed while Open MPI starts may hang mpirun itself, 4.1 has it so: wait for training.
        while process.poll() is None and "training" not in victim.said(process)[0]:
            time.sleep(0.005)
    time.sleep(numbers.uniform(0, min(seconds, 2)))
    pids, ranks = [process.pid], ranks_of(process) if mpirun else []
    if ranks and numbers.random() < 0.5:
        pids = [numbers.choice(ranks)]
    if process.poll() is not None or not stat_of(pids[0]):
        return ranks, False
    os.kill(pids[0], number)
    if number == signal.SIGSTOP:
        time.sleep(numbers.uniform(0, 0.3))
        os.kill(pids[0], signal.SIGCONT)
    return ranks, True


def judge(victim, out, outcome, number, mpirun):
    """What is wrong with how an interrupted run ended."""
    # Before it has anything to lose it may simply die of a signal that asks for something.
    if outcome.code == -number and "training" not in outcome.out and number != signal.SIGSTOP:
        return []
    faults = [outcome.crash()]
    if number in (signal.SIGTERM, signal.SIGINT) and not mpirun:
        said = re.search(r"stopped after step (\d+);", outcome.err)
        if outcome.code == 130 and (not said or victim.steps_kept(out)[-1:] != [int(said[1])]):
            faults.append("stopped without the checkpoint that it names")
        elif outcome.code not in (0, 130):
            faults.append(f"code {outcome.code} after {number.name}")
    elif number in (signal.SIGSTOP, signal.SIGUSR1) and outcome.code != 0:
        faults.append(f"code {outcome.code} after {number.name}")
    return [fault for fault in faults if fault]


def trial(victim, number):
    numbers = random.Random(number)
    ranks, mpirun = numbers.randint(1, 3), numbers.random() < 0.4
    mpirun = mpirun and ranks > 1
    digest, metrics, seconds = straight(victim, ranks)
    out = f"out{number}"
    arguments = [f"--out={victim.folder}/{out}", f"--checkpoint_every={numbers.choice([1, 7, 40, 5000])}"]
    if not mpirun:
        arguments.append(f"--ranks={ranks}")
    faults, history = [], f"{ranks} ranks{' under mpirun' if mpirun else ''} {arguments[1]}:"

    def go_on():
        if not victim.steps_kept(out):
            shutil.rmtree(f"{victim.folder}/{out}", ignore_errors=True)
        resume = ["--resume=latest"] if victim.steps_kept(out) else []
        return victim.start(victim.command("train", arguments + resume), ranks if mpirun else 1)

    for _ in range(numbers.randint(1, 3)):
        what = numbers.choice(SIGNALS)
        process = go_on()
        pids, sent = interrupt(victim, process, numbers, what, mpirun, seconds)
        outcome = victim.wait(process)
        history += f" {what.name}{'' if sent else ' (late)'}"
        if sent:
            faults += [f"{fault}\n{outcome}" for fault in judge(victim, out, outcome, what, mpirun)]
        end = time.monotonic() + ORPHAN_S
        while any(map(stat_of, pids)):
            if time.monotonic() > end:
                faults.append(f"ranks outlive mpirun by {ORPHAN_S} s")
                break
            time.sleep(0.01)
    outcome = victim.wait(go_on())
    if digest_of(outcome) != digest:
        faults.append(f"going on gives another digest than {digest}\n{outcome}")
    elif victim.metrics(out) != metrics:
        faults.append(f"going on gives other metrics\n{outcome}")
    shutil.rmtree(f"{victim.folder}/{out}", ignore_errors=True)
    return [f"{history}: {fault}" for fault in faults]


if __name__ == "__main__":
    main(trial, STEPS)
