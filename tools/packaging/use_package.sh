#!/usr/bin/env bash
# use_package.sh: uses an installed Gyre; tools/package_check runs it as root in a bare Debian.
set -euo pipefail

fail() {
  echo "error: package_check: $*" >&2
  exit 1
}
step() { printf '\n== %s\n' "$1"; }

step "Programs"
for absent in bazel g++ nvcc; do
  ! command -v $absent >/dev/null || fail "$absent is installed, so this Debian is not bare"
done
gyre --version
heavy=$(ldd /usr/lib/gyre/train | grep -iE 'not found|imgcodecs|videoio|gdal|libcu') && fail "train is linked with: $heavy"
for program in /usr/lib/gyre/*; do
  [[ $program != *.so && $program != */relaunch ]] || continue
  best=1000000
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    begin=${EPOCHREALTIME/./}
    "$program" --help >/dev/null
    took=$((${EPOCHREALTIME/./} - begin))
    ((took >= best)) || best=$took
  done
  printf '%-18s starts in %d.%d ms\n' "${program##*/}" $((best / 1000)) $((best % 1000 / 100))
done

step "LeNet"
cd "$(mktemp -d)"
lenet=$(gyre models)/lenet/trainer.textproto
gyre train --trainer="$lenet" --out=runs/lenet --epochs=1
gyre evaluate --run=runs/lenet | tee tested
awk '$1 " " $2 == "test accuracy" { right = $3 >= 0.8 } END { exit !right }' tested || fail "LeNet learns nothing"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
timeout 300 mpirun -np 2 --oversubscribe --bind-to none gyre train --trainer="$lenet" --out=runs/two --steps=50

step "Predictions"
gyre make_images --mnist=/usr/share/datasets/fashion-mnist --format=png --train=10 --test=10 --out=digits
png=$(find digits/test -name '*.png' | head -n 1)
gyre predict --run=runs/lenet "$png"
gyre export --weights=runs/lenet --to=lenet.gyre
[[ $(gyre predict --run=lenet.gyre "$png") == $(gyre predict --run=runs/lenet "$png") ]] || fail "lenet.gyre says otherwise"
# 28 x 28 x 3 zeros behind a BMP's header: what the programs open when they need it.
{
  printf 'BM\x66\x09\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x1c\0\0\0\x1c\0\0\0\x01\0\x18\0\0\0\0\0\x30\x09\0\0'
  head -c $((16 + 2352)) /dev/zero
} >black.bmp
gyre predict --run=runs/lenet black.bmp
if gyre export --help | grep '\.onnx' >/dev/null; then
  gyre export --weights=runs/lenet --to=lenet.onnx --verify
fi

step "Programs of one's own, by CMake"
DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
  cmake make g++ pkg-config python3 >/dev/null 2>&1 || fail "apt-get install cmake fails"
cp -r /usr/share/doc/gyre/examples .
cmake -S examples -B build >/dev/null
cmake --build build
ldd build/frames | grep 'libgyre.so => /'
photos=$(gyre models)/photos/trainer.textproto
gyre make_images --train=200 --test=20 --most=40 --out=images
gyre train --trainer="$photos" --set data.train.images.folder="$PWD/images/train" --steps=2 --out=runs/photos
gyre export --weights=runs/photos --to=photos.gyre
build/frames photos.gyre 2
build/frame photos.gyre
python3 examples/frame.py libgyre.so photos.gyre
build/simulation runs/simulation
gcc $(pkg-config --cflags gyre) examples/frame.c -o frame $(pkg-config --libs gyre)
[[ $(./frame photos.gyre) == "$(build/frame photos.gyre)" ]] || fail "pkg-config's program says otherwise"
