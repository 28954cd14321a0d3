# ./dev bundle [--arch x86_64|aarch64]: build dist/billow-VERSION-linux-ARCH.tar.gz, which runs without installation.
# It needs glibc 2.36 or newer and nothing else, because Billow links everything but glibc
# statically. For another architecture, Debian's cross compiler and the libraries of that
# architecture are used (docs/adr/0004).
arch=$(uname -m)
[ "${1:-}" = --arch ] && arch=$2
version=$(sed -n 's/^project(billow VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
install $build_packages binutils
web_packages
bundle_build=$root/build-bundle-$arch
set -- -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBILLOW_TESTS=OFF -DBILLOW_BENCH=OFF -DBILLOW_REPRODUCIBLE=ON
if [ "$arch" != "$(uname -m)" ]; then
  case $arch in
    x86_64) deb=amd64 ;;
    aarch64) deb=arm64 ;;
    *) die "cannot build a bundle for $arch; use x86_64 or aarch64" ;;
  esac
  triple=$arch-linux-gnu
  package_triple=$(echo "$triple" | tr _ -)
  dpkg --print-foreign-architectures | grep -qx "$deb" ||
    { as_root dpkg --add-architecture "$deb"; as_root apt-get update -qq; }
  install "g++-$package_triple" "binutils-$package_triple"
  # Only the static libraries are needed. They are unpacked beside the build: this machine's
  # packages stay unchanged.
  sysroot=$root/.dev/sysroot-$arch
  mkdir -p "$sysroot"
  unpack() {
    [ ! -f ".have-$1" ] || return 0
    apt-get download -qq "$1:$deb" && dpkg-deb -x "$1"_*.deb . && rm -f "$1"_*.deb && touch ".have-$1"
  }
  libraries='libssl-dev libsqlite3-dev libboost-json1.81-dev zlib1g-dev libzstd-dev libpugixml-dev libyaml-dev libnghttp2-dev'
  (cd "$sysroot" && for package in $libraries; do unpack "$package" || exit 1; done) ||
    die "could not fetch the $arch libraries"
  folder=$sysroot/usr/lib/$arch-linux-gnu
  set -- "$@" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$arch" \
    -DCMAKE_C_COMPILER="$triple-gcc" -DCMAKE_CXX_COMPILER="$triple-g++" \
    -DBILLOW_SYSROOT_LIBS="$folder" -DOPENSSL_ROOT_DIR="$sysroot/usr" \
    -DOPENSSL_CRYPTO_LIBRARY="$folder/libcrypto.a" -DOPENSSL_SSL_LIBRARY="$folder/libssl.a" \
    -DOPENSSL_INCLUDE_DIR="$sysroot/usr/include;$sysroot/usr/include/$arch-linux-gnu"
fi
cmake_in "$bundle_build" "$@"
ninja_progress "$bundle_build" "$root/.dev/bundle.log" bundle_files
name=billow-$version-linux-$arch
stage=$root/dist/$name
rm -rf "$stage"
cmake --install "$bundle_build" --prefix "$stage" --component server --strip >>"$root/.dev/bundle.log" 2>&1 ||
  { tail -20 "$root/.dev/bundle.log" >&2; die 'could not collect the files; the whole output is in .dev/bundle.log'; }
cp "$root/LICENSE" "$root/README.md" "$stage/"
tar -C "$root/dist" -czf "$root/dist/$name.tar.gz" "$name"
say "dev: dist/$name.tar.gz ($(du -h "$root/dist/$name.tar.gz" | cut -f1))"
