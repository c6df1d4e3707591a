#!/usr/bin/env bash
# Ranks that Slurm's srun starts, on two nodes that are two slurmds of this host: the digest is mpirun's, a rank
# that is killed ends the others, and without PMIx they do not start.  Skipped, with the reason, where
# Slurm is not installed or does not start.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  tail -n 20 "$home"/*.log >&2
  exit 1
}

skip() {
  echo "skipped: $*"
  cat >"$XML_OUTPUT_FILE" <<'END'
<testsuites><testsuite name="srun_test"><testcase name="Ranks" status="notrun"/></testsuite></testsuites>
END
  exit 0
}

for program in munged slurmctld slurmd srun; do
  PATH=$PATH:/usr/sbin command -v $program >/dev/null || skip "no $program (tools/setup installs it)"
done

# A cluster of its own.  Paths of sockets may have 108 characters.
PATH=$PATH:/usr/sbin
home=$(mktemp -d /tmp/gyre.XXXXXX)
daemons=()
trap 'kill -KILL "${daemons[@]}" 2>/dev/null; wait; rm -rf "$home"' EXIT
mkdir "$home"/{state,n1,n2}
(umask 077 && head -c 1024 /dev/urandom >"$home/key")
user=$(id -un)
export SLURM_CONF=$home/slurm.conf
start_cluster() {
  local port=$((20000 + RANDOM % 10000))
  cat >"$SLURM_CONF" <<END
ClusterName=gyre
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
AuthInfo=socket=$home/munge
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/%n
TmpFS=$home/%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
  munged --foreground --force --key-file="$home/key" --socket="$home/munge" --pid-file="$home/munge.pid" \
    --log-file="$home/munge.log" --seed-file="$home/seed" &>"$home/munged.log" &
  daemons+=($!)
  for ((tenths = 0; tenths < 100; ++tenths)); do
    [[ -S $home/munge ]] && break
    sleep 0.1
  done
  [[ -S $home/munge ]] || skip "munged does not start: $(tail -n 3 "$home"/munge*.log)"
  slurmctld -D &>"$home/slurmctld.log" &
  daemons+=($!)
  for node in n1 n2; do
    slurmd -D -N $node &>"$home/$node.log" &
    daemons+=($!)
  done
  for ((tenths = 0; tenths < 200; ++tenths)); do
    [[ $(timeout 2 sinfo -h -t idle -o %D 2>/dev/null) == 2 ]] && return
    sleep 0.1
  done
  skip "no cluster starts: $(tail -n 3 "$home"/*.log)"
}
start_cluster

train=(tools/train --trainer="$TEST_TMPDIR/trainer.textproto" --threads=1)
sed "s|net: \"|net: \"$PWD/models/mlp/|" models/mlp/trainer.textproto >"$TEST_TMPDIR/trainer.textproto"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() { timeout 60 srun --nodes=2 --ntasks=2 "$@" 2>&1; }

wanted=$(TMPDIR=$home mpirun -np 2 --oversubscribe --mca plm isolated "${train[@]}" --steps=20 --out="$home/mpirun" | grep sha256)
said=$(ranks --mpi=pmix "${train[@]}" --steps=20 --out="$home/srun") || fail "srun: $said"
[[ -n $wanted && $said == *"$wanted"* ]] || fail "not mpirun's \"$wanted\" by srun: $said"

said=$(ranks "${train[@]}" --steps=20 --out="$home/alone") && fail "without PMIx srun ended with 0: $said"
[[ $said == *"ranks come from Open MPI's mpirun, from srun --mpi=pmix"* ]] || fail "without PMIx: $said"
[[ ! -e $home/alone ]] || fail "without PMIx something was trained"

# To files, which have what a rank has said last; srun may end without it.
ranks --mpi=pmix --error="$home/said.%t" "${train[@]}" --set=epochs=1000 --checkpoint_every=20 --out="$home/killed" >"$home/said" &
until compgen -G "$home/killed/checkpoints/step_*" >/dev/null; do
  kill -0 $! 2>/dev/null || fail "srun: $(cat "$home/said")"
  sleep 0.1
done
begin=$SECONDS
for process in /proc/[0-9]*; do
  tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx 'SLURM_PROCID=1' || continue
  [[ $(cat "$process/comm") == train ]] && kill -KILL "${process#/proc/}"
done
wait $! && fail "a rank was killed, and srun ended with 0: $(cat "$home/said")"
((SECONDS - begin < 40)) || fail "srun took $((SECONDS - begin)) s to end"
# Unless Open MPI has ended it first, for it cannot reach rank 1 anew.
grep -qE 'error: rank 0: .*rank 1 on host .* has died; (the checkpoint of step|MPI has not come back)|Open MPI failed to TCP connect' \
  "$home/said.0" || fail "a rank was killed: $(cat "$home"/said*)"
