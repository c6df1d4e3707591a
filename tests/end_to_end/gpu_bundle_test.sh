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

# What yields most comes first.
rows=(device libraries "operations F32" "lenet F32" "graph nodes" "lenet F32, no graph"
  "alexnet resident" "alexnet at 100 %" "alexnet at 82 %" "alexnet at 43 %" "alexnet at 13 %"
  "lenet: accuracy" "lenet: again" "lenet: resumed"
  "lenet: 2 ranks" runtime/any_device_test layers/relu_test)
last=0
for row in "${rows[@]}"; do
  line=$(grep -En "^$row +ok " "$TEST_TMPDIR/out/table.txt" | cut -d : -f 1)
  [[ -n $line ]] || fail "the table has no row '$row' that is ok: $(cat "$TEST_TMPDIR/out/table.txt")"
  ((line > last)) || fail "'$row' is not in its place: $(cat "$TEST_TMPDIR/out/table.txt")"
  last=$line
done
for what in '"ms_per_step": ' '"way": "reference"' '"refusal": ""'; do
  grep -q "$what" "$TEST_TMPDIR/out/results.jsonl" || fail "results.jsonl has no $what"
done
paged=$(grep -Ec '"alexnet at (82|43|13) %", .*weights as resident.*"fetched_bytes": [1-9]' \
  "$TEST_TMPDIR/out/results.jsonl" || true)
[[ $paged == 3 ]] || fail "expected 3 rows of steps that page: $(cat "$TEST_TMPDIR/out/results.jsonl")"
compgen -G "$TEST_TMPDIR/gyre.*" >/dev/null && fail "run_all left its temporary folder"
[[ -e $bundle/__pycache__ ]] && fail "run_all wrote to the bundle"

# Programs that fail, hang or are missing are rows that say so, and the next part begins all the same.
mkdir -p "$TEST_TMPDIR/tools" "$TEST_TMPDIR/tests/layers"
printf '#!/bin/sh\necho "error: broken on purpose"\nexit 1\n' >"$TEST_TMPDIR/tools/bench_net"
printf '#!/bin/sh\necho "[  PASSED  ] 7 tests."\n' >"$TEST_TMPDIR/tests/layers/relu_test"
chmod +x "$TEST_TMPDIR/tools/bench_net" "$TEST_TMPDIR/tests/layers/relu_test"
(cd "$TEST_TMPDIR" && python3 -m tarfile -c "$bundle/programs.tar.xz" tools tests)
status=0
env -i PATH=/usr/bin:/bin TMPDIR="$TEST_TMPDIR" \
  "$bundle/run_all" --device=cpu --quick --out="$TEST_TMPDIR/out" || status=$?
[[ $status == 1 ]] || fail "run_all of a broken bundle: exit code $status"
for row in "device +FAILED .*broken on purpose" "operations F32 +FAILED .*No such file" \
  "lenet F32 +FAILED .*broken on purpose" "alexnet resident +FAILED .*broken on purpose" "train lenet +FAILED .*No such file" \
  "layers/relu_test +ok +7 tests"; do
  grep -Eq "^$row" "$TEST_TMPDIR/out/table.txt" ||
    fail "the table has no row '$row': $(cat "$TEST_TMPDIR/out/table.txt")"
done
