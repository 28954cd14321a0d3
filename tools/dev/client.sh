# ./dev client [--macos-check]: build only the client, as build-client/bin/billow; on Debian and on macOS.
# --macos-check: compile every source of the client for macOS, and link as far as possible without a
# Mac.
client_build=$root/build-client
client_packages='g++ cmake ninja-build ccache pkg-config libboost1.81-dev libboost-json1.81-dev libssl-dev libfmt-dev
  libzstd-dev libtomlplusplus-dev libpugixml-dev'
if [ "$(uname -s)" = Darwin ]; then
  command -v brew >/dev/null || die 'this needs Homebrew: https://brew.sh'
  for package in cmake ninja boost openssl@3 fmt zstd tomlplusplus pugixml; do
    brew list --versions "$package" >/dev/null 2>&1 || brew install --quiet "$package" ||
      die "brew install $package failed"
  done
  set -- "$@" "-DOPENSSL_ROOT_DIR=$(brew --prefix openssl@3)"
else
  install $client_packages
fi
check=
[ "${1:-}" = --macos-check ] && { check=yes; shift; }
cmake_in "$client_build" -DBILLOW_CLIENT_ONLY=ON "$@"
if [ -n "$check" ]; then
  command -v npm >/dev/null || install nodejs npm
  python3 "$root/tools/dev/macos_check.py" "$root" "$client_build" "$jobs"
else
  ninja_progress "$client_build" "$root/.dev/client.log" billow-client
  ls -l "$client_build/bin/billow"
fi
