# ./dev upgrade-test [COMMIT]: run the upgrade tests against the programs of the last release.
# They are built once, into .dev/last-release, from the newest tag, or from the commit that 0.1.0
# was made of where the clone has no tags.
release=${1:-$(git -C "$root" describe --tags --abbrev=0 2>/dev/null || echo b3c4a43)}
git -C "$root" rev-parse -q --verify "$release^{commit}" >/dev/null ||
  die "this clone does not have $release; fetch it, or name a folder of released programs in" \
    "BILLOW_LAST_RELEASE and run ctest -R E2e.Upgrade"
last=$root/.dev/last-release/$(git -C "$root" rev-parse --short "$release^{commit}")
compile billow billow-supervise billow-gpumem billow_nvml_sim
if [ ! -x "$last/build/bin/billow" ]; then
  mkdir -p "$last/source"
  git -C "$root" archive "$release" | tar -x -C "$last/source"
  [ -d "$root/web/node_modules" ] && ln -sfn "$root/web/node_modules" "$last/source/web/node_modules"
  step "compiling $release"
  cmake -S "$last/source" -B "$last/build" -G Ninja -DBILLOW_TESTS=OFF -DBILLOW_BENCH=OFF \
    >"$last/configure.log" 2>&1 || die "configuring $release failed; see $last/configure.log"
  # Until 0.1 the GPU memory service had another name.
  service=billow-gpumem
  [ -d "$last/source/src/gpumem" ] || service=billow-vault
  ninja -C "$last/build" -j "$jobs" billow billow-supervise $service billow_nvml_sim \
    >"$last/build.log" 2>&1 || die "building $release failed; see $last/build.log"
fi
cd "$build" && BILLOW_LAST_RELEASE=$last/build/bin ctest --output-on-failure -R 'E2e.Upgrade'
