#!/usr/bin/env bash
# Packs the bundle for GPUs from this build's programs and runs it on the CPU, on a tiny scale: in an
# empty environment, from another folder.  Whether a row is skipped (PyTorch) is the machine's affair.
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

bundle=$TEST_TMPDIR/"a bundle"
tools/gpu/make_bundle "$bundle"
cd /
status=0
env -i PATH=/usr/bin:/bin TMPDIR="$TEST_TMPDIR" \
  "$bundle/run_all" --device=cpu --quick --out="$TEST_TMPDIR/out" || status=$?
[[ $status == 0 || $status == 3 ]] || fail "run_all: exit code $status; $(cat "$TEST_TMPDIR"/out/log.txt)"

for row in device runtime/any_device_test layers/relu_test "lenet: accuracy" "lenet: again" \
  "lenet: resumed" "lenet: 2 ranks" "lenet F32"; do
  grep -Eq "^$row +ok " "$TEST_TMPDIR/out/table.txt" || fail "the table has no row '$row' that is ok"
done
grep -q '"ms_per_step": ' "$TEST_TMPDIR/out/results.jsonl" || fail "results.jsonl has no benchmark"
compgen -G "$TEST_TMPDIR/gyre.*" >/dev/null && fail "run_all left its temporary folder"
[[ -e $bundle/__pycache__ ]] && fail "run_all wrote to the bundle"

# A program that fails is a row that says so, and an exit code.
mkdir "$TEST_TMPDIR/tools"
printf '#!/bin/sh\necho "error: broken on purpose"\nexit 1\n' >"$TEST_TMPDIR/tools/bench_net"
chmod +x "$TEST_TMPDIR/tools/bench_net"
(cd "$TEST_TMPDIR" && python3 -m tarfile -c "$bundle/programs.tar.xz" tools)
status=0
env -i PATH=/usr/bin:/bin TMPDIR="$TEST_TMPDIR" \
  "$bundle/run_all" --device=cpu --quick --out="$TEST_TMPDIR/out" || status=$?
[[ $status == 1 ]] || fail "run_all of a broken bundle: exit code $status"
grep -q "^device  FAILED .*broken on purpose" "$TEST_TMPDIR/out/table.txt" ||
  fail "the table does not say what is broken"
