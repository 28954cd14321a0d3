# ./dev client [--macos-check]: build only the client, as build-client/bin/billow; on Debian and on macOS.
# --macos-check: compile every source of the client for macOS on this machine, and link as far as possible without a Mac.
client_build=$root/build-client
client_packages='g++ cmake ninja-build ccache pkg-config libboost1.81-dev libboost-json1.81-dev libssl-dev libfmt-dev libzstd-dev libtomlplusplus-dev libpugixml-dev'
if [ "$(uname -s)" = Darwin ]; then
  command -v brew >/dev/null || die 'this needs Homebrew: https://brew.sh'
  for package in cmake ninja boost openssl@3 fmt zstd tomlplusplus pugixml; do
    brew list --versions "$package" >/dev/null 2>&1 || brew install --quiet "$package" || die "brew install $package failed"
  done
  set -- "$@" "-DOPENSSL_ROOT_DIR=$(brew --prefix openssl@3)"
else
  install $client_packages
fi
check=
[ "${1:-}" = --macos-check ] && { check=yes; shift; }
cmake -S "$root" -B "$client_build" -G Ninja -DBILLOW_CLIENT_ONLY=ON "$@" >"$root/.dev/client.log" 2>&1 || { cat "$root/.dev/client.log" >&2; die 'configuration failed'; }
if [ -n "$check" ]; then
  command -v npm >/dev/null || install nodejs npm
  python3 "$root/tools/dev/macos_check.py" "$root" "$client_build" "$jobs"
else
  ninja -C "$client_build" -j "$jobs" billow-client >"$root/.dev/client.log" 2>&1 || { grep -E -A8 'error|FAILED' "$root/.dev/client.log" | head -60 >&2; die 'the build failed; the whole output is in .dev/client.log'; }
  ls -l "$client_build/bin/billow"
fi
