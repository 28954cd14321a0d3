# ./dev slowest [N]: list the N (default 10) slowest steps of the last build, in seconds of wall time.
[ -f "$build/.ninja_log" ] || die "nothing has been built in $build"
awk -F '\t' '!/^#/ { took[$4] = ($2 - $1) / 1000 } END { for (f in took) printf "%7.1f  %s\n", took[f], f }' \
  "$build/.ninja_log" | sort -rn | head -n "${1:-10}"
