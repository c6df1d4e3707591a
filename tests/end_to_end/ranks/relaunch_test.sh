#!/usr/bin/env bash
# tools/relaunch: its mistakes, a rank that is killed, and a host that is lost, of three that are network
# namespaces; that part is skipped, with the reason, where those cannot be made.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# On the first of three hosts: --inside FOLDER NAME VICTIM.  Trains into FOLDER/NAME, and once there is a
# checkpoint kills a rank (`rank`), or takes a host away and kills all that runs on it (`host3`).  Of a name with
# `apart` each host has a folder of its own, and an optimizer's shard.
if [[ ${1-} == --inside ]]; then
  folder=$2 out=$2/$3 victim=$4 relaunch=$PWD/tools/relaunch
  train=("$PWD/tools/train" --trainer="$folder/trainer.textproto" --threads=1 --stall_timeout_s=3)
  if [[ $3 == *apart ]]; then
    out=$out/host1
    mkdir -p "$out" && cd "$out" || exit
    train=(-np 3 sh -c 'mkdir -p "../$(hostname)" && cd "../$(hostname)" && exec "$@"' x "${train[@]}" --out=. --shard_optimizer)
  else
    train+=(--out="$out")
  fi
  "$relaunch" --hosts="$GYRE_HOSTS" --backoff_s=1 --linger_s=4 -- mpirun "${train[@]}" &
  script=$!
  until compgen -G "$out/checkpoints/step_*" >/dev/null; do
    kill -0 $script 2>/dev/null || break
    sleep 0.02
  done
  if [[ $victim == rank ]]; then
    ip netns pids host2 | while read -r pid; do
      [[ $(cat "/proc/$pid/comm") != train ]] || kill -KILL "$pid"
    done
  elif [[ $victim == host* ]]; then
    PATH=$PATH:/usr/sbin ip -n "$victim" link set eth0 down
    ip netns pids "$victim" | xargs -r kill -KILL
  fi
  wait $script
  exit
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$TEST_TMPDIR/run
mkdir "$folder"

# WHAT [ARGUMENT...]: relaunch refuses these, with this.
refuses() {
  local what=$1 said code=0
  shift
  said=$(tools/relaunch "$@" 2>&1) || code=$?
  [[ $code == 2 && $said == "error: relaunch: "*"$what"* ]] || fail "relaunch $*: code $code, not '$what': $said"
}
printf '# nobody\n\n' >"$folder/nobody"
printf 'node1 slots=2\nnode2\n' >"$folder/slots"
help=$(tools/relaunch --help) || fail "relaunch --help: exit code $?"
! grep '.\{81\}' <<<"$help" || fail "relaunch --help is wider than 80 columns"
refuses 'no command'
refuses 'mpirun: the command comes after --' mpirun train --out=a
refuses 'unknown flag --host=a' --host=a -- mpirun train --out=a
refuses '--restarts=-1: expected an integer' --restarts=-1 -- mpirun train --out=a
refuses 'the command is train, expected mpirun' -- train --out=a
refuses 'has no --out=DIR' -- mpirun -np 2 train
refuses 'give a host file by --hosts' -- mpirun --hostfile hosts train --out=a
refuses 'cannot be read' --hosts="$folder/none" -- mpirun train --out=a
refuses 'it names no host' --hosts="$folder/nobody" -- mpirun train --out=a
refuses 'slots:2: expected NAME slots=N' --hosts="$folder/slots" -- mpirun train --out=a
for line in 'a slots=0' 'a slots=-1' 'a slots=two' 'a slots=1x' 'a slots=9999999' '-oProxyCommand=a slots=1' 'a;b slots=1'; do
  printf '%s\n' "$line" >"$folder/line"
  refuses "line:1: expected NAME slots=N, N from 1 to 999999, and got \"$line\"" --hosts="$folder/line" -- mpirun train --out=a
done
printf 'node1 slots=1\nnode2 slots=1\nnode1 slots=1\n' >"$folder/twice"
refuses 'twice:3: node1 is named before' --hosts="$folder/twice" -- mpirun train --out=a
printf 'node1 slots=2\r\nnode2 slots=1\r\n' >"$folder/three"
refuses "-np 4: $folder/three has slots for 3" --hosts="$folder/three" -- mpirun -np 4 train --out=a
refuses '-np x: expected a number of ranks' --hosts="$folder/three" -- mpirun -np x train --out=a
refuses '--hosts: expected a file after it' --hosts -- mpirun train --out=a
refuses '--hosts=: expected a file' --hosts= -- mpirun train --out=a
refuses 'write --restarts=N, in one word' --restarts 3 -- mpirun train --out=a
refuses 'write --resume=latest, in one word' -- mpirun train --out=a --resume latest
refuses '/nowhere/mpirun: there is no such program' -- /nowhere/mpirun train --out=a

printf 'far1 slots=1\nfar2 slots=1\n' >"$folder/far"
said=$(tools/relaunch --hosts="$folder/far" -- mpirun --mca plm_rsh_agent false train --out=a 2>&1)
[[ $? == 1 && $said == "error: relaunch: no host answers: far1 far2" ]] || fail "no host answers: $said"

for rate in foo 0 0.0gbit -1gbit 1.gbit 1..5gbit 10gb ''; do
  said=$(tools/namespaces --rate="$rate" true 2>&1)
  [[ $? == 2 && $said == "namespaces: --rate=$rate: expected more than 0 as tc writes it, such as 200mbit or 1.5gbit" ]] || fail "--rate=$rate: $said"
done

# 60 samples of 4 x 4, which stay in memory.
{ printf '\0\0\10\3\0\0\0\74\0\0\0\4\0\0\0\4'; seq 1000 | tr -d '\n' | head -c 960; } >"$folder/images"
{ printf '\0\0\10\1\0\0\0\74'; for ((i = 0; i < 20; ++i)); do printf '\0\1\2'; done; } >"$folder/labels"
cat >"$folder/net.textproto" <<'END'
name: "small"
input { name: "image" dims: [4, 4, 1] }
input { name: "label" type: LABEL }
layer { name: "flat" flatten {} }
layer { name: "fc" dense { outputs: 3 } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
END
cat >"$folder/trainer.textproto" <<'END'
net: "net.textproto"
data { train { idx { images: "images" labels: "labels" } } }
optimizer { sgd { momentum: 0.9 } }
learning_rate { base: 0.01 }
precision: F64
batch: 6
steps: 1500
checkpoint_every: 100
END

# The train of a mistake is not started again; that of a lost rank is, at most so many times.  When a rank that is
# alone has ended, mpirun has nobody to give time to.
export OMPI_MCA_odls_base_sigkill_timeout=0
said=$(tools/relaunch --backoff_s=0 -- mpirun -np 1 tools/train --nonsense --out="$folder/a" 2>&1)
[[ $? == 2 && $said == *"wrong flags: it is not started again"* ]] || fail "wrong flags: $said"
said=$(tools/relaunch --backoff_s=0 -- mpirun -np 1 tools/train --trainer=none --out="$folder/a" 2>&1)
[[ $? == 1 && $said == *"no rank or host was lost: it is not started again"* ]] || fail "no trainer: $said"
said=$(tools/relaunch --backoff_s=0 --restarts=2 -- mpirun -np 1 sh -c 'kill -KILL $$' x \
  --out="$folder/a" 2>&1)
[[ $? == 137 && $said == *"started again 2 times, which is all"* && \
  $said == *"no checkpoint in $folder/a yet: it starts from the beginning"* ]] || fail "killed: $said"
# Nor is a crash, such as a failed check: it would come again.
for signal in ABRT SEGV; do
  said=$(tools/relaunch --backoff_s=0 -- mpirun -np 1 sh -c "kill -$signal \$\$" x --out="$folder/a" 2>&1)
  [[ $? == $((128 + $(kill -l $signal))) && $said == *"a rank has crashed: it is not started again"* ]] ||
    fail "$signal: $said"
done

# A folder may have any name.  The one that is killed says how it was called.
odd=$'-a b\t\n\'"$HOME`\\*[1]?'
mkdir -p "$folder/$odd/checkpoints/step_00000100"
tools=$PWD/tools
said=$(cd "$folder" && "$tools/relaunch" --backoff_s=0 --restarts=1 -- mpirun -np 1 \
  sh -c 'for word; do printf "<%s>" "$word"; done; kill -KILL $$' x --out="$odd" 2>&1)
[[ $? == 137 && $said == *"<--out=$odd><--resume=latest>"* ]] || fail "odd name: $said"
unset OMPI_MCA_odls_base_sigkill_timeout

# Where too few hosts answer, `-np` is lowered, and `--servers` to what leaves a rank that trains.
# FLAG SERVED SLOTS: of 3 ranks SLOTS are left, and with this flag SERVED of them only serve.
keeps() {
  local flag=$1 served=$2 slots=$3 name="left$1$3" said
  printf 'localhost slots=%s\nfar slots=%s\n' "$slots" $((3 - slots)) >"$folder/left"
  said=$(tools/relaunch --hosts="$folder/left" -- mpirun -np 3 --bind-to none --mca plm_rsh_agent false tools/train \
    --trainer="$folder/trainer.textproto" --out="$folder/$name" --threads=1 --steps=5 --sync=bsp $flag 2>&1) ||
    fail "$flag, $slots left: $said"
  grep -Eq ": $slots ranks? of " <<<"$said" || fail "$flag, $slots left: $said"
  if [[ -z $served ]]; then
    [[ $said != *lowered* ]] || fail "$flag, $slots left: $said"
  else
    grep -qx "relaunch: ranks left: $slots; $flag is lowered to $served, so that one trains" <<<"$said" ||
      fail "$flag, $slots left: $said"
  fi
}
keeps --servers=2 1 2
keeps --servers=2 0 1
keeps --servers=1 '' 2

# Ctrl-C ends it at once.
tools/relaunch -- mpirun -np 1 sh -c ': >"$0" && exec sleep 60' "$folder/begun" --out="$folder/a" &>"$folder/said" &
until [[ -e $folder/begun ]]; do
  kill -0 $! || fail "not begun: $(cat "$folder/said")"
  sleep 0.1
done
kill -TERM $!
SECONDS=0
wait $!
((SECONDS < 30)) || fail "ends $SECONDS s after a signal"
grep -q 'relaunch: stopped' "$folder/said" || fail "stopped: $(cat "$folder/said")"

status=0
said=$(tools/namespaces --hosts=1 sh -c 'printf "<%s>" "$@"' x "$odd" 2>&1) || status=$?
[[ $status == 77 || $said == *"<$odd>"* ]] || fail "odd name in a namespace: $status, $said"

digest() { sed -n 's/^weights sha256 //p' "$folder/said.$1"; }
last_loss() { cat "$folder/$1/metrics.jsonl" "$folder/$1/host1/metrics.jsonl" 2>/dev/null | tail -n 1 | sed -n 's/.*"step":1500,"loss":\([^,]*\),.*/\1/p'; }
for name in none rank host3_apart; do
  status=0 victim=${name%_apart}
  timeout 100 tools/namespaces --hosts=3 --rate=10gbit --alone "$0" --inside "$folder" "$name" "$victim" \
    &>"$folder/said.$name" || status=$?
  if [[ $status == 77 ]]; then
    cat "$folder/said.$name"
    exit
  fi
  said=$(cat "$folder/said.$name")
  [[ $status == 0 && -n $(digest "$name") ]] || fail "$name: code $status: $said"
  [[ $name == none ]] || grep -q 'restart 1 of 3' <<<"$said" || fail "$name: no restart: $said"
  case $victim in
    # All ranks come back: the same bits.
    rank) [[ $(digest "$name") == "$(digest none)" ]] || fail "$name: another digest: $said" ;;
    # One is gone: the same within the rounding of sums.
    host3)
      grep -q 'resumed at step' <<<"$said" || fail "$name: not resumed: $said"
      grep -q 'left out: 10.77.0.3' <<<"$said" || fail "$name: host3 not named: $said"
      grep -q '2 ranks' <<<"$said" || fail "$name: not on 2 ranks: $said"
      awk -v a="$(last_loss "$name")" -v b="$(last_loss none)" \
        'BEGIN { exit !(a != "" && b > 0 && (a - b) ^ 2 < (1e-9 * b) ^ 2) }' ||
        fail "$name: loss $(last_loss "$name"), not $(last_loss none): $said" ;;
  esac
done
