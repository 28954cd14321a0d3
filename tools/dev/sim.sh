# ./dev sim [--seeds N] [--minutes M] [--from FIRST] | --seed S: run the fault simulator with more seeds than CI does.
# A failing seed is printed with its story; --seed S prints the whole story of one seed.
compile_tests billow-sim
exec nice "$build/bin/billow-sim" "$@"
