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
for tool in tools/*; do
  [[ -x $tool && -f $tool ]] || continue
  name=${tool#tools/}
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
((programs == 17)) || fail "$programs programs"

# A switch is on, off, or named alone.
tools/train --autotune=off --plan=on --noplan --version >"$TEST_TMPDIR/said" || fail "$(cat "$TEST_TMPDIR/said")"

# WHAT TOOL [FLAG...]: the tool refuses these, with this.
refuses() {
  local what=$1 tool=$2
  shift 2
  local said
  said=$(tools/"$tool" "$@" 2>&1 >/dev/null) && fail "$tool $*: exit code 0"
  (($? == 2)) && [[ $said == "error: $what"* ]] || fail "$tool $*: $said"
}

net=models/lenet/net.textproto
refuses '--layer=zzz: no layer that computes has this in its name; there are conv1, pool1, ' \
  bench_layers --net=$net --layer=zzz --threads=1
refuses '--algorithms: no allreduce algorithm "rong"; there are: ring, ' \
  bench_allreduce --algorithms=rong --bytes=16
for tool in bench_net bench_scaling bench_submit; do
  [[ $tool == bench_submit ]] && with=() || with=(--net=$net)
  refuses '--allreduce: no allreduce algorithm "rong"; there are: ring, ' $tool "${with[@]}" --allreduce=rong
done
