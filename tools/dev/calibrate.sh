# ./dev calibrate [--data DIR] [--check]: fit data/calibration.txt from public serving measurements.
# Every model, GPU and fifth of the configurations is left out once, for the intervals; the errors
# are printed by ./dev bench advise. --check fits again and compares with the shipped file instead.
data=$root/../shared/data check=
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=$2; shift 2 ;;
    --check) check=yes; shift ;;
    *) die "./dev calibrate: unknown option $1" ;;
  esac
done
rows=$data/advisor/silicon_sample.csv
[ -f "$rows" ] || die "no measurements in $rows; name their directory with --data DIR"
compile_tests billow-calibrate
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
"$build/src/advise/billow-calibrate" "$rows" "$data/advisor/model_configs" >"$fresh"
if [ -n "$check" ]; then
  cmp -s "$fresh" "$root/data/calibration.txt" || {
    diff "$fresh" "$root/data/calibration.txt" | head -20
    die 'the shipped calibration is not what the measurements give: run ./dev calibrate'
  }
  say 'data/calibration.txt is what these measurements give'
else
  cp "$fresh" "$root/data/calibration.txt"
  say 'data/calibration.txt is written; ./dev bench advise prints its errors'
fi
