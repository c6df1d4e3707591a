#!/usr/bin/env bash
# make_package.sh OUT: makes OUT/gyre_VERSION_ARCH.deb, and OUT/gyre-VERSION-linux-MACHINE.tar.xz, of the same
# files.  Bazel starts it in its runfiles, where the programs and texts are.  SOURCE_DATE_EPOCH in the environment is
# the time of all files: with it the same tree gives the same bytes.
set -euo pipefail
umask 022

out=$1
epoch=${SOURCE_DATE_EPOCH:-$(date +%s)}
export SOURCE_DATE_EPOCH=$epoch

fail() {
  echo "error: package: $*" >&2
  exit 1
}

for tool in dpkg-deb dpkg-shlibdeps strip xz; do
  command -v $tool >/dev/null || fail "$tool is missing: tools/setup installs it (dpkg-dev)"
done
mkdir -p "$out"
work=$(mktemp -d "$out/.package.XXXXXX")
trap 'rm -rf "$work"' EXIT

version=$(tools/train --version)
version=${version##* }
architecture=$(dpkg --print-architecture)
archive=gyre-$version-linux-$(uname -m)
deb=gyre_${version}_$architecture.deb
root=$work/deb
prefix=$root/usr
documents=$prefix/share/doc/gyre
mkdir -p "$root/DEBIAN"

# put MODE FOLDER FILE...: into the package.
put() {
  mkdir -p "$prefix/$2"
  install -p -m "$1" "${@:3}" "$prefix/$2"
}

echo "programs"
put 755 bin tools/packaging/gyre
mkdir -p "$prefix/lib/gyre"
needed=() wanted=() # by all programs; by what a program opens when it needs it, and by make_images
for program in tools/* tools/bench/*; do
  [[ -f $program && -x $program ]] || continue
  to=$prefix/lib/gyre/${program##*/}
  if [[ $(head -c 2 "$program") == '#!' ]]; then
    cp -L "$program" "$to"
  else
    strip --strip-unneeded -o "$to" "$program"
    if objdump -p "$to" | grep 'NEEDED *libopencv' >/dev/null; then wanted+=("-e$to"); else needed+=("-e$to"); fi
  fi
  chmod 755 "$to"
done
# In the runfiles of the programs that open them.
while read -r object; do
  to=$prefix/lib/gyre/${object##*/}
  strip --strip-unneeded -o "$to" "$object"
  chmod 644 "$to"
  wanted+=("-e$to")
done < <(find -L engine -name 'libgyre_*.so')

echo "library"
strip --strip-unneeded -o "$prefix/lib/libgyre.so" engine/api/libgyre.so
chmod 644 "$prefix/lib/libgyre.so"
needed+=("-e$prefix/lib/libgyre.so")
put 644 include/gyre engine/api/gyre/*.h
put 644 lib/cmake/Gyre tools/packaging/GyreConfig*.cmake
put 644 lib/pkgconfig tools/packaging/gyre.pc
sed -i "s/@VERSION@/$version/" "$prefix"/lib/cmake/Gyre/* "$prefix/lib/pkgconfig/gyre.pc"
put 644 share/doc/gyre/examples engine/api/examples/*.*

echo "texts"
for text in models/*/*.textproto models/*/README.md models/README.md; do
  put 644 "share/gyre/$(dirname "$text")" "$text"
done
put 644 share/doc/gyre README.md
for page in docs/*.* docs/benchmarks/*.*; do
  put 644 "share/doc/gyre/$(dirname "$page")" "$page"
done
gzip -9n <CHANGELOG.md >"$documents/CHANGELOG.md.gz"
python3 tools/packaging/help_pages.py "$prefix" "$version"

# What is linked with OpenCV is recommended alone: it brings 200 MB.
mkdir -p "$work/debian"
printf 'Source: gyre\n\nPackage: gyre\nArchitecture: %s\n' "$architecture" >"$work/debian/control"
needs=$(cd "$work" && dpkg-shlibdeps -O "${needed[@]}" -dRecommends "${wanted[@]}")
depends=$(sed -n 's/^shlibs:Depends=//p' <<<"$needs")
recommends=$(sed -n 's/^shlibs:Recommends=//p' <<<"$needs")
[[ $depends && $recommends ]] || fail "dpkg-shlibdeps finds no packages: $needs"

cat >"$documents/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Gyre

Files: *
Copyright: $(date -u -d "@$epoch" +%Y) the authors of Gyre
License: Apache-2.0
 Debian has the text in /usr/share/common-licenses/Apache-2.0.
Comment:
 Programs contain code of Debian's libabsl-dev, libcsv-dev, libdeflate-dev,
 libjpeg-dev, libpng-dev, liburing-dev, libutf8proc-dev and libwebp-dev, under
 the licenses of these packages. Part of it is the work of the Independent JPEG
 Group.
END
maintainer="${DEBFULLNAME:-Gyre} <${DEBEMAIL:-gyre@packages.invalid}>"
gzip -9n >"$documents/changelog.gz" <<END
gyre ($version) unstable; urgency=medium

  * CHANGELOG.md.gz says what is new.

 -- $maintainer  $(date -R -u -d "@$epoch")
END

# The archive: what a .deb leaves to Debian, it says.
cp -rp "$prefix" "$work/$archive"
cp -p LICENSE "$work/$archive/"
names() { tr ',' '\n' <<<"$1" | awk '{ printf " %s", $1 }'; }
cat >"$work/$archive/INSTALL.txt" <<END
Gyre $version runs in any folder of a Debian 12 with these packages:

  apt install$(names "$depends")

For TIFF, BMP, JPEG 2000, drawn text and make_images, for mpirun, and for the data of models/:

  apt install$(names "$recommends") openmpi-bin openssh-client dataset-fashion-mnist

Start bin/gyre by its path, or put a link to it in a folder of PATH.  bin/gyre --help lists the commands.
END

cat >"$root/DEBIAN/control" <<END
Package: gyre
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$prefix" | cut -f 1)
Section: science
Priority: optional
Depends: $depends
Recommends: dataset-fashion-mnist, $recommends, openmpi-bin, openssh-client
Description: trains neural nets, on one machine or many
 A model is a text file. Gyre plans its shapes, memory and communication, and
 trains it in one process or, under mpirun, in many. Trained nets predict,
 are measured, and are exported for other programs.
 .
 libgyre.so, with headers for C and C++, does the same in a program.
END
echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

echo "compressing; it takes a minute"
# A dictionary longer than all programs stores once what they have in common: half of what -6 makes.
export XZ_OPT=${XZ_OPT--9} DPKG_DEB_COMPRESSOR_LEVEL=${DPKG_DEB_COMPRESSOR_LEVEL-9}
tar -C "$work" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner \
  -cJf "$work/$archive.tar.xz" "$archive" &
dpkg-deb --root-owner-group --build "$root" "$work/$deb" >/dev/null
wait $!
mv "$work/$archive.tar.xz" "$work/$deb" "$out/"
for file in "$archive.tar.xz" "$deb"; do
  echo "$out/$file: $((($(stat -c %s "$out/$file") + (1 << 19)) >> 20)) MiB"
done
echo "to install: sudo apt install $out/$deb"
