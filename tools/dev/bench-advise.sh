# ./dev bench advise [--data DIR]: every figure of the advisor. It takes some minutes, because each split is fitted again.
data=$root/../shared/data
[ "${1:-}" = --data ] && data=$2
compile_tests advise-report test_advise
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -f "$data/prices/aws_spot_daily.csv.gz" ]; then
  gzip -dc "$data/prices/aws_spot_daily.csv.gz" >"$work/spot.csv"
  export BILLOW_SPOT_CSV=$work/spot.csv
fi
echo 'KV bytes per token against the table worked by hand, parameters and quantized weights within 2 %, no false fit:'
BILLOW_DATA_DIR=$data "$build/tests/test_advise" --gtest_filter='GivenConfigs.*:ServingMemory.*' |
  grep -E '^\[ +(OK|FAILED|SKIPPED)' || true
"$build/src/advise/advise-report" --data "$data"
