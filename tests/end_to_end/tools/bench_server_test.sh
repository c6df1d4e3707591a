#!/usr/bin/env bash
# tools/bench/bench_server: its mistakes, each with one message; a line for each mode, of a net's buckets too.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

tool=tools/bench/bench_server
net=models/lenet/net.textproto
small=(--ranks=2 --table_kib=1 --compute_ms=3 --rounds=1 --steps=1)
tiny=("${small[@]}" --layer_counts=3)

# WHAT [FLAG...]: the tool refuses these, with this.
refuses() {
  local what=$1 said code=0
  shift
  said=$("$tool" "${tiny[@]}" "$@" 2>&1) || code=$?
  [[ $code == 2 && $said =~ ^"error: "("rank "[01]": ")?"$what"$ ]] || fail "$*: exit code $code, $said; expected $what"
}
refuses "--device=cuda: expected cpu or sim, whose work can be slept" --device=cuda
for number in table_kib chunk_kib rounds steps; do
  refuses "--$number=0: expected 1 or more" --$number=0
done
for ms in inf 1e+07 nan 0; do
  refuses "--compute_ms=$ms: expected above 0, and at most 1000000" --compute_ms=$ms
done
refuses "--ratio=0: expected a number above 0" --ratio=0.5,0
refuses "--ratio=1e+30: expected at most 1000000" --ratio=0.5,1e30
refuses "--ratio=inf: expected at most 1000000" --ratio=inf
refuses "--net and --layer_counts: expected one of them; see --help" --net=$net
refuses "--layer_counts=0.5: expected a whole number of 1 or more" --layer_counts=2,0.5
refuses "--layer_counts=0: expected a whole number of 1 or more" --layer_counts=0
refuses "--table_kib=999999999999: expected a smaller integer (see --help)" --table_kib=999999999999
for empty in layer_counts syncs ratio; do
  refuses "--$empty=: expected a value (see --help)" --$empty=
done
refuses "--syncs=bsq: expected bsp, ssp, async or allreduce" --syncs=bsp,bsq
refuses "--syncs=allreduce: expected --device=cpu, and no --servers" --syncs=bsp,allreduce
refuses "--syncs=allreduce: expected --device=cpu, and no --servers" --syncs=allreduce --device=cpu --servers=1
refuses "--server_memory=disk: expected device or host" --server_memory=disk
refuses "--servers=-1: expected 0 to 1, fewer than the ranks" --servers=-1
refuses "--servers=2: expected 0 to 1, fewer than the ranks" --servers=2

# FIELDS LINES [FLAG...]: so many lines, and these fields in each.
prints() {
  local fields=$1 lines=$2 said
  shift 2
  said=$("$tool" "${small[@]}" "$@" 2>&1) || fail "$*: $said"
  [[ $(wc -l <<<"$said") == "$lines" && $(grep -c "$fields" <<<"$said") == "$lines" ]] || fail "$*: $said"
}
prints '"layers":3,"tables":3,' 6 --layer_counts=3 --ratio=0.1,0.5
prints '"servers":1,"sync":"async","net":"equal layers","layers":3,' 1 --layer_counts=3 --servers=1 --syncs=async --server_memory=host
# LeNet's eight parameters lie in three buckets.
prints '"sync":"\(bsp\|allreduce\)","net":"lenet","layers":10,"tables":3,' 2 --net=$net --device=cpu --syncs=bsp,allreduce
