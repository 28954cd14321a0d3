# ./dev reproduce [TARGET…]: build the programs (default: all) twice, in two folders and without a cache, and compare them.
install $build_packages
[ $# -gt 0 ] || set -- bundle_files
web_packages
both=$root/.dev/reproduce
for side in one another; do
  place=$both/$side
  rm -rf "$place"
  mkdir -p "$place"
  git ls-files -z | tar --null -T - -cf - | tar -C "$place" -xf -
  [ ! -d "$root/web/node_modules" ] || cp -a "$root/web/node_modules" "$place/web/"
  cmake -S "$place" -B "$place/build" -G Ninja -DBILLOW_TESTS=OFF -DBILLOW_BENCH=OFF -DBILLOW_REPRODUCIBLE=ON \
    >"$both/$side.log" 2>&1 || die "configuration failed; see .dev/reproduce/$side.log"
  CCACHE_DISABLE=1 ninja_progress "$place/build" "$both/$side.log" "$@"
  mkdir -p "$place/build/lib"
  (cd "$place/build" && find bin lib -type f ! -name '*.debug' -exec sha256sum {} + | LC_ALL=C sort -k2) >"$both/$side.sums"
done
cat "$both/one.sums"
cmp "$both/one.sums" "$both/another.sums" || die 'the two builds differ'
say 'dev: both builds have the same bytes'
