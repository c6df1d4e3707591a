#!/usr/bin/env bash
# What every program says of itself: --help in 80 columns with each flag once, and --version.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

version=$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
[[ $version ]] || fail "CHANGELOG.md: no version"
programs=0
for tool in tools/* tools/bench/*; do
  [[ -x $tool && -f $tool ]] || continue
  name=${tool##*/}
  help=$("$tool" --help) || fail "$name --help: exit code $?"
  [[ $help == "$name "* ]] || fail "$name --help: $help"
  wide=$(grep -nE '.{81}|[[:space:]]$' <<<"$help") && fail "$name --help is wider than 80 columns: $wide"
  twice=$(grep -oE '^  --[a-z0-9_]+' <<<"$help" | sort | uniq -d)
  [[ ! $twice ]] || fail "$name --help: twice: $twice"
  grep -q '^  --version ' <<<"$help" || fail "$name --help: $help"
  grep -q '^Exit codes: 0 done, 1 failed' <<<"$help" || fail "$name --help: no exit codes"
  gaps=$(grep -nE '[.;:,)]  ' <<<"$help") && fail "$name --help: gaps: $gaps"
  for flag in threads page_activations servers ranks planner; do
    text=$(sed -n "/^  --$flag /,/^ *\(--\|$\)/p" <<<"$help")
    [[ ! $text || $text == *Default:* ]] || fail "$name --help: --$flag: no default"
  done
  [[ $("$tool" --version) == "$name (Gyre) $version" ]] || fail "$name --version: $("$tool" --version)"
  programs=$((programs + 1))
done
((programs == 19)) || fail "$programs programs"

# A switch is on, off, or named alone.
tools/train --autotune=off --plan=on --noplan --version >"$TEST_TMPDIR/said" || fail "$(cat "$TEST_TMPDIR/said")"

# WHAT TOOL [FLAG...]: the tool refuses these, with this.
refuses() {
  local what=$1 tool=$2 program=tools/$2 said
  [[ $tool != bench_* ]] || program=tools/bench/$tool
  shift 2
  said=$("$program" "$@" 2>&1 >/dev/null) && fail "$tool $*: exit code 0"
  (($? == 2)) && [[ $said == "error: $what"* ]] || fail "$tool $*: $said"
}

net=models/lenet/net.textproto
refuses '--layer=zzz: no layer that computes has this in its name; there are conv1, pool1, ' \
  bench_layers --net=$net --layer=zzz --threads=1
refuses '--algorithms: no allreduce algorithm "rong"; there are: ring, ' \
  bench_allreduce --algorithms=rong --bytes=16
# The flag that is wrong, by the name that was typed.
refuses '--types=F8: expected F64, F32, F16 or BF16' bench_allreduce --types=F8
refuses '--wire=F64: expected F32, F16 or BF16' bench_allreduce --wire=F64
refuses '--bytes=6: expected a multiple of 4, the bytes of F32' bench_allreduce --types=F16,F32 --bytes=16,6
refuses '--bytes=3: expected a multiple of 4, the bytes of F32' bench_allreduce --bytes=3
refuses '--bytes=0: expected bytes, such as ' bench_allreduce --bytes=0
refuses '--bytes=many: expected bytes, such as ' bench_allreduce --bytes=many
refuses '--rounds=0: expected 1 or more' bench_allreduce --rounds=0
for how in --algorithms=ring --allreduce=ring; do
  said=$(tools/bench/bench_allreduce $how --bytes=16 2>&1) && fail "bench_allreduce of one rank: exit code 0"
  [[ $said == 'error: one rank has nothing to sum; start two or more: mpirun -np 2 bench_allreduce' ]] || fail "$how: $said"
done
refuses '--rounds=-1: expected 0 or more' bench_net --net=$net --rounds=-1
refuses '--steps=0: expected 1 or more' bench_net --net=$net --steps=0
refuses '--batch=0: expected 1 or more' bench_net --net=$net --batch=0
refuses '--planner=naive: expected auto, geeps or none' bench_net --net=$net --planner=naive
refuses '--batch=0: expected 1 or more' bench_layers --net=$net --batch=0
refuses '--batch=1: expected 2 or more' bench_scaling --net=$net --ranks=2 --batch=1
refuses '--compute_ms=-1: expected 0 or more' bench_scaling --net=$net --compute_ms=-1
refuses '--threads=0: expected 1 or more' bench_conversions --threads=0
refuses '--steps=0: expected 1 or more' bench_optimizers --steps=0
refuses '--layer_kib=6: expected a multiple of 4' bench_paging --layer_kib=6
refuses '--layer_ms=0: expected a number above 0' bench_paging --layer_ms=0
refuses '--plan_steps=2: expected 4 or more' bench_paging --plan_steps=2
refuses '--copy_gb_s=0: expected a number above 0' bench_paging --copy_gb_s=0
refuses '--planners=none: expected auto, geeps or naive' bench_paging --planners=auto,none
for tool in bench_net bench_scaling bench_allreduce; do
  [[ $tool == bench_allreduce ]] && with=() || with=(--net=$net)
  refuses '--allreduce: no allreduce algorithm "rong"; there are: ring, ' $tool "${with[@]}" --allreduce=rong
done
