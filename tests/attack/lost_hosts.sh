#!/usr/bin/env bash
# Loses one host of three for good or for a moment, after a random step, without a shared file system, and lets
# tools/relaunch go on alone:  tests/attack/lost_hosts.sh TRAIN FIRST COUNT
#
# Hosts are network namespaces, each with a folder of its own; mpirun's is never lost.  A host is cut off and all
# that runs there killed; it stays away, or comes back with its disk or an empty one.  A trial trains by a sharded
# optimizer or a parameter server (bsp), must end by itself, and on as many ranks as before with the very weights of
# a run that was left alone.  A trial's number is its seed.  Prints a line a trial; exit code 1 if one fails.
set -uo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
steps=3000

# On the first host: --inside FOLDER TRAIN MODE VICTIM LINES FATE; LINES: of metrics.jsonl, that are there by then
if [[ ${1-} == --inside ]]; then
  folder=$2 train=$3 mode=$4 victim=$5 lines=$6 fate=$7
  mkdir -p "$folder/host1" && cd "$folder/host1" || exit
  "$here/tools/relaunch" --hosts="$GYRE_HOSTS" --backoff_s=1 --linger_s=4 -- mpirun -np 3 \
    sh -c 'mkdir -p "../$(hostname)" && cd "../$(hostname)" && exec "$@"' x "$train" \
    --trainer="$folder/../trainer.textproto" --threads=1 --stall_timeout_s=3 --out=run "$mode" &
  script=$!
  if [[ $victim != none ]]; then
    until (($(cat run/metrics.jsonl 2>/dev/null | wc -l) >= lines)) || ! kill -0 $script 2>/dev/null; do
      sleep 0.02
    done
    kill -0 $script 2>/dev/null && echo "lost $victim after $(wc -l <run/metrics.jsonl) steps, checkpoints:" \
      "$(ls run/checkpoints 2>/dev/null | tr '\n' ' ')"
    PATH=$PATH:/usr/sbin ip -n "$victim" link set eth0 down
    ip netns pids "$victim" | xargs -r kill -KILL
    [[ $fate != empty ]] || rm -rf "$folder/$victim"
    [[ $fate == away ]] || PATH=$PATH:/usr/sbin ip -n "$victim" link set eth0 up
  fi
  wait $script
  exit
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
train=$(realpath "$1") first=$2 count=$3
work=$(mktemp -d /tmp/gyre_hosts.XXXXXX)
trap 'rm -rf "$work"' EXIT
{ printf '\0\0\10\3\0\0\0\74\0\0\0\4\0\0\0\4'; seq 1000 | tr -d '\n' | head -c 960; } >"$work/images"
{ printf '\0\0\10\1\0\0\0\74'; for ((i = 0; i < 20; ++i)); do printf '\0\1\2'; done; } >"$work/labels"
cat >"$work/net.textproto" <<'END'
name: "small"
input { name: "image" dims: [4, 4, 1] }
input { name: "label" type: LABEL }
layer { name: "flat" flatten {} }
layer { name: "fc" dense { outputs: 32 } }
layer { name: "out" dense { outputs: 3 } }
layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} }
END
cat >"$work/trainer.textproto" <<END
net: "net.textproto"
data { train { idx { images: "images" labels: "labels" } } }
optimizer { adam {} }
learning_rate { base: 0.001 }
distributed { allreduce: "direct" }
batch: 6
steps: $steps
checkpoint_every: 100
END

trial() {  # NAME MODE VICTIM LINES FATE: its output
  mkdir "$work/$1"
  timeout 180 "$here/tools/namespaces" --hosts=3 --rate=10gbit --alone "$(realpath "$0")" --inside "$work/$1" \
    "$train" "$2" "$3" "$4" "$5" >"$work/$1.said" 2>&1
}
digest() { sed -n 's/^weights sha256 //p' "$work/$1.said"; }

modes=(--shard_optimizer --sync=bsp) fates=(away back empty)
trial straight0 --shard_optimizer none 0 away || { code=$?; cat "$work/straight0.said"; exit $code; }
trial straight1 --sync=bsp none 0 away || { cat "$work/straight1.said"; exit 1; }
failed=0
for ((number = first; number < first + count; ++number)); do
  RANDOM=$number
  mode=$((RANDOM % 2)) victim=host$((2 + RANDOM % 2)) fate=${fates[RANDOM % 3]} lines=$((1 + RANDOM * steps / 40960))
  trial "$number" "${modes[mode]}" "$victim" "$lines" "$fate"
  code=$? said=$work/$number.said verdict=ok
  ranks=$(sed -n 's/^training small: \([0-9]*\) ranks.*/\1/p' "$said" | tail -n 1)
  if ! grep -q '^lost ' "$said"; then
    verdict="FAILED: it ended before a host was lost: $(cat "$said")"
  elif [[ $code != 0 || -z $(digest "$number") ]]; then
    verdict="FAILED: code $code: $(cat "$said")"
  elif [[ $ranks == 3 && $(digest "$number") != "$(digest "straight$mode")" ]]; then
    verdict="FAILED: another digest: $(cat "$said")"
  fi
  [[ $verdict == ok ]] || failed=1
  echo "trial $number: ${modes[mode]}, $victim $fate, $(sed -n 's/^lost [a-z0-9]* //p' "$said" | head -c 60)... ended on $ranks" \
    "ranks, $(grep -o 'resumed at step [0-9]*' "$said" | tail -n 1), $(grep -c 'warning: skipped' "$said") skipped: $verdict"
  rm -rf "${work:?}/$number"
done
exit $failed
