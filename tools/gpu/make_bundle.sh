#!/usr/bin/env bash
# make_bundle.sh OUT: collects the bundle.  Bazel starts it in its runfiles, where the programs and texts
# of the bundle are.  OUT must not exist, or be a bundle, which is replaced.  TREE in the environment names
# a working tree that travels beside the bundle: both together must fit.
set -euo pipefail

out=$1
data=/usr/share/datasets/fashion-mnist
most_bytes=$((64 << 20))
training_images=12000

fail() {
  echo "error: $*" >&2
  exit 1
}

mib() { echo "$((($1 + (1 << 19)) >> 20)) MiB"; }

# What git would take along: tracked files, and those that it does not ignore; OUT is counted by itself.
# A file that is deleted, and not yet so for git, counts nothing.
tree_bytes() (
  set +o pipefail
  git -C "$1" ls-files -z --cached --others --exclude-standard |
    { cd "$1" && xargs -0 -r stat -c "%s %n" --; } 2>/dev/null |
    awk -v out="${out#"$(realpath "$1")"/}/" \
      '{ name = substr($0, index($0, " ") + 1) } index(name, out) != 1 { sum += $1 } END { print sum + 0 }'
)

# check_fits BYTES: with the tree.
check_fits() {
  (($1 + beside <= most_bytes)) ||
    fail "bundle and tree have $(($1 + beside)) bytes, more than the $most_bytes that may travel"
}

[[ ! -e $out || -e $out/programs.tar.xz ]] || fail "$out is there already, and no bundle"
[[ -e $data ]] || fail "$data is missing: install dataset-fashion-mnist (tools/setup does)"
beside=0
[[ -z ${TREE:-} ]] || beside=$(tree_bytes "$TREE")
check_fits 0
rm -rf "$out"
mkdir -p "$out/data"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

mkdir -p "$staging/tools/bench" "$staging/tests" "$staging/lib"
strip -o "$staging/tests/device_tests" tests/any_device/device_tests
for program in train evaluate bench/bench_{net,ops,layers}; do
  strip -o "$staging/tools/$program" "tools/$program"
done

# The libraries that they are linked with, but glibc's, which belong to the machine's loader.
find "$staging" -type f -exec ldd {} + | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do
    case $(basename "$library") in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | libresolv.so.* | librt.so.*) ;;
    *) cp -L "$library" "$staging/lib/" ;;
    esac
  done
glibc=$(find "$staging" -type f -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sort -Vu |
  tail -n 1)

# A dictionary longer than two programs, so that what they have in common is stored once; and the first
# training images of all.
python3 - "$staging" "$out" "$data" $training_images <<'EOF'
import gzip, lzma, os, struct, sys, tarfile
staging, out, data, images = sys.argv[1:4] + [int(sys.argv[4])]
os.chdir(staging)
filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
with lzma.open(out + "/programs.tar.xz", "w", filters=filters) as file, \
        tarfile.open(fileobj=file, mode="w") as archive:
    for folder in sorted(os.listdir(".")):
        archive.add(folder)
for name in os.listdir(data):
    with gzip.open(os.path.join(data, name)) as file:
        magic, count = struct.unpack(">II", file.read(8))
        dims = file.read(4 * (magic & 255) - 4)
        of_one = 1
        for dim in struct.unpack(">%dI" % (len(dims) // 4), dims):
            of_one *= dim
        kept = min(count, images) if name.startswith("train-") else count
        with open(os.path.join(out, "data", name), "wb") as to, \
                gzip.GzipFile(filename="", mode="wb", fileobj=to, mtime=0) as packed:
            packed.write(struct.pack(">II", magic, kept) + dims + file.read(kept * of_one))
EOF
for text in models/*/*.textproto; do
  mkdir -p "$out/$(dirname "$text")"
  sed "s|$data|../../data|" "$text" >"$out/$text"
done
mkdir "$out/models/lstm_512"
cp -L tools/peer/lstm_512.textproto "$out/models/lstm_512/net.textproto"
cp -L tools/gpu/*.py tools/peer/peer_{nets,pytorch}.py tools/gpu/run_all "$out/"
sed "s/@GLIBC@/${glibc#GLIBC_}/" tools/gpu/README.bundle.md >"$out/README.md"

bytes=$(du -sb "$out" | cut -f 1)
echo "$out: $(mib "$bytes"), of it programs $(mib "$(stat -c %s "$out/programs.tar.xz")")," \
  "images $(mib "$(du -sb "$out/data" | cut -f 1)"); beside it the working tree, $(mib "$beside")"
check_fits "$bytes"
echo "needs glibc ${glibc#GLIBC_}; there: $(basename "$out")/run_all A, and then $(basename "$out")/run_all B"
