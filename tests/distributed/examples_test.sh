#!/usr/bin/env bash
# A wrong word is said once, by rank 0, and each rank ends with 2.
# examples_test.sh MPIRUN_TEST_SH LINEAR_REGRESSION MATRIX_FACTORISATION
set -uo pipefail

runner=$1 linear=$2 matrix=$3

# MESSAGE PROGRAM [WORD...]
refuses() {
  local message=$1 said code=0
  shift
  said=$("$runner" 3 "$@" 2>&1) || code=$?
  [[ $code == 2 && $(grep error <<<"$said") == "error: $message" ]] && return
  echo "$*: exit code $code, expected 2 and \"$message\" once: $said"
  exit 1
}
refuses "expected no arguments, got --steps=3" "$linear" --steps=3
refuses "expected bsp, ssp or async, got bsq" "$matrix" bsq
refuses "expected bsp, ssp or async, got 2" "$matrix" ssp 2
