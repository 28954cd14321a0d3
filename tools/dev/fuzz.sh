# ./dev fuzz [NAME] [SECONDS]: run libFuzzer with sanitizers over every reader of foreign bytes that
# has a target in tests/fuzz (README.md there lists them). Each runs for a minute by default.
# Findings are written to .dev/fuzz/NAME; to repeat one, give its file to the program:
# build-fuzz/tests/fuzz/fuzz_proxy FILE. The corpus is kept there, so the next run continues from
# it; it begins with the committed one, tests/fuzz/corpus/NAME.
fuzz_build=${BILLOW_FUZZ_BUILD_DIR:-$root/build-fuzz}
fuzz_names=$(sed -n 's/^billow_fuzz(\([a-z0-9_]*\) .*/\1/p' "$root/tests/fuzz/CMakeLists.txt" | xargs)
case ${1:-} in
  '' | [0-9]*) targets=$fuzz_names ;;
  *)
    case " $fuzz_names " in
      *" $1 "*) targets=$1; shift ;;
      *) die "usage: ./dev fuzz [NAME] [SECONDS], with NAME one of: $fuzz_names" ;;
    esac ;;
esac
seconds=${1:-60}
install $build_packages clang-19 libclang-rt-19-dev
[ -f "$fuzz_build/build.ninja" ] ||
  cmake_in "$fuzz_build" -DBILLOW_FUZZ=ON \
    -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
for target in $targets; do
  ninja_progress "$fuzz_build" "$root/.dev/build-fuzz.log" "fuzz_$target"
  found=$root/.dev/fuzz/$target
  mkdir -p "$found/corpus"
  say "dev: fuzz_$target for $seconds s"
  (cd "$found" && "$fuzz_build/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$found/" \
    -dict="$root/tests/fuzz/http.dict" corpus "$root/tests/fuzz/corpus/$target") ||
    die "fuzz_$target found a failure: see $found"
done
