#!/usr/bin/env python3
"""Changes files that the tools read and runs them:  mutations.py TOOLS FIRST COUNT

Net, trainer, data (IDX, npy and npz), weights, each file of a checkpoint, metrics.  No change may crash or hang a tool;
none of a checkpoint may go unnoticed; none of weights may, but in what is no tensor's: another
metadatum, another digest's name.
"""

import sys

sys.dont_write_bytecode = True

import functools
import gzip
import os
import random
import re
import shutil
import struct
import zipfile

from attack import digest_of, main

STEPS = 12
# At bounds of types, of what is sensible, and what is no number at all.
NUMBERS = ["0", "-1", "1", "3", "1000", "65536", "2147483647", "2147483648", "-2147483649", "4294967295",
           "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616", "0.5",
           "1e-50", "3e38", "1e39", "1e308", "1e309", "-0.0", "nan", "inf", "-inf", "true", '"x"', "[]",
           "[1, 2, 3]", "{}"]
STRINGS = ['""', '"image"', '"label"', '"conv"', '"../x"', '"a/b"', '"\\377"', '"\\000"', '"."',
           '"' + "x" * 5000 + '"', '"/dev/null"', '"."', '"%s%n"']


def change_text(numbers, text):
    """Another number or string, or a line gone or twice."""
    lines = text.splitlines(keepends=True)
    for _ in range(numbers.choice([1, 1, 1, 2, 5])):
        kind = numbers.randrange(6)
        if kind < 4:
            pattern, others = ((r"(?<=[ :\[])-?\d[\d.]*", NUMBERS), (r'"[^"]*"', STRINGS))[kind == 3]
            found = [(i, m) for i, line in enumerate(lines) for m in re.finditer(pattern, line)]
            if found:
                i, m = numbers.choice(found)
                lines[i] = lines[i][:m.start()] + numbers.choice(others) + lines[i][m.end():]
        elif lines:
            i = numbers.randrange(len(lines))
            lines[i:i + 1] = [lines[i]] * 2 if kind == 4 else []
    return "".join(lines)


def change_bytes(numbers, data):
    """Bits, bytes, ranges and the length; never the same bytes again."""
    while True:
        changed = bytearray(data)
        at = numbers.randrange(len(data))
        if numbers.random() < 0.4:  # headers and lengths stand first
            at = min(at, numbers.randrange(64))
        last = at + numbers.choice([1, 2, 4, 8, 100])
        kind = numbers.randrange(8)
        if kind < 3:
            changed[at] ^= 1 << numbers.randrange(8)
        elif kind == 3:
            changed[at:last] = bytes(numbers.choice([0, 255, 127, 128]) for _ in changed[at:last])
        elif kind == 4:
            del changed[at:last]
        elif kind == 5:
            changed[at:at] = changed[at:last]
        elif kind == 6:
            del changed[numbers.choice([at, 0, len(changed) - 1]):]
        else:
            changed += bytes(numbers.randrange(256) for _ in range(numbers.choice([1, 8, 1000])))
        if bytes(changed) != data:
            return bytes(changed)


@functools.lru_cache(maxsize=None)
def prepare(victim):
    """A finished run with a checkpoint in its middle, its weights; what comes of these, by tool."""
    folder = victim.folder
    outcome = victim.run("train", [f"--out={folder}/run", "--checkpoint_every=6"])
    assert digest_of(outcome), outcome
    done = victim.run("export", [f"--weights={folder}/run", f"--to={folder}/weights.safetensors"])
    assert done.code == 0, done
    shutil.copytree(f"{folder}/run", f"{folder}/half")
    shutil.rmtree(f"{folder}/half/checkpoints/step_{STEPS:08d}")
    outcome = victim.run("train", [f"--out={folder}/parts", f"--steps={STEPS // 2}", "--ranks=2",
                                   "--shard_optimizer"])
    assert digest_of(outcome), outcome
    for name in ("train-images", "train-labels"):
        with open(f"{folder}/{name}.idx", "rb") as file, gzip.open(f"{folder}/{name}.gz", "wb") as zipped:
            zipped.write(file.read())
    return {tool: use_weights(victim, tool, folder)[1] for tool in ("evaluate", "export", "train")}


def use_weights(victim, tool, folder):
    """Outcome and result of a tool that reads FOLDER/weights.safetensors."""
    arguments = {"evaluate": [], "export": [f"--to={folder}/x.npz"],
                 "train": ["--steps=1", f"--out={folder}/new"]}[tool]
    outcome = victim.run(tool, [f"--weights={folder}/weights.safetensors"] + arguments)
    if outcome.code != 0:
        return outcome, None
    return outcome, {"evaluate": lambda: outcome.out, "train": lambda: digest_of(outcome),
                     "export": lambda: read(f"{folder}/x.npz")}[tool]()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def of_text(victim, numbers, folder):
    name = numbers.choice(["net", "trainer"])
    path = f"{folder}/{name}.textproto"
    data = read(path)
    if numbers.random() < 0.8:
        data = change_text(numbers, data.decode()).encode()
    else:
        data = change_bytes(numbers, data)
    write(path, data)
    # A change may ask for much work in earnest: what is planned is not always trained.
    work = numbers.choice([["--plan"], ["--plan", "--ranks=2"], ["--steps=1"]])
    return victim.run("train", work + [f"--out={folder}/new"], trainer=folder), False


def of_data(victim, numbers, folder):
    kind = numbers.choice(["images", "labels"])
    path = f"{folder}/train-{kind}.idx"
    if numbers.random() < 0.4:
        shutil.copy(f"{victim.folder}/train-{kind}.gz", path)
    write(path, change_bytes(numbers, read(path)))
    return victim.run("train", ["--steps=8", f"--out={folder}/new"], trainer=folder), False


def npy(descr, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (descr, shape)
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


def of_arrays(victim, numbers, folder):
    """The same data as .npy and .npz, by name."""
    text = read(f"{folder}/trainer.textproto").decode()
    text = text.replace('train { idx { images: "train-images.idx" labels: "train-labels.idx" } }',
                        'train { arrays { array { input: "image" file: "x.npy" } '
                        'array { input: "label" file: "y.npz" entry: "y" } } } '
                        'augmentation { flip: true shift: 2 }')
    images, labels = read(f"{folder}/train-images.idx")[16:], read(f"{folder}/train-labels.idx")[8:]
    write(f"{folder}/x.npy", npy("|u1", (len(labels), 7, 6, 1), images))
    with zipfile.ZipFile(f"{folder}/y.npz", "w", numbers.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as zipped:
        zipped.writestr("y.npy", npy("<i8", (len(labels),), struct.pack(f"<{len(labels)}q", *labels)))
    name = numbers.choice(["x.npy", "x.npy", "y.npz", "trainer.textproto"])
    write(f"{folder}/trainer.textproto", text.encode())
    if name == "trainer.textproto":
        write(f"{folder}/{name}", change_text(numbers, text).encode())
    else:
        write(f"{folder}/{name}", change_bytes(numbers, read(f"{folder}/{name}")))
    return victim.run("train", ["--steps=8", f"--out={folder}/new"], trainer=folder), False


def of_weights(victim, numbers, folder):
    path = f"{folder}/weights.safetensors"
    write(path, change_bytes(numbers, read(path)))
    tool = numbers.choice(["evaluate", "export", "train"])
    outcome, result = use_weights(victim, tool, folder)
    return outcome, outcome.code == 0 and result != prepare(victim)[tool]


def of_checkpoint(victim, numbers, folder):
    run = numbers.choice(["half", "parts"])
    step = f"{folder}/{run}/checkpoints/step_{STEPS // 2:08d}"
    name = numbers.choice(sorted(os.listdir(step)))
    path = f"{step}/{name}"
    if numbers.random() < 0.1:
        os.remove(path)
    else:
        write(path, change_bytes(numbers, read(path)))
    tool, arguments = numbers.choice([
        ("evaluate", [f"--weights={step}"]), ("export", [f"--weights={step}", f"--to={folder}/x.npz"]),
        ("train", [f"--resume={step}", f"--out={folder}/new"]),
        ("train", ["--resume=latest", f"--out={folder}/{run}", f"--ranks={numbers.randint(1, 2)}"])])
    outcome = victim.run(tool, arguments)
    if tool != "train" and name == "state.pb" and outcome.code == 0:
        # What it says of the optimizer's files may have changed, but not what the weights are.
        whole = f"{victim.folder}/{run}/checkpoints/{os.path.basename(step)}"
        return outcome, exported(victim, step, folder) != exported(victim, whole, folder)
    # Who wants the weights alone does without the others.
    matters = tool == "train" or name in ("state.pb", "weights.safetensors")
    return outcome, (outcome.code == 0) == matters


def exported(victim, step, folder):
    outcome = victim.run("export", [f"--weights={step}", f"--to={folder}/exported.npz"])
    return read(f"{folder}/exported.npz") if outcome.code == 0 else outcome.err


def of_metrics(victim, numbers, folder):
    path = f"{folder}/half/metrics.jsonl"
    write(path, change_bytes(numbers, read(path)))
    return victim.run("train", ["--resume=latest", f"--out={folder}/half"]), False


def trial(victim, number):
    numbers = random.Random(number)
    prepare(victim)
    folder = f"{victim.folder}/trial{number}"
    os.makedirs(folder)
    for name in os.listdir(victim.folder):
        if name.endswith((".textproto", ".idx", ".safetensors")):
            shutil.copy(f"{victim.folder}/{name}", folder)
    for run in ("half", "parts"):
        shutil.copytree(f"{victim.folder}/{run}", f"{folder}/{run}")
    attack = numbers.choice([of_text, of_text, of_data, of_arrays, of_weights, of_checkpoint, of_checkpoint, of_metrics])
    outcome, unnoticed = attack(victim, numbers, folder)
    faults = [outcome.crash() or outcome.refusal()]
    if unnoticed:
        faults.append("a change went unnoticed, or one that does not matter did not")
    for leftover in ("x", "a"):  # of names that lead out of their folder
        if os.path.exists(f"{victim.folder}/{leftover}"):
            faults.append(f"wrote {leftover} outside")
    faults = [f"{attack.__name__}: {fault}\n{outcome}" for fault in faults if fault]
    keep = os.environ.get("ATTACK_KEEP")
    if faults and keep:
        shutil.copytree(folder, f"{keep}/{number}", dirs_exist_ok=True)
    shutil.rmtree(folder)
    return faults


if __name__ == "__main__":
    main(trial, STEPS)
