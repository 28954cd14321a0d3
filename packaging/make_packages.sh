#!/bin/sh
# Makes the packages of a release from a directory with its files (bin, lib, share):
#   packaging/make_packages.sh STAGE VERSION ARCH OUT [KEY]
# OUT gets billow_VERSION_ARCH.deb, the bundle with install.sh, the formula of the client,
# SHA256SUMS, and with KEY (a private key of ssh) the signature. ARCH is as uname -m says it.
# BILLOW_DEB_COMPRESSION: options of dpkg-deb, for tests.
# The same files make the same bytes: all times are that of the last commit, or SOURCE_DATE_EPOCH.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
stage=$1 version=$2 arch=$3 out=$4 key=${5:-}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here/.." log -1 --format=%ct 2>/dev/null || echo 1577836800)}
export SOURCE_DATE_EPOCH
umask 022
case $arch in
  x86_64) deb_arch=amd64 ;;
  aarch64) deb_arch=arm64 ;;
  *) echo "no Debian architecture is known for $arch" >&2; exit 1 ;;
esac
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- Debian: the same files under /usr
root=$work/deb
mkdir -p "$root/DEBIAN" "$root/usr"
cp -rp "$stage/bin" "$stage/lib" "$stage/share" "$root/usr/"
rm -f "$root/usr/share/billow/install.sh"
find "$root/usr/share/man" -name '*.1' -exec gzip -9n {} +
size=$(find "$root/usr" -type f -printf '%s\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
sed -e "s/@VERSION@/$version/; s/@ARCH@/$deb_arch/; s/@SIZE@/$size/" \
  "$here/deb/control.in" >"$root/DEBIAN/control"
cp "$here/deb/postinst" "$here/deb/prerm" "$here/deb/postrm" "$root/DEBIAN/"
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum >DEBIAN/md5sums)
dpkg-deb --build --root-owner-group ${BILLOW_DEB_COMPRESSION:--Zxz} "$root" "$out/billow_${version}_$deb_arch.deb" >/dev/null

# ---- the bundle
name=billow-$version-linux-$arch
mkdir "$work/$name"
cp -rp "$stage/." "$work/$name/"
cp -p "$here/install.sh" "$work/$name/install.sh"
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
  gzip -9n >"$out/$name.tar.gz"
cp -p "$here/install.sh" "$out/install.sh"

# ---- the formula of the client, from the sources
sources=billow-$version-source.tar.gz
if git -C "$here/.." rev-parse --git-dir >/dev/null 2>&1; then
  git -C "$here/.." archive --format=tar.gz --prefix="billow-$version/" -o "$out/$sources" HEAD
  sed -e "s/@VERSION@/$version/g; s|@HOMEPAGE@|${BILLOW_HOMEPAGE:-https://billow.example}|g" \
    -e "s/@SHA256@/$(sha256sum "$out/$sources" | cut -d' ' -f1)/" "$here/brew/billow.rb.in" >"$out/billow.rb"
fi

# ---- what was made, and who says so
(cd "$out" && sha256sum -- *.deb *.tar.gz install.sh >SHA256SUMS)
if [ -n "$key" ]; then
  ssh-keygen -Y sign -q -f "$key" -n billow-release "$out/SHA256SUMS" 2>/dev/null
  printf 'release@billow %s\n' "$(ssh-keygen -y -f "$key")" >"$out/release-signers"
fi
