#!/usr/bin/env python3
"""Starts each model's trainer: --plan, and a step of the small ones.

trainers_test.py TRAIN MAKE_SHOTS MAKE_REVIEWS MAKE_IMAGES
in the folder that has models/; on a copy of it
"""

import sys

sys.dont_write_bytecode = True

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# One step of each; the others are too large for a test.
STEPS = {"frnn": 4, "gan": 64, "googlenet": 2, "gpt_small": 2, "imdb_lstm": 4, "lenet": 64,
         "lstm_lm_small": 2, "mlp": 64, "mobilenet_v2": 2}  # batch


def run(command, **how):
    result = subprocess.run(command, text=True, capture_output=True, timeout=120, **how)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def bible():
    """Sixteen books of a few verses, such as the program prints."""
    words = ["And", "the", "LORD", "said,", "unto", "him:", "Go;", "they", "went", "(up)."]
    return "".join(f"{book % 3}Bk{chr(97 + book)}1:{verse} " + " ".join(
        words[(book * verse * k + k) % len(words)] for k in range(30)) + "\n"
        for book in range(16) for verse in range(1, 10))


def check_characters(folder):
    """Each character but a book's first is said once, and the judge judges the same."""
    said = run([sys.executable, folder / "models/gpt_small/judge.py"], input=bible()).split()
    labels = (folder / "runs/data/test_next.npy").read_bytes()[128:]
    text = (folder / "runs/data/test_text.npy").read_bytes()[128:]
    count = sum(label != 255 for label in labels)
    assert int(said[-1]) == count, (said, count)
    assert text[1:64] == labels[:63] and set(labels[128:192]) == {255}, "windows"
    assert 0 < float(said[0]) < 3, said

    sys.path.append(str(folder / "models/gpt_small"))
    import judge
    model = judge.train([b"\1\2\3\1\2\4\1\2\3\5" * 3, b"\1\1\2\2\3\3\4\4\5\5"])
    for history in b"\1\2\3\1", b"\5\1\2\3", b"\x20\1\2\3", b"\x20\x20\x20\x20":
        total = sum(judge.probability(model, history + bytes([c])) for c in range(64))
        assert abs(total - 1) < 1e-12, (history, total)


def main():
    train, make_shots, make_reviews, make_images = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as name:
        folder = Path(name)
        shutil.copytree("models", folder / "models")
        run([sys.executable, folder / "models/generated_images.py"])
        run([sys.executable, folder / "models/gpt_small/characters.py"], input=bible())
        check_characters(folder)
        run([make_shots, f"--out={folder}/runs/data/shots", "--test=4", "--shot_steps=100"])
        run([make_reviews, f"--out={folder}/runs/data/reviews", "--train=40", "--test=4"])
        imagenet = folder / "runs/data/imagenet"
        run([make_images, f"--out={imagenet}", "--train=256", "--test=10", "--most=99"])
        (imagenet / "test").rename(imagenet / "val")
        for net in sorted(folder.glob("models/*/net.textproto")):
            model, trainer = net.parent.name, f"--trainer={net.parent}/trainer.textproto"
            plan = run([train, trainer, "--plan"])
            parameters = next(line for line in plan.splitlines() if line.startswith("parameters "))
            said = f"{int(parameters.split()[1].rstrip(';')):,} parameters"
            assert said in (net.parent / "README.md").read_text().replace("\n", " "), (model, said)
            # The pictures that are made up have fewer classes than ImageNet.
            words = " ".join(plan.split())
            assert words.count("warning: ") == words.count("but data.train has 10;"), plan
            if model in STEPS:
                out = run([train, trainer, "--steps=1", f"--batch={STEPS[model]}",
                           f"--out={folder}/{model}"])
                assert "weights sha256 " in out, out
            print("ok", model)


if __name__ == "__main__":
    main()
