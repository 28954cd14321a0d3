# ./dev fmt [--check] [FILE…]: format the C++ sources, or with --check only name those that are not formatted.
install clang-format
mode=-i
[ "${1:-}" = --check ] && { mode='--dry-run --Werror'; shift; }
[ $# -gt 0 ] || set -- $(git ls-files '*.cpp' '*.h')
clang-format $mode "$@"
