#!/usr/bin/env bash
# tools/simulate_scaling: its mistakes, each with one message; equal runs; a net, a table, a picture.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

tool=tools/simulate_scaling
net=models/lenet/net.textproto
plain=(--net=$net --step_ms=20)

# WHAT [FLAG...]: the tool refuses these, with this.
refuses() {
  local what=$1 said code=0 expected=2
  [[ $what == --* ]] || expected=1  # a file's mistake
  shift
  said=$("$tool" "$@" 2>&1) || code=$?
  [[ $code == "$expected" && $said == "error: $what" ]] || fail "$*: exit code $code, $said; expected $what"
}
[[ $("$tool" --flops=many 2>&1) == "error: --flops=many: expected a number (see --help)" ]] || fail "--flops=many"
refuses "--net is missing; see --help"
refuses "--net: say how fast a rank computes it, by one of --flops and --step_ms" --net=$net
refuses "--net: say how fast a rank computes it, by one of --flops and --step_ms" --net=$net --flops=1e9 --step_ms=3
printf '{"pieces": 9, "layers": [[1, 1], [2, 3]]}\n' >"$TEST_TMPDIR/two_layers.json"
refuses "$TEST_TMPDIR/two_layers.json: expected 10 layers, got 2" --net=$net --step_ms=3 \
  --layer_time="$TEST_TMPDIR/two_layers.json"
for bad in '' '[]' '{"layers": 3}' '{"layers": []}' '{"layers": [[1, 1]]}' '{"pieces": 1, "layers": [[1, 1]]}' \
  '{"pieces": 9, "layers": [[1, -1]]}' '{"pieces": 9, "layers": [[1, 1, 1]]}' '{"pieces": 9, "layers": [1]}'; do
  printf '%s\n' "$bad" >"$TEST_TMPDIR/bad.json"
  refuses "$TEST_TMPDIR/bad.json: expected a line that bench_scaling has printed" --net=$net --step_ms=3 \
    --layer_time="$TEST_TMPDIR/bad.json"
done
refuses "--layer_time of a file: expected --step_ms beside it" --net=$net --flops=1e9 \
  --layer_time="$TEST_TMPDIR/two_layers.json"
refuses "--beta_gb_s=0: expected a number above 0" "${plain[@]}" --beta_gb_s=0
refuses "--alpha_us=nan: expected 0 or more" "${plain[@]}" --alpha_us=nan
refuses "--ranks_per_host=-1: expected a number above 0" "${plain[@]}" --ranks_per_host=-1
refuses "--slowest=inf: expected a smaller number" "${plain[@]}" --slowest=inf
refuses "--device_memory=1e19: expected bytes, such as 1048576, 64M or 1.5G" "${plain[@]}" --device_memory=1e19 --copy_gb_s=1
refuses "--jitter=1001: expected at most 1000" "${plain[@]}" --jitter=1001
refuses "--steps=1: expected 2 or more" "${plain[@]}" --steps=1
refuses "--rank_counts: expected numbers from 1 to 8192, got 8193" "${plain[@]}" --rank_counts=1,8193
refuses "--rank_counts: expected growing numbers, got 4,4" "${plain[@]}" --rank_counts=4,4
refuses "--algorithms: there is no rinng; see --help" "${plain[@]}" --algorithms=rinng
refuses "--rank_counts=2: hierarchical: does not sum over 2 ranks on 1 host" "${plain[@]}" --rank_counts=2 --ranks_per_host=2 --algorithms=hierarchical
refuses "--samples=inf: expected a number of samples" "${plain[@]}" --samples=inf
refuses "--samples=nan: expected a number of samples" "${plain[@]}" --samples=nan
refuses "--samples=-1: expected a number of samples" "${plain[@]}" --samples=-1
refuses "--sync=sync: expected allreduce, bsp, ssp or async" "${plain[@]}" --sync=sync
refuses "--staleness: of --sync=ssp alone" "${plain[@]}" --sync=bsp --staleness=1
refuses "--servers: of --sync=bsp, ssp and async" "${plain[@]}" --servers=1
refuses "--algorithms: of --sync=allreduce alone" "${plain[@]}" --sync=bsp --algorithms=ring
refuses "--rank_counts=4: servers: expected fewer than the 4 ranks, got 4" "${plain[@]}" --sync=bsp --servers=4 --rank_counts=4
refuses "--schedule=all: expected none, backward or forward" "${plain[@]}" --schedule=all
refuses "--copy_gb_s is missing: what pages is copied at that rate" "${plain[@]}" --device_memory=3G
refuses "--picture=a.png: expected a name that ends in .svg" "${plain[@]}" --picture=a.png
refuses "--picture: expected two numbers or more of --rank_counts" "${plain[@]}" --rank_counts=2 --picture="$TEST_TMPDIR/a.svg"
printf '{"allreduce": 3}' >"$TEST_TMPDIR/bad.json"
refuses "$TEST_TMPDIR/bad.json: not what bench_allreduce --calibrate writes: allreduce: expected an array" \
  "${plain[@]}" --calibration="$TEST_TMPDIR/bad.json"

# All ranks there are, all ways: the same text again, a picture, and another with another seed.
all=(--net=$net --rank_batch=64 --step_ms=40 --algorithms=auto,ring,direct,halving_doubling,recursive_doubling,naive --jitter=0.1)
once=$("$tool" "${all[@]}" --picture="$TEST_TMPDIR/a.svg") || fail "$once"
again=$("$tool" "${all[@]}" --picture="$TEST_TMPDIR/b.svg") || fail "$again"
[[ $once == "$again" ]] || fail "two runs differ"
cmp "$TEST_TMPDIR/a.svg" "$TEST_TMPDIR/b.svg" || fail "two pictures differ"
[[ $(wc -l <<<"$once") == $((6 * (14 + 1))) ]] || fail "$once"
grep -q '"ranks":8192' <<<"$once" || fail "$once"
few=$("$tool" "${all[@]}" --rank_counts=4) || fail "$few"
[[ $("$tool" "${all[@]}" --rank_counts=4 --seed=2) != "$few" ]] || fail "the seed changes nothing"
grep -q "recursive_doubling" "$TEST_TMPDIR/a.svg" || fail "the picture lacks a line"
table=$("$tool" "${plain[@]}" --rank_counts=1,2 --sync=ssp --staleness=1 --table) || fail "$table"
[[ $(wc -l <<<"$table") == 4 ]] && ! grep -q '.\{81\}' <<<"$table" || fail "$table"

# A law that does not describe the rows is no law.
bad=$("$tool" "${plain[@]}" --algorithms=naive --table) || fail "$bad"
[[ $(tail -n 2 <<<"$bad") == "naive "*"(A + B log2 N) / N does not fit: errors of "*" %"*"fewer --rank_counts" ]] ||
  fail "$bad"
! grep -q 'within' <<<"$bad" || fail "$bad"

# Where bench_scaling has found its pieces of work.  Of LeNet's ten layers the last has no parameter:
# what runs there ends before any gradient, and hides no sum; backward of the first hides most.
exposed() {
  printf '{"pieces": 100, "layers": [%s]}\n' "$1" >"$TEST_TMPDIR/pieces.json"
  "$tool" --net=$net --step_ms=1000 --layer_time="$TEST_TMPDIR/pieces.json" --rank_counts=4 --schedule=backward |
    sed 's/.*"sums_ms":\([0-9]*\).*"exposed_ms":\([0-9]*\).*/\1 \2/'
}
none='[0,0],[0,0],[0,0],[0,0]'
read -r sums exposed <<<"$(exposed "[0,0],$none,$none,[100,0]")"
[[ $sums == "$exposed" && $sums -gt 0 ]] || fail "work in the last layer: $exposed of $sums exposed"
read -r sums exposed <<<"$(exposed "[0,100],[0,0],$none,$none")"
[[ $exposed -lt $sums ]] || fail "work in the first layer: $exposed of $sums exposed"
tools/bench/bench_scaling --net=$net --batch=2 --compute_ms=2 --rounds=1 --steps=1 >"$TEST_TMPDIR/found.json" ||
  fail "bench_scaling"
found=$("$tool" --net=$net --step_ms=1000 --layer_time="$TEST_TMPDIR/found.json") || fail "$found"
[[ $(grep -cE '"alone_ms":(1000\.0|999\.9999)' <<<"$found") == 14 ]] || fail "$found"

# Ranks that are alike wait for no straggler, however their times round.
alike=$("$tool" "${plain[@]}") || fail "$alike"
[[ $(grep -cE '"waiting_ms":(0\.0|[0-9.]+e-1[0-9]),' <<<"$alike") == 14 ]] || fail "$alike"

one_host=$("$tool" "${plain[@]}" --rank_counts=2 --ranks_per_host=2147483647) || fail "$one_host"
grep -q '"hosts":1,' <<<"$one_host" || fail "$one_host"

# LeNet takes more than a megabyte: with that it pages, and copies take time.
paged=$("$tool" --net=$net --rank_batch=64 --flops=1e12 --device_memory=6e6 --copy_gb_s=0.1 --rank_counts=1) || fail "$paged"
whole=$("$tool" --net=$net --rank_batch=64 --flops=1e12 --rank_counts=1) || fail "$whole"
alone() { sed 's/.*"alone_ms":\([0-9]*\).*/\1/' <<<"$1"; }
(($(alone "$paged") > $(alone "$whole"))) || fail "$paged $whole"
