#!/usr/bin/env python3
"""Runs ONNX models by onnxruntime and compares their outputs with arrays.

onnx_judge.py FOLDER...: for each NAME.onnx the file NAME.npz has "BATCH/STEP/in/NAME" and
"BATCH/STEP/out/NAME".  A state that a model carries is 0 at a batch's step 0.  Prints a line a model
with the largest difference by the largest output.  Exit codes: 0 all within 1e-5 and valid for
onnx.checker, 1 not, 77 a judge is missing.
"""

import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    print(error)
    sys.exit(77)

MOST = 1e-5


def judge(path):
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = numpy.load(path.with_suffix(".npz"))
    steps = sorted({tuple(key.split("/")[:2]) for key in arrays.files})
    worst = 0
    carried = {}
    for batch, step in steps:
        feed = {}
        for value in session.get_inputs():
            key = f"{batch}/{step}/in/{value.name}"
            if key in arrays.files:
                feed[value.name] = arrays[key]
            elif step == "0":
                feed[value.name] = numpy.zeros([int(batch)] + value.shape[1:], numpy.float32)
            else:
                feed[value.name] = carried[value.name + ".next"]
        names = [value.name for value in session.get_outputs()]
        carried = dict(zip(names, session.run(None, feed)))
        for declared in session.get_outputs():
            key = f"{batch}/{step}/out/{declared.name}"
            if key not in arrays.files:
                continue
            got, expected = carried[declared.name], arrays[key]
            if got.shape != expected.shape:
                raise ValueError(f"{key}: expected {expected.shape}, got {got.shape}")
            for extent, dim in zip(got.shape, declared.shape):
                if isinstance(dim, int) and dim != extent:
                    raise ValueError(f"{key}: declared {declared.shape}, got {got.shape}")
            if got.size == 0:
                continue
            if not numpy.isfinite(got).all():
                raise ValueError(f"{key}: not finite")
            largest = max(float(numpy.abs(expected).max()), 1e-30)
            worst = max(worst, float(numpy.abs(got - expected).max()) / largest)
    return worst


bad = 0
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        try:
            difference = judge(path)
            verdict = "" if difference <= MOST else "  WRONG"
            print(f"{path.stem:24} {difference:.1e}{verdict}")
        except Exception as error:  # of three libraries
            verdict = f"{path.stem:24} {type(error).__name__}: {error}"
            print(verdict)
        bad += bool(verdict)
sys.exit(1 if bad else 0)
