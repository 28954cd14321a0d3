# ./dev fmt [FILE…]: formats C++ sources (all of them, or those given).
install clang-format
[ $# -gt 0 ] || set -- $(git ls-files '*.cpp' '*.h')
clang-format -i "$@"
