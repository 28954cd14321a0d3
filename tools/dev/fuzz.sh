# ./dev fuzz [NAME] [SECONDS]: run libFuzzer with sanitizers over every reader of foreign bytes that
# has a target in tests/fuzz (README.md there lists them). Each runs for a minute by default.
# ./dev fuzz --all MINUTES [JOBS]: the same for a night: JOBS targets at a time (default: one per
# core), nice, always the one that is furthest behind its share.
# ./dev fuzz --keep [NAME]: minimise what was learnt into the committed corpus.
# ./dev fuzz --record: add what was run since the last record to the table in tests/fuzz/README.md.
#
# Every run prints a line per target: CPU time, executions, coverage. Findings are written to
# .dev/fuzz/NAME; to repeat one, give its file to the program:
# build-fuzz/tests/fuzz/fuzz_proxy FILE. What was learnt is kept there too, so the next run
# continues from it; it begins with the committed corpus, tests/fuzz/corpus/NAME.
fuzz_build=${BILLOW_FUZZ_BUILD_DIR:-$root/build-fuzz}
fuzz_names=$(sed -n 's/^billow_fuzz(\([a-z0-9_]*\) .*/\1/p' "$root/tests/fuzz/CMakeLists.txt" | xargs)
fuzz_usage="usage: ./dev fuzz [NAME] [SECONDS] | --all MINUTES [JOBS] | --keep [NAME] | --record
with NAME one of: $fuzz_names"
mode=each
case ${1:-} in
  --all | --keep | --record) mode=${1#--}; shift ;;
esac
if [ "$mode" = record ]; then
  python3 "$root/tools/dev/fuzz.py" "$root" "$fuzz_build" record
  exit
fi
targets=$fuzz_names
case ${1:-} in
  '' | [0-9]*) ;;
  *)
    [ "$mode" != all ] || die "$fuzz_usage"
    case " $fuzz_names " in
      *" $1 "*) targets=$1; shift ;;
      *) die "$fuzz_usage" ;;
    esac ;;
esac
case $mode in
  each) set -- "${1:-60}" ;;
  all)
    [ $# -gt 0 ] || die "$fuzz_usage"
    set -- "$1" "${2:-$jobs}" ;;
  keep) set -- ;;
esac
install $build_packages clang-19 libclang-rt-19-dev
[ -f "$fuzz_build/build.ninja" ] ||
  cmake_in "$fuzz_build" -DBILLOW_FUZZ=ON \
    -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
ninja_progress "$fuzz_build" "$root/.dev/build-fuzz.log" $(printf 'fuzz_%s ' $targets)
python3 "$root/tools/dev/fuzz.py" "$root" "$fuzz_build" "$mode" "$@" $targets ||
  die "a target found a failure: .dev/fuzz/NAME has its input and the log"
