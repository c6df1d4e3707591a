#!/usr/bin/env bash
# train --send_data: three ranks, of which rank 0 alone has the data's files; the other two have a folder of
# temporary files of their own, as a second host has.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
home=$(mktemp -d /tmp/gyre.XXXXXX)  # Open MPI's sockets need short paths
trap 'rm -rf "$home"' EXIT
train=$PWD/tools/train

# Reviews in many small files, an empty one and a longer one among them; they are read by their folder.
for host in host0 host1; do
  mkdir -p "$home/$host"/{tmp,data}
  cat >"$home/$host/trainer.textproto" <<'END'
net: "net.textproto"
data { train { reviews { folder: "data/train" words: 50 length: 8 } } test { reviews { folder: "data/test" } } }
optimizer { adam {} }
learning_rate { base: 0.01 }
batch: 12
epochs: 3
END
  cat >"$home/$host/net.textproto" <<'END'
name: "words"
input { name: "text" dims: [8] type: LABEL }
input { name: "label" type: LABEL }
layer { name: "embed" input: "text" embedding { vocabulary: 50 width: 4 } }
layer { name: "flat" flatten {} }
layer { name: "fc" dense { outputs: 2 } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
END
done
for set in train test; do
  mkdir -p "$home/host0/data/$set"/{neg,pos}
  for ((i = 0; i < 60; ++i)); do
    echo "a bad word$((i % 7)) of $i" >"$home/host0/data/$set/neg/$i.txt"
    echo "a good word$((i % 5)) of $i" >"$home/host0/data/$set/pos/$i.txt"
  done
  seq -f 'word%g' 1 50 | tr '\n' ' ' >"$home/host0/data/$set/pos/long.txt"
done

# NAME [ARGUMENT...]: rank 0 in host0's folders, the others in host1's.
run() {
  local name=$1
  shift
  TMPDIR=$home timeout 60 mpirun -np 3 --oversubscribe --bind-to none --mca plm isolated --mca btl self,vader \
    --mca btl_vader_single_copy_mechanism none bash -c '
      host=host$((OMPI_COMM_WORLD_RANK > 0))
      cd "$1/$host" || exit
      export TMPDIR=$1/$host/tmp
      shift
      exec "$@"' x "$home" "$train" --trainer=trainer.textproto --threads=1 --out="$home/runs/$name" "$@" 2>&1
}

said=$(run lacking) && fail "ranks without data trained: $said"
[[ $said == *"data.train: "*"data/train"* ]] || fail "ranks without data: $said"
sent=$(run sent --send_data) || fail "--send_data: $sent"
grep -q '^data: 242 files of 0.0 MiB sent to 1 host$' <<<"$sent" || fail "not said what was sent: $sent"
left=$(find "$home"/host?/tmp -name 'gyre_data*')
[[ -z $left ]] || fail "left behind: $left"
[[ -z $(ls "$home/host1/data") ]] || fail "files beside the trainer's"
again=$(run resumed --send_data --steps=10) || fail "--send_data --steps: $again"

alone=$(cd "$home/host0" && "$train" --trainer=trainer.textproto --threads=1 --out="$home/runs/alone" --steps=1 --send_data 2>&1) ||
  fail "--send_data of one rank: $alone"
grep -q '^data: nothing sent, because all ranks are on one host$' <<<"$alone" || fail "--send_data of one rank: $alone"

cp -r "$home/host0/data" "$home/host1"
wanted=$(run everywhere | grep sha256)
[[ -n $wanted && $sent == *"$wanted"* ]] || fail "not \"$wanted\", as with the files everywhere: $sent"
rm -rf "$home/host1/data"

# What is wrong with the data is rank 0's error, and nothing is left.
mv "$home/host0/data/test" "$home/gone"
said=$(run missing --send_data) && fail "missing data: $said"
[[ $said == *"data.test: "*"data/test"* ]] || fail "missing data: $said"
mv "$home/gone" "$home/host0/data/test"

# Nobody else can read what is sent, whatever the umask; what a killed run has left goes with the next one.
left=$home/host1/tmp/gyre_data_1
mkdir -m 700 "$left" "$home/host1/tmp/gyre_data_mine"
printf 'a temporary folder of a run of Gyre\n' >"$left/.gyre_temporary"
chmod 600 "$left/.gyre_temporary"
(umask 0 && run again --send_data --steps=10) >/dev/null || fail "--send_data beside an abandoned folder"
[[ $(ls "$home/host1/tmp") == gyre_data_mine ]] || fail "beside an abandoned folder: $(ls "$home/host1/tmp")"
rmdir "$home/host1/tmp/gyre_data_mine"

rmdir "$home/host1/tmp" && touch "$home/host1/tmp"
said=$(run nowhere --send_data) && fail "no temporary folder: $said"
[[ $said == *"rank 1 cannot make a folder such as "*"/tmp/gyre_data"*TMPDIR* ]] || fail "no temporary folder: $said"
left=$(find "$home"/host?/tmp -name 'gyre_data*')
[[ -z $left ]] || fail "left behind: $left"
