#!/usr/bin/env bash
# Starts of two ranks in two loops at once, each loop in a pid namespace of its own, both with the same
# /dev/shm: what two containers on one host do.  By hand, as root: start_loops.sh [STARTS] [COMMAND...]
# Process ids meet there, and Open MPI names its shared memory by them (shared_memory_folder.h).
# A TMPDIR for each: mpirun itself names its session's folder by its process id.
set -uo pipefail

loop() {
  local i status failed=0 hung=0
  for ((i = 0; i < starts; ++i)); do
    timeout --kill-after=5 30 mpirun -np 2 --oversubscribe --bind-to none --mca btl self,vader \
      --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include lo --mca plm isolated \
      "$@" >"$TMPDIR/out" 2>&1
    status=$?
    ((status == 0)) && continue
    if ((status == 124 || status == 137)); then ((++hung)); else ((++failed)); fi
    echo "start $i ended with $status:"
    tail -n 5 "$TMPDIR/out"
  done
  echo "$starts starts: $failed failed, $hung hung"
  ((failed + hung == 0))
}

starts=${1:-100}
if [[ ${2-} == --loop ]]; then
  shift 2
  loop "$@"
  exit
fi
self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "$self")/../.." || exit
shift $(($# > 0))
(($# > 0)) || set -- bazel-bin/tools/train --trainer=models/mlp/trainer.textproto --plan
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
pids=()
for name in a b; do
  mkdir "$scratch/$name"
  TMPDIR=$scratch/$name unshare --pid --fork --mount-proc --kill-child \
    "$self" "$starts" --loop "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit "$status"
