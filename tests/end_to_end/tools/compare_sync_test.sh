#!/usr/bin/env bash
# tools/compare_sync: its mistakes, each with one message; that it trains is what docs/benchmarks/synchronisation.md shows.
set -uo pipefail

# CODE WHAT [ARGUMENT...]: the tool refuses these, with this.
refuses() {
  local expected=$1 what=$2 said code=0
  shift 2
  said=$(tools/compare_sync "$@" 2>&1) || code=$?
  [[ $code == "$expected" && $said == "error: $what" ]] && return
  printf '%s\n' "$*: exit code $code, $said; expected $what" >&2
  exit 1
}
out=$TEST_TMPDIR/out
all=allreduce,bsp,ssp\ 1,ssp\ 3,async
range='to 999999999, got'
refuses 2 "argument --modes: expected some of $all, with commas, got \"bps\"; see --help" train --out="$out" --modes=bsp,bps
refuses 2 "argument --modes: expected some of $all, with commas, got \"\"; see --help" train --out="$out" --modes=
refuses 2 "argument --seeds: expected an integer from 0 $range \"x\"; see --help" train --out="$out" --seeds=1,x
refuses 2 "argument --seeds: expected an integer from 0 $range \"-1\"; see --help" train --out="$out" --seeds=-1
refuses 2 "argument --steps: expected an integer from 1 $range \"0\"; see --help" train --out="$out" --steps=0
refuses 2 "argument --steps: expected an integer from 1 $range \"-5\"; see --help" train --out="$out" --steps=-5
refuses 2 "the following arguments are required: --out; see --help" train
refuses 1 "--out=$out: No such file or directory" report --out="$out"
mkdir -p "$out/lenet.ssp1.none.2"
refuses 1 "--out=$out: expected a run of --net=lenet that has ended, got none" report --out="$out"
refuses 2 "$out/lenet.ssp1.none.2 is there: choose another --out, or remove it; see --help" train --out="$out" --seeds=1,2
[[ $(ls "$out") == lenet.ssp1.none.2 ]] || { ls "$out"; exit 1; }
: >"$TEST_TMPDIR/file"
refuses 1 "$TEST_TMPDIR/file/lenet.bsp.none.1: Not a directory" train --out="$TEST_TMPDIR/file" --modes=bsp
COLUMNS=120 tools/compare_sync --help | grep -q "default: $all" || { echo "--help lacks modes"; exit 1; }
