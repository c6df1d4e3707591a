#!/usr/bin/env bash
# A rank that fails, or an MPI that does not start, ends the job: mpirun must come back within 60 s
# (a busy machine's; an idle one takes 1 to 5), with an error, and say why.
# mpi_abort_test.sh MPIRUN_TEST_SH BINARY
set -euo pipefail

limit_s=60
# mpirun_test.sh ends the ranks 10 s before this.
export TEST_TIMEOUT=$((2 * limit_s + 10))
failed=$(mktemp -d)/failed
trap 'rm -rf "$(dirname "$failed")"' EXIT

# expect FAULT RANKS PATTERN: rank 1 of RANKS has FAULT; the output has PATTERN.
expect() {
  local fault=$1 ranks=$2 pattern=$3 status=0 output begin=$SECONDS
  output=$("$runner" "$ranks" "$binary" "$fault" 2>&1) || status=$?
  if ((SECONDS - begin > limit_s)); then
    echo "FAIL: $fault on $ranks ranks took $((SECONDS - begin)) s"
  elif [[ $status == 0 && -z ${OMPI_MCA_orte_enable_recovery-} ]]; then
    echo "FAIL: $fault on $ranks ranks: mpirun ended with 0"
  elif ! grep -qE "$pattern" <<<"$output"; then
    echo "FAIL: $fault on $ranks ranks: no \"$pattern\" in:"
    echo "$output"
  else
    return 0
  fi
  touch "$failed"
}

runner=$1
binary=$2
# Those that end by a time limit of theirs, all at once.
silent='rank 1 on host [^ ]+ has been silent for 3000 ms'
expect hang 3 "sum of 1000000 F32 \"step\": $silent; it answers, but has not come here" &
expect stop 3 "sum of 1000000 F32 \"step\": $silent\$" &
mpi_init='error: DEADLINE_EXCEEDED: MPI_Init has not returned on host [^ ]+ for [0-9]+ ms: rank 1 \(process [0-9]+\)'
expect late 2 "$mpi_init has not come to MPI_Init\$" &
expect stop_early 3 "$mpi_init is stopped\$" &
mpi_finalize='error: DEADLINE_EXCEEDED: MPI_Finalize has not returned on host [^ ]+ for 3000 ms'
expect stays 2 "$mpi_finalize: another rank has not come to its end\$" &
expect stop_late 2 "$mpi_finalize: rank 1 \(process [0-9]+\) is stopped\$" &
# As under a launcher that goes on when a rank dies; mpirun then ends with 0.
OMPI_MCA_orte_enable_recovery=1 expect kill 3 'rank 1 on host [^ ]+ has died' &
OMPI_MCA_orte_enable_recovery=1 BTL=tcp expect unread 2 'rank 1 on host [^ ]+ has died' &
wait
for ranks in 2 3; do
  expect kill "$ranks" 'signal 9'
  expect abort_busy "$ranks" 'rank 1 lost its data'
done
expect exit 3 'exit(ed|ing)'
expect abort_idle 3 'rank 1 lost its data'
expect abort_elsewhere 3 'rank 1 lost its data'
# Every rank says so, also the one that has no message from rank 1.
said='ranks disagree: rank [01] is at sum of (99|100)000 F32 "fc", rank [123] at sum of (99|100)000 F32 "fc"'
for ranks in 2 4; do
  expect mismatch "$ranks" "$said"
done
OMPI_MCA_coll=none_such expect start 2 ''  # Open MPI ends the ranks itself, often without a word
expect longer 2 'error: INTERNAL: .*MPI_Testsome: MPI_ERR_TRUNCATE'
expect shorter 2 'error: INTERNAL: rank 0 sent 900 bytes, expected 1000'
[[ ! -e $failed ]]
