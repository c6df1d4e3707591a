#!/usr/bin/env bash
# make_bundle.sh OUT: collects the bundle.  Bazel starts it in its runfiles, where the programs and texts
# of the bundle are.  OUT must not exist, or be a bundle, which is replaced.
set -euo pipefail

out=$1
data=/usr/share/datasets/fashion-mnist
most_bytes=$((64 << 20))

fail() {
  echo "error: $*" >&2
  exit 1
}

[[ ! -e $out || -e $out/programs.tar.xz ]] || fail "$out is there already, and no bundle"
[[ -e $data ]] || fail "$data is missing: install dataset-fashion-mnist (tools/setup does)"
rm -rf "$out"
mkdir -p "$out/data"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

for program in tools/{train,evaluate,bench_net,bench_ops} tests/{layers,primitives,runtime,training}/*_test; do
  mkdir -p "$staging/$(dirname "$program")"
  strip -o "$staging/$program" "$program"
done

# The libraries that they are linked with, but glibc's, which belong to the machine's loader.
mkdir "$staging/lib"
find "$staging" -type f -exec ldd {} + | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do
    case $(basename "$library") in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | libresolv.so.* | librt.so.*) ;;
    *) cp -L "$library" "$staging/lib/" ;;
    esac
  done
glibc=$(find "$staging" -type f -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sort -Vu |
  tail -n 1)

# A dictionary longer than two programs, so that what they have in common is stored once.
python3 - "$staging" "$out/programs.tar.xz" <<'EOF'
import lzma, os, sys, tarfile
os.chdir(sys.argv[1])
filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
with lzma.open(sys.argv[2], "w", filters=filters) as file, tarfile.open(fileobj=file, mode="w") as archive:
    for folder in sorted(os.listdir(".")):
        archive.add(folder)
EOF
for text in models/*/*.textproto; do
  mkdir -p "$out/$(dirname "$text")"
  sed "s|$data|../../data|" "$text" >"$out/$text"
done
cp -L "$data"/*.gz "$out/data/"
cp -L tools/gpu/*.py tools/peer/peer_{nets,pytorch}.py tools/gpu/run_all "$out/"
sed "s/@GLIBC@/${glibc#GLIBC_}/" tools/gpu/README.bundle.md >"$out/README.md"

bytes=$(du -sb "$out" | cut -f 1)
((bytes <= most_bytes)) || fail "$out has $bytes bytes, more than $most_bytes"
echo "$out: $((bytes >> 20)) MiB; needs glibc ${glibc#GLIBC_}"
