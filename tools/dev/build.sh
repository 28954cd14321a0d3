# ./dev build [TARGET…]: build everything, tests included, or only the named targets.
compile_tests "$@"
