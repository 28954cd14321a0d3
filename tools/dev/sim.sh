# ./dev sim [--seeds N] [--minutes M] [--from FIRST] [--hours H] | --seed S: run the fault simulator with more seeds than
# CI does; with --hours 168 every run is a week of virtual time. --stories N: pools against a
# provider with a meter of its own. --jobs N: so many jobs through one head, with its memory and
# journal. A failing seed is printed with its story; --seed S prints the whole story of one seed.
compile_tests billow-sim
exec nice "$build/bin/billow-sim" "$@"
