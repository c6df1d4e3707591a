#!/usr/bin/env bash
# Packs the bundle for GPUs from this build's programs and runs both calls on the CPU, on a tiny scale: in
# an empty environment, from another folder.  Whether a row is skipped (PyTorch) is the machine's affair.
# What run_all does about programs that fail: gpu_flow_test.py.
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

bundle=$TEST_TMPDIR/"a bundle"
tree=$TEST_TMPDIR/tree
mkdir "$tree"
git -C "$tree" init -q
head -c 3000000 /dev/zero >"$tree/file"
said=$(TREE=$tree tools/gpu/make_bundle "$bundle")
grep -q "beside it the working tree, 3 MiB" <<<"$said" || fail "make_bundle does not say what travels: $said"
[[ $(gunzip <"$bundle/data/train-images-idx3-ubyte.gz" | wc -c) == $((16 + 12000 * 784)) ]] ||
  fail "expected 12,000 training images"

# Unified memory beyond what a GPU has free can hang it for all who share it.
managed=$(grep -rIl MallocManaged "$bundle" || true)
[[ -z $managed ]] || fail "unified memory: $managed"

# call LETTER ROW...: run_all LETTER has these rows, ok, in this order.
call() {
  local out=$TEST_TMPDIR/$1 status=0 last=0 row line
  (cd / && env -i PATH=/usr/bin:/bin TMPDIR="$TEST_TMPDIR" \
    "$bundle/run_all" "$1" --device=cpu --seconds=1200 --out="$out") || status=$?
  [[ $status == 0 || $status == 3 ]] || fail "run_all $1: exit code $status; $(cat "$out/log.txt")"
  for row in "${@:2}"; do
    line=$(grep -En "^$row +ok " "$out/table.txt" | cut -d : -f 1)
    [[ -n $line ]] || fail "the table has no row '$row' that is ok: $(cat "$out/table.txt")"
    ((line > last)) || fail "'$row' is not in its place: $(cat "$out/table.txt")"
    last=$line
  done
}

# What yields most comes first.
call A device copies libraries "smoke: layers BF16 Best" "lenet F32" "gpt_small BF16" "lenet F32 plain" \
  "layers: Relu"
call B "alexnet resident" "alexnet at 43 %" "alexnet at 33 %" "lenet F32 by layer" "lenet: accuracy" \
  "lenet: again" "lenet: resumed" "lenet: 2 ranks" "operations F32" "lenet F16"
for what in '"way": "reference"' '"refusal": ""'; do
  grep -q "$what" "$TEST_TMPDIR/B/results.jsonl" || fail "results.jsonl has no $what"
done
paged=$(grep -Ec '"alexnet at (43|33) %", .*weights as resident.*"fetched_bytes": [1-9]' \
  "$TEST_TMPDIR/B/results.jsonl" || true)
[[ $paged == 2 ]] || fail "expected 2 rows of steps that page: $(cat "$TEST_TMPDIR/B/results.jsonl")"
compgen -G "$TEST_TMPDIR/gyre.*" >/dev/null && fail "run_all left its temporary folder"
[[ -e $bundle/__pycache__ ]] && fail "run_all wrote to the bundle"

# Too much together.
head -c 70000000 /dev/zero >"$tree/file"
said=$(TREE=$tree tools/gpu/make_bundle "$bundle" 2>&1) && fail "70 MB beside the bundle are accepted"
grep -q "error: bundle and tree have .* more than the 67108864 that may travel" <<<"$said" ||
  fail "make_bundle does not say what is too much: $said"
