# ./dev bench advise [--data DIR] [--only PART]: every figure of the advisor. PART is one of speed,
# questions, mlperf, steady, portfolio, pilot, models, gpus or latency. All take some minutes,
# because each split is fitted again.
data=$root/../shared/data only=
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    *) die "./dev bench advise: unknown option $1" ;;
  esac
done
compile_tests advise-report test_advise
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -f "$data/prices/aws_spot_daily.csv.gz" ]; then
  gzip -dc "$data/prices/aws_spot_daily.csv.gz" >"$work/spot.csv"
  export BILLOW_SPOT_CSV=$work/spot.csv
fi
if [ -z "$only" ]; then
  echo 'KV bytes per token against the table worked by hand, parameters and quantized weights within 2 %, no false fit,
and no prediction beyond the roofline in a grid of 10,368 cases:'
  BILLOW_DATA_DIR=$data "$build/tests/test_advise" --gtest_filter='GivenConfigs.*:ServingMemory.*:Physics.NothingIsFaster*' |
    grep -E '^\[ +(OK|FAILED|SKIPPED)' || true
fi
"$build/src/advise/advise-report" --data "$data" --mlperf "$root/bench/advise/mlperf_v5.1.csv" \
  ${only:+--only "$only"}
