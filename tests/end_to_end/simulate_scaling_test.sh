#!/usr/bin/env bash
# tools/simulate_scaling: its mistakes, each with one message; equal runs; a net, a table, a picture.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

tool=tools/simulate_scaling
net=models/lenet/net.textproto
plain=(--layers=3 --gradient_mb=10 --step_ms=20)

# WHAT [FLAG...]: the tool refuses these, with this.
refuses() {
  local what=$1 said code=0
  shift
  said=$("$tool" "$@" 2>&1) || code=$?
  [[ $code == 1 && $said == "error: $what" ]] || fail "$*: exit code $code, $said; expected $what"
}
[[ $("$tool" --flops=many 2>&1) == "error: --flops=many: expected a number (see --help)" ]] || fail "--flops=many"
refuses "expected one of --net and --layers; see --help"
refuses "expected one of --net and --layers; see --help" --net=$net "${plain[@]}"
refuses "--layers: expected --step_ms beside it, and no --flops" --layers=3 --gradient_mb=10
refuses "--net: expected one of --flops and --step_ms beside it" --net=$net
refuses "--net: expected one of --flops and --step_ms beside it" --net=$net --flops=1e9 --step_ms=3
refuses "--gradient_mb, --paged_mb: of --layers; a net's are its own" --net=$net --step_ms=3 --gradient_mb=1
refuses "--layer_time: expected flops or alike" --net=$net --step_ms=3 --layer_time=even
refuses "--update_ms: expected no more than --step_ms" "${plain[@]}" --update_ms=21
refuses "--beta_gb_s: expected more than 0" "${plain[@]}" --beta_gb_s=0
refuses "--alpha_us: expected 0 or more" "${plain[@]}" --alpha_us=nan
refuses "--ranks_per_host: expected more than 0" "${plain[@]}" --ranks_per_host=-1
refuses "--steps: expected 2 or more" "${plain[@]}" --steps=1
refuses "--ranks: expected numbers from 1 to 8192, got 8193" "${plain[@]}" --ranks=1,8193
refuses "--ranks: expected more and more, got 4,4" "${plain[@]}" --ranks=4,4
refuses "--algorithms: there is no rinng; see --help" "${plain[@]}" --algorithms=rinng
refuses "hierarchical: does not sum over 2 ranks on 1 host" "${plain[@]}" --ranks=2 --ranks_per_host=2 --algorithms=hierarchical
refuses "--sync: expected allreduce, bsp, ssp or async" "${plain[@]}" --sync=sync
refuses "--staleness: of --sync=ssp alone" "${plain[@]}" --sync=bsp --staleness=1
refuses "--servers: of --sync=bsp, ssp and async" "${plain[@]}" --servers=1
refuses "--algorithms: of --sync=allreduce alone" "${plain[@]}" --sync=bsp --algorithms=ring
refuses "servers: expected fewer than the 4 ranks, got 4" "${plain[@]}" --sync=bsp --servers=4 --ranks=4
refuses "--schedule: expected none, backward or forward" "${plain[@]}" --schedule=all
refuses "--copy_gb_s is missing: what pages is copied at that rate" "${plain[@]}" --paged_mb=3
refuses "--device_gb: of a net; --layers have --paged_mb" "${plain[@]}" --device_gb=3 --copy_gb_s=1
refuses "--picture: expected two numbers of --ranks or more" "${plain[@]}" --ranks=2 --picture="$TEST_TMPDIR/a.svg"
printf '{"allreduce": 3}' >"$TEST_TMPDIR/bad.json"
refuses "$TEST_TMPDIR/bad.json: not what bench_allreduce --calibrate writes: allreduce: expected an array" \
  "${plain[@]}" --calibration="$TEST_TMPDIR/bad.json"

# All ranks there are, all ways: the same text again, a picture, and another with another seed.
all=(--net=$net --batch=64 --step_ms=40 --algorithms=auto,ring,direct,halving_doubling,recursive_doubling,naive --jitter=0.1)
once=$("$tool" "${all[@]}" --picture="$TEST_TMPDIR/a.svg") || fail "$once"
again=$("$tool" "${all[@]}" --picture="$TEST_TMPDIR/b.svg") || fail "$again"
[[ $once == "$again" ]] || fail "two runs differ"
cmp "$TEST_TMPDIR/a.svg" "$TEST_TMPDIR/b.svg" || fail "two pictures differ"
[[ $(wc -l <<<"$once") == $((6 * (14 + 1))) ]] || fail "$once"
grep -q '"ranks":8192' <<<"$once" || fail "$once"
[[ $("$tool" "${all[@]}" --seed=2) != "$once" ]] || fail "the seed changes nothing"
grep -q "recursive_doubling" "$TEST_TMPDIR/a.svg" || fail "the picture lacks a line"
table=$("$tool" "${plain[@]}" --ranks=1,2 --sync=ssp --staleness=1 --table) || fail "$table"
[[ $(wc -l <<<"$table") == 4 ]] || fail "$table"

# LeNet takes more than a megabyte: with that it pages, and copies take time.
paged=$("$tool" --net=$net --batch=64 --flops=1e12 --device_gb=0.006 --copy_gb_s=0.1 --ranks=1) || fail "$paged"
whole=$("$tool" --net=$net --batch=64 --flops=1e12 --ranks=1) || fail "$whole"
alone() { sed 's/.*"alone_ms":\([0-9]*\).*/\1/' <<<"$1"; }
(($(alone "$paged") > $(alone "$whole"))) || fail "$paged $whole"
