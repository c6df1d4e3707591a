#!/usr/bin/env python3
"""run_all of the bundle for GPUs, with programs that are none: small scripts that print what the real
ones print, or, where FAULTS says so, crash, hang, print garbage, or are missing.  Whatever fails, run_all
ends by itself, and has the rows of all else."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

FAULT = r'''#!/bin/sh
name=$(basename "$0")
case ",$FAULTS," in
*",$name:crash,"*) echo "error: broken on purpose"; kill -SEGV $$ ;;
*",$name:hang,"*) exec sleep 1000 ;;
*",$name:garbage,"*)
  head -c 30000 /dev/zero | tr '\0' '\377'
  printf '\n{"mode": 3}\n{"ms_per_step": "soon"}\n{"benchmark": "operation"}\n{"benchmark": "layer"}\n'
  printf 'device lost:\n[ RUN      ] \n"ID","Kernel Name"\n"1"\n'
  exit 0 ;;
esac
'''

FAKES = {
    "tests/device_tests": r'''
case $1 in
--describe) printf 'device: H100\nmemory: 7 bytes for plans\nlibrary: /x/libcudnn.so.9\ncopies: ok\n' ;;
--gtest_list_tests) cat <<EOF
AnyStreamTest.
  BytesComeBackFromAnyOffset
AnyParallelTest.
  Agrees
StepScalars.
  AreAsOnACpu
Smoke/LayerKernels.
  ComputeWhatACpuDoes/F32Best_relu_1  # GetParam() = 4-byte object
  ComputeWhatACpuDoes/F32Best_dense_2  # GetParam() = 4-byte object
  ComputeWhatACpuDoes/BF16Reference_dense_2  # GetParam() = 4-byte object
Relu.
  Contract
  HandComputed
TrainingStep.
  AnyDeviceTrainsAsACpuDoes
  OnACpuAlone
EOF
;;
*)
  code=0
  for test in $(echo "${1#*=}" | tr ':' ' '); do
    echo "[ RUN      ] $test"
    case ",$FAULTS," in
    *",test:$test:hang,"*) echo "case: relu {} [5, 7]"; exec sleep 1000 ;;
    *",test:$test:lost,"*)
      printf 'x.cc:7: Failure\nillegal address\n[  FAILED  ] %s, where GetParam() = 4-byte object (3 ms)\n' "$test"
      echo "device lost: INTERNAL: an illegal memory access"
      exit 3 ;;
    *",test:$test:fail,"*)
      printf 'x.cc:7: Failure\n1 and 2\n[  FAILED  ] %s (3 ms)\n' "$test"
      code=1 ;;
    *) echo "[       OK ] $test (2 ms)" ;;
    esac
  done
  exit $code ;;
esac
''',
    "tools/bench/bench_net": r'''
nodes=40 refusal= memory=1000
case "$*" in *--replay=false*) nodes=0 ;; *) case ",$FAULTS," in *,capture:fail,*) echo "error: no capture"; exit 1 ;; esac ;; esac
case ",$FAULTS,$*" in *,images:fail,*lenet*|*,images:fail,*resnet*|*,images:fail,*alexnet*) echo "error: cuDNN says no"; exit 1 ;; esac
for flag; do case $flag in --device_memory=*) memory=${flag#*=} ;; esac; done
[ "$memory" -lt 1000 ] || memory=1000
cat <<EOF
{"benchmark": "training step", "ms_per_step": 2.0, "ms_min": 1.9, "ms_max": 2.1, "batch": 64, "images_per_second": 32000, "gemm_share": 0.5, "gemm_gflops": 4e5, "device_copy_gb_per_s": 2000, "upload_gb_per_s": 50, "download_gb_per_s": 50, "graph_nodes": $nodes, "refusal": "$refusal", "planned_bytes": $memory, "weights_sha256": "aabbccddeeff00112233", "fetched_bytes": 5, "written_bytes": 5}
EOF
''',
    "tools/bench/bench_layers": r'''
echo '{"benchmark": "layer", "layer": "conv1", "direction": "forward", "ms": 0.5, "gemm_share": 0.4, "copy_share": 0.2}'
''',
    "tools/bench/bench_ops": r'''
for p in BF16 TF32 F32 F16 F64; do
echo '{"benchmark": "operation", "operation": "gemm", "pass": "product", "precision": "'$p'", "way": "reference", "ms": 2.0, "right": true}'
echo '{"benchmark": "operation", "operation": "gemm", "pass": "product", "precision": "'$p'", "way": "cublas", "ms": 1.0, "right": true}'
done
case ",$FAULTS," in *,way:refuses,*)
echo '{"benchmark": "operation", "operation": "conv", "pass": "forward", "precision": "F16", "way": "cudnn 3", "refused": "INTERNAL: no"}'
echo "error: 1 ways refused"; exit 1 ;; esac
''',
    "tools/train": r'''
for flag; do case $flag in --out=*) out=${flag#*=} ;; esac; done
mkdir -p "$out/checkpoints/step_00000010" "$out/checkpoints/step_00000020"
for i in 1 2 3 4 5 6 7 8 9 10; do echo '{"step": '$i', "loss": 1.5}'; done >"$out/metrics.jsonl"
echo "weights sha256 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
''',
    "tools/evaluate": 'echo "test accuracy 0.9105"\n',
}
ON_PATH = {
    "nvidia-smi": 'echo "H100, 580, 81559 MiB, 81000 MiB, 1980 MHz"\n',
    "ncu": r'''
echo "==PROF== Connected"
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","void gyre::Loop<gyre::(anonymous namespace)::ReluForward<float>>(int, T1)","gpu__time_duration.sum","us","3.5"'
echo '"1","sm90_xmma_gemm(x)","gpu__time_duration.sum","ns","1,500"'
''',
    "compute-sanitizer": 'echo "[       OK ] a (1 ms)"; echo "========= ERROR SUMMARY: 0 errors"\n',
}
PEER = r'''
import json, os, signal, sys, time
fault = dict(f.split(":", 1) for f in os.environ.get("FAULTS", "").split(",") if ":" in f).get("peer_pytorch.py")
flags = dict(f[2:].split("=") for f in sys.argv[1:])
if fault == "missing": sys.exit("error: PyTorch is missing: No module named torch")
if fault == "crash": print("error: broken on purpose", flush=True); os.kill(os.getpid(), signal.SIGSEGV)
if fault == "hang": time.sleep(1000)
if fault == "garbage": print('{"mode": 3, "precision": []}\n{"mode": "eager"}\n\x00\xff{'); sys.exit(0)
for precision in flags["precision"].split(","):
    for mode in flags["modes"].split(","):
        print(json.dumps(dict(precision=precision, mode=mode, ms_per_step=3.0, steps_peak_bytes=800, loss=2.0)))
'''

PROGRAMS = [os.path.basename(name) for name in list(FAKES) + list(ON_PATH)] + ["peer_pytorch.py"]
HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PARTS_ROWS = {  # the first words of a row of each part
    "A": ["nvidia-smi", "device", "smoke: ", "lenet TF32", "gpt_small BF16", "lenet TF32 / PyTorch",
          "layers: "],
    "B": ["alexnet resident", "alexnet at 43 %", "alexnet at 33 %", "alexnet / checkpoint",
          "resnet50 BF16 kernels", "gpt_small BF16 by layer", "lenet: accuracy", "lenet: resumed",
          "memcheck", "racecheck", "operations F64", "gpt_small F32", "lenet F64"],
}


class Run:
    """run_all in a thread of its own."""

    def __init__(self, call, faults="", seconds=None, without=()):
        self.folder = tempfile.mkdtemp()
        bundle, self.out = os.path.join(self.folder, "a bundle"), os.path.join(self.folder, "out")
        fakes, path = os.path.join(self.folder, "fakes"), os.path.join(self.folder, "path")
        os.mkdir(bundle)
        gpu = os.path.join(HERE, "tools", "gpu")
        for name in os.listdir(gpu):
            if name.endswith(".py") or name == "run_all":
                shutil.copy(os.path.join(gpu, name), bundle)
        with open(os.path.join(bundle, "peer_pytorch.py"), "w") as file:
            file.write(PEER)
        for folder, programs in ((fakes, FAKES), (path, ON_PATH)):
            os.mkdir(folder)
            for name, text in programs.items():
                if os.path.basename(name) in without:
                    continue
                whole = os.path.join(folder, name)
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                with open(whole, "w") as file:
                    file.write(FAULT + text)
                os.chmod(whole, 0o755)
        with tarfile.open(os.path.join(bundle, "programs.tar.xz"), "w:xz") as archive:
            for name in os.listdir(fakes):
                archive.add(os.path.join(fakes, name), name)
        command = [sys.executable, os.path.join(bundle, "run_all"), call, "--out=" + self.out]
        if seconds:
            command.append("--seconds=%g" % seconds)
        environment = {"PATH": path + ":/usr/bin:/bin", "FAULTS": faults, "TMPDIR": self.folder,
                       "CUDA_HOME": self.folder}
        self.code = None
        self._thread = threading.Thread(target=self._run, args=(command, environment))
        self._thread.start()

    def _run(self, command, environment):
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=150, check=False)
        self.code, self.errors = done.returncode, done.stderr.decode()

    def wait(self):
        """Its rows: {name: (status, text)}."""
        self._thread.join()
        with open(os.path.join(self.out, "table.txt")) as file:
            self.table = file.read()
        with open(os.path.join(self.out, "results.jsonl")) as file:
            rows = [json.loads(line) for line in file]
        left = [name for name in os.listdir(self.folder) if name.startswith("gyre.")]
        self.whole = " skipped after " in self.table.splitlines()[-1] and not left
        shutil.rmtree(self.folder)
        return {row["part"]: (row["status"], row["text"]) for row in rows}


class GpuFlow(unittest.TestCase):
    def setUp(self):
        self.fine = {call: Run(call) for call in "AB"}
        self.rows = {call: run.wait() for call, run in self.fine.items()}

    def others(self, run, call, beginnings):
        """run has all rows of a run in which nothing fails, ok, but those that begin so."""
        rows = run.wait()
        self.assertTrue(run.whole, run.table)
        self.assertEqual(run.code, 1, run.table)
        for name in self.rows[call]:
            if not name.startswith(tuple(beginnings)):
                self.assertIn(name, rows, run.table)
                self.assertEqual(rows[name][0], "ok", run.table)
        return rows

    def test_whatever_fails(self):
        for call, run in self.fine.items():
            self.assertEqual(run.code, 0, run.table)
            self.assertTrue(run.whole, run.table)
            for beginning in PARTS_ROWS[call]:
                self.assertTrue(any(name.startswith(beginning) for name in self.rows[call]),
                                beginning + " is not in " + run.table)

        # All programs at once; a part whose programs fail has a row that says so.
        all_fail = {}
        for fault in ("crash", "hang", "garbage"):
            faults = ",".join("%s:%s" % (program, fault) for program in PROGRAMS)
            for call, seconds in (("A", 24), ("B", 33)):
                all_fail[call, fault] = Run(call, faults, seconds if fault == "hang" else None)
        for call in "AB":
            all_fail[call, "missing"] = Run(call, "peer_pytorch.py:missing", without=PROGRAMS)

        # One at a time.
        alone = {
            ("A", "device_tests:crash"): ("device", "memory", "copies", "libraries", "opening", "smoke",
                                          "layers"),
            ("A", "bench_net:garbage"): ("lenet", "gpt", "resnet", "lstm", "alexnet"),
            ("A", "peer_pytorch.py:crash"): (
                "lenet TF32 /", "lenet BF16 /", "lenet F32 /", "gpt_small TF32 /", "gpt_small BF16 /",
                "resnet50 TF32 /", "resnet50 BF16 /", "lstm_512 TF32 /", "lstm_512 BF16 /",
                "alexnet TF32 /", "alexnet BF16 /"),
            ("B", "train:crash"): ("lenet: ",),
            ("B", "ncu:garbage"): tuple(
                "%s kernels" % net for net in ("resnet50 BF16", "gpt_small BF16", "lenet TF32",
                                               "alexnet BF16", "lstm_512 TF32")),
            ("B", "bench_ops:crash"): ("operations",),
            ("B", "way:refuses"): ("operations",),
            ("B", "compute-sanitizer:crash"): ("memcheck", "racecheck"),
        }
        runs = {key: Run(*key) for key in alone}
        dense, relu = ["Smoke/LayerKernels.ComputeWhatACpuDoes/F32Best_" + name
                       for name in ("dense_2", "relu_1")]
        lost = Run("A", "test:%s:lost" % relu)
        hung = Run("A", "test:%s:hang" % relu, 60)
        wrong = Run("A", "test:%s:fail" % dense)
        capture = Run("A", "capture:fail")
        images = Run("A", "images:fail")

        for (call, fault), run in all_fail.items():
            rows = run.wait()
            self.assertTrue(run.whole, "%s, %s: %s" % (fault, run.errors, run.table))
            self.assertEqual(run.code, 1, run.table)
            wanted = PARTS_ROWS[call]
            if fault == "missing":
                self.assertIn("No such file", run.table)
                wanted = []
            self.assertFalse([name for name, row in rows.items() if row[0] == "ok"], run.table)
            firsts = {"A": ("nvidia-smi", "opening", "smoke", "lenet", "layers"),
                      "B": ("alexnet", "resnet50 BF16", "train", "memcheck", "operations")}[call]
            for first in firsts if fault != "missing" else firsts[1:3]:
                self.assertTrue(any(name.startswith(first) for name in rows), first + ": " + run.table)
        for (call, fault), run in runs.items():
            rows = self.others(run, call, alone[call, fault])
            if fault == "way:refuses":
                self.assertIn("conv, cudnn 3: INTERNAL: no", rows["operations F16"][1])
                self.assertEqual(rows["operations BF16"][0], "ok")

        # A test that takes the GPU's context, or hangs, or is wrong, costs its own row alone.
        for run, text in ((lost, "1 of 2: %s; x.cc:7: Failure illegal address" % relu),
                          (hung, "; in relu {} [5, 7]: ended after "),
                          (wrong, "1 of 2: %s; " % dense)):
            rows = self.others(run, "A", ("smoke: layers F32 Best",))
            self.assertEqual(rows["smoke: layers F32 Best"][0], "FAILED")
            self.assertIn(text, rows["smoke: layers F32 Best"][1])
            self.assertEqual("smoke: device lost" in rows, run is lost)

        # What fails in a first net is not tried for ever.
        rows = capture.wait()
        failed = [name for name, row in rows.items() if row[0] == "FAILED"]
        self.assertEqual(failed, ["lenet TF32", "gpt_small BF16"], capture.table)
        for name in ("lenet TF32 plain", "resnet50 BF16 plain", "alexnet BF16 plain"):
            self.assertEqual(rows[name][0], "ok", capture.table)
        rows = images.wait()
        self.assertEqual(rows["alexnet TF32"][0], "skipped", images.table)
        self.assertIn("cuDNN says no", rows["alexnet TF32"][1])
        self.assertEqual(rows["lstm_512 BF16"][0], "ok", images.table)
        self.assertEqual(rows["layers: Relu"][0], "ok", images.table)


if __name__ == "__main__":
    unittest.main()
