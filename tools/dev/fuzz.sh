# ./dev fuzz [NAME] [SECONDS]: run libFuzzer with sanitizers over the proxy, the HTTP parsers,
# sessions of HTTP/2, the answers of clouds, provider files, ID tokens, YAML, messages of MCP, keys
# typed into `billow top`, the spec of a task, and names and logins of images.
# Each runs for a minute by default; NAME is one of those in fuzz_names below.
# Findings are written to .dev/fuzz/NAME; to repeat one, give its file to the program:
# build-fuzz/tests/fuzz/gateway/fuzz_proxy FILE. The corpus is kept there, so the next run
# continues from it.
fuzz_build=${BILLOW_FUZZ_BUILD_DIR:-$root/build-fuzz}
fuzz_names='http_parser http2 id_token image keys mcp pool_answers provider proxy spec yaml'
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
  (cd "$found" && "$fuzz_build"/tests/fuzz/*/"fuzz_$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$found/" \
    -dict="$root/tests/fuzz/http.dict" corpus) ||
    die "fuzz_$target found a failure: see $found"
done
