# ./dev bench [NAME [OPTION…]]: measure the figures that Billow claims; NAME is one of tools/dev/bench-NAME.sh.
# The default is core. Where a comparable program is in Debian, the figure is a ratio against it in
# the same run.
name=${1:-core}
[ $# -gt 0 ] && shift
bench=$root/tools/dev/bench-$name.sh
names=$(cd "$root/tools/dev" && ls bench-*.sh | sed 's/bench-\(.*\)\.sh/\1/' | tr '\n' ' ')
[ -f "$bench" ] || die "there is no benchmark \"$name\"; use one of: $names"
. "$bench"
