#!/usr/bin/env bash
# Makes both packages of this build's programs, unpacks them, and runs them: in an empty environment, from
# another folder, and after a move.  tools/package_check installs the .deb in a Debian of its own.
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

# Packed as fast as can be.
export XZ_OPT=-0 DPKG_DEB_COMPRESSOR_TYPE=none SOURCE_DATE_EPOCH=1700000000
out=$TEST_TMPDIR/"the packages"
said=$(tools/packaging/make_package "$out" 2>&1) || fail "make_package: $said"
version=$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
archive=$out/gyre-$version-linux-$(uname -m).tar.xz
deb=$out/gyre_${version}_$(dpkg --print-architecture).deb
for file in "$archive" "$deb"; do
  grep -q "^$file: [0-9]* MiB$" <<<"$said" && [[ -s $file ]] || fail "make_package: no $file: $said"
done
[[ $(ls -A "$out" | wc -l) == 2 ]] || fail "make_package left more: $(ls -A "$out")"

cd "$TEST_TMPDIR"
mkdir moved
tar -xf "$archive"
mv "$(basename "$archive" .tar.xz)" "moved/here"
ln -s "$PWD/moved/here/bin/gyre" gyre
gyre() { env -i PATH=/usr/bin:/bin TMPDIR="$TEST_TMPDIR" "$TEST_TMPDIR/gyre" "$@"; }
[[ $(gyre --version) == "gyre (Gyre) $version" ]] || fail "gyre --version: $(gyre --version)"
models=$(gyre models)
[[ $models == "$TEST_TMPDIR/moved/here/share/gyre/models" ]] || fail "gyre models: $models"

# Every command tells its flags, and so do its man page and the completion.
share=moved/here/share
compopt() { :; }
source $share/bash-completion/completions/gyre
# completes WORD...: what bash completes the last one to, between blanks.
completes() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _gyre || true
  echo " ${COMPREPLY[*]} "
}
commands=$(gyre --help | sed -n '/^Commands:/,/^$/s/^  \([a-z_]*\) .*/\1/p' | grep -vx 'models\|help')
(($(wc -w <<<"$commands") == 12)) || fail "commands: $commands"
for command in $commands; do
  help=$(gyre "$command" --help) || fail "gyre $command --help: exit code $?"
  [[ $help == "gyre $command "* && $help == *" gyre $command --"* || $command == relaunch ]] ||
    fail "gyre $command --help: $help"
  man=$(gunzip <"$share/man/man1/gyre-$command.1.gz")
  flags=$(grep -o '^  --[a-z0-9_]*' <<<"$help")
  completed=$(completes gyre "$command" --)
  for flag in $flags; do
    grep -qxF ".B \\-\\-${flag#--}" <<<"$man" || fail "$command's man page has no $flag: $man"
    [[ $completed =~ " $flag"=?" " ]] || fail "$command: $flag is not completed: $completed"
    grep -q -- "'\**$flag=*\[" $share/zsh/vendor-completions/_gyre || fail "zsh: $command has no $flag"
  done
done
[[ $(completes gyre tr) == ' train ' ]] || fail "tr: $(completes gyre tr)"
[[ $(completes gyre train --pla) == *' --plan '* ]] || fail "--pla: $(completes gyre train --pla)"
[[ $(completes gyre train --trai) == ' --trainer= ' ]] || fail "--trai: $(completes gyre train --trai)"
[[ $(gyre help export) == "$(gyre export --help)" ]] || fail "gyre help export: $(gyre help export)"
! command -v zsh >/dev/null || zsh -n $share/zsh/vendor-completions/_gyre

# WHAT [ARGUMENT]...: gyre refuses these, with this.
refuses() {
  local what=$1 code=0 said
  shift
  said=$(gyre "$@" 2>&1) || code=$?
  [[ $code == 2 && $said == "error: $what"* ]] || fail "gyre $*: $code: $said"
}
refuses 'gyre: expected a command; gyre --help lists'
refuses 'gyre: "trian" is no command;' trian
refuses 'gyre: "../bin/gyre" is no command;' ../bin/gyre
refuses 'gyre: "nothing" is no command;' help nothing
refuses 'unknown flag "trainr"; did you mean "trainer"?' train --trainr

# A net trains, and predicts a picture that the shared object beside the programs reads.
gyre train --trainer="$models/lenet/trainer.textproto" --out=run --steps=2 >train.txt 2>&1 ||
  fail "gyre train: $(cat train.txt)"
python3 - <<'END'
import struct
pixels = bytes(range(28)) * 28 * 3
with open("digit.bmp", "wb") as file:
    file.write(b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + len(pixels), 0, 54, 40, 28, 28, 1, 24, 0,
                                   len(pixels), 0, 0, 0, 0) + pixels)
END
said=$(gyre predict --run=run digit.bmp 2>&1) || fail "gyre predict: $said"
[[ $said == *digit.bmp* ]] || fail "gyre predict: $said"

# The library and its headers lie where CMake and pkg-config say.
if command -v cmake >/dev/null; then
  cmake -S moved/here/share/doc/gyre/examples -B built -DCMAKE_PREFIX_PATH="$PWD/moved/here" >cmake.txt 2>&1 &&
    cmake --build built --target frame >>cmake.txt 2>&1 || fail "cmake: $(cat cmake.txt)"
fi
cat >version.c <<'END'
#include <stdio.h>
#include "gyre/gyre_c.h"
int main(void) { return puts(gyre_version()) < 0; }
END
here=$PWD/moved/here
grep -qx "Version: $version" "$here/lib/pkgconfig/gyre.pc" || fail "gyre.pc: $(cat "$here/lib/pkgconfig/gyre.pc")"
gcc "-I$here/include" version.c -o version "-L$here/lib" -lgyre "-Wl,-rpath,$here/lib"
[[ $(./version) == "$version" ]] || fail "gyre_version: $(./version)"

# The .deb has the same files, and asks for what it needs alone.
mkdir deb
dpkg-deb -R "$deb" deb
(cd deb && md5sum --quiet -c DEBIAN/md5sums) || fail "md5sums"
differs=$(diff -r deb/usr moved/here | grep -v '^Only in moved/here: \(INSTALL.txt\|LICENSE\)$' || true)
[[ ! $differs ]] || fail "the packages differ: $differs"
dpkg-deb -c "$deb" | grep -v ' root/root ' && fail "files of others than root"
for field in "Package: gyre" "Version: $version"; do
  dpkg-deb -f "$deb" | grep -qxF "$field" || fail "control has no $field: $(dpkg-deb -f "$deb")"
done
depends=$(dpkg-deb -f "$deb" Depends) recommends=$(dpkg-deb -f "$deb" Recommends)
[[ $depends == *libdnnl2* && $depends == *libopenmpi3* ]] || fail "Depends: $depends"
[[ $depends != *opencv* && $depends != *gdal* && $recommends == *imgproc* && $recommends != *imgcodecs* ]] ||
  fail "Depends: $depends; Recommends: $recommends"

# Nothing is left of a package that is not made.
mkdir -p none
said=$(PATH=/nowhere "$BASH" "$OLDPWD/tools/packaging/make_package" none 2>&1) && fail "no dpkg-deb: made"
[[ $said == *"error: package: dpkg-deb is missing: tools/setup installs it"* && ! $(ls -A none) ]] ||
  fail "no dpkg-deb: $said"
