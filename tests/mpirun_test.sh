#!/usr/bin/env bash
# Runs a GoogleTest binary under mpirun: mpirun_test.sh RANKS BINARY [ARGS...]
# BTL=tcp in the environment: ranks meet over TCP in place of shared memory, which is Gyre's choice.
# Rank 0 writes the XML report.  A time limit just below Bazel's ends every rank, which Bazel's own
# kill would not: mpirun's children live in process groups of their own.
set -euo pipefail

if [[ $1 == --rank ]]; then
  shift
  if [[ $OMPI_COMM_WORLD_RANK != 0 ]]; then
    unset XML_OUTPUT_FILE TEST_PREMATURE_EXIT_FILE TEST_SHARD_STATUS_FILE
  fi
  exec "$@"
fi

ranks=$1
shift
limit_s=$((${TEST_TIMEOUT:-60} - 10))

# Open MPI puts sockets below TMPDIR, whose path may have 108 characters in all.
TMPDIR=$(mktemp -d /tmp/gyre.XXXXXX)
trap 'rm -rf "$TMPDIR"' EXIT
export TMPDIR OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMP_NUM_THREADS=1
# Open MPI never frees its components.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}

status=0
timeout --kill-after=5 "$limit_s" \
  mpirun -np "$ranks" --oversubscribe --bind-to none --mca plm isolated \
  ${BTL:+--mca btl "self,$BTL"} --mca btl_tcp_if_include lo --mca btl_vader_single_copy_mechanism none --mca pml ob1 \
  --mca oob_tcp_if_include lo \
  "${BASH_SOURCE[0]}" --rank "$@" || status=$?
if [[ $status == 124 || $status == 137 ]]; then
  echo "mpirun_test.sh: $ranks ranks of $1 were ended after $limit_s s" >&2
fi
exit "$status"
