#!/usr/bin/env bash
# Sums over three hosts, two ranks on each, whose only way to each other is TCP; the program checks them.
# Then a link is cut: every rank ends by itself, within its time limit, and names one beyond the cut.
# several_hosts_test.sh NAMESPACES BENCH_ALLREDUCE FAILING_RANK.  Skipped, with the reason, where hosts
# cannot be made.
set -euo pipefail

if [[ $1 == --rank ]]; then  # --rank FAILING_RANK FOLDER: one of those whose link is cut
  "$2" cut 2>"$3/$OMPI_COMM_WORLD_RANK" || touch "$3/left.$OMPI_COMM_WORLD_RANK"
  sleep 60  # mpirun ends the others of a host when one has left
fi

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
[[ $status == 0 ]] || exit "$status"

cut=$(mktemp -d /tmp/gyre.XXXXXX)
trap 'rm -rf "$cut"' EXIT
timeout 60 "$1" --hosts=2 --ranks=2 "$0" --rank "$3" "$cut" &>"$cut/mpirun" &
for ((tenths = 0; tenths < 500; ++tenths)); do
  (($(find "$cut" -name 'left.*' | wc -l) < 4)) && kill -0 $! 2>/dev/null || break
  sleep 0.1
done
kill $! 2>/dev/null || true
wait $! || true
for rank in 0 1 2 3; do
  case $rank in
    0 | 1) beyond='rank [23] on host host2 has been silent for 3000 ms; nor do these answer: [23]$' ;;
    *) beyond='rank [01] on host host1 has been silent for 3000 ms; nor do these answer: [01]$' ;;
  esac
  grep -q "$beyond" "$cut/$rank" && [[ -e $cut/left.$rank ]] && continue
  echo "rank $rank has not left with \"$beyond\":"
  cat "$cut/$rank" "$cut/mpirun"
  exit 1
done
