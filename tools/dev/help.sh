# ./dev help: list the commands.
say 'usage: ./dev COMMAND [OPTION…]'
say
for file in "$root"/tools/dev/*.sh; do
  case $file in */bench-*) continue ;; esac
  sed -n '1s/^# \.\/dev \([a-z-]*\)\([^:]*\): \(.*\)$/\1%\2%\3/p' "$file"
done | while IFS=% read -r name arguments words; do
  printf '  %-12s %s\n' "$name" "$words"
  [ -z "$arguments" ] || printf '  %-12s  %s%s\n' '' "$name" "$arguments"
done >&2
