# ./dev slowest [N]: the N (default 10) steps of the last build that took longest, in seconds of wall time.
[ -f "$build/.ninja_log" ] || die "nothing was built here"
awk -F '\t' '!/^#/ { took[$4] = ($2 - $1) / 1000 } END { for (f in took) printf "%7.1f  %s\n", took[f], f }' "$build/.ninja_log" | sort -rn | head -n "${1:-10}"
