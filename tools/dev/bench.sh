# ./dev bench [NAME [OPTION…]]: the figures Billow claims, measured here. Each tools/dev/bench-NAME.sh is one table; without a
# name the foundation's are run. Timings are ratios against a peer in the same run wherever a peer is a package away.
name=${1:-core}
[ $# -gt 0 ] && shift
bench=$root/tools/dev/bench-$name.sh
[ -f "$bench" ] || die "there is no benchmark \"$name\"; there are: $(cd "$root/tools/dev" && ls bench-*.sh | sed 's/bench-\(.*\)\.sh/\1/' | tr '\n' ' ')"
. "$bench"
