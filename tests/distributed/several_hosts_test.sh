#!/usr/bin/env bash
# Sums over three hosts, two ranks on each, whose only way to each other is TCP; the program checks them.
# several_hosts_test.sh NAMESPACES BENCH_ALLREDUCE.  Skipped, with the reason, where hosts cannot be made.
set -euo pipefail

algorithms=ring,direct,halving_doubling,recursive_doubling,hierarchical,mpi,auto
status=0
output=$("$1" --hosts=3 --ranks=2 --rate=10gbit "$2" --bytes=16,1000000 --types=F32,BF16 \
  --algorithms=$algorithms --rounds=1 2>&1) || status=$?
if [[ $status == 77 ]]; then
  echo "$output"
  cat >"$XML_OUTPUT_FILE" <<'END'
<testsuites><testsuite name="several_hosts_test"><testcase name="Sums" status="notrun"/></testsuite></testsuites>
END
  exit
fi
for algorithm in ${algorithms//,/ }; do
  for type in F32 BF16; do
    lines=$(grep -c "\"algorithm\":\"$algorithm\",\"ranks\":6,\"type\":\"$type\"" <<<"$output") || true
    [[ $lines == 2 ]] && continue
    echo "$lines lines, not 2, of $algorithm on $type (exit code $status) in:"
    echo "$output"
    exit 1
  done
done
exit "$status"
