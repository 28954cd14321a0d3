# ./dev sim [--seeds N] [--minutes M] [--from FIRST] | --seed S: the fault simulator, beyond what CI runs. A failing seed is printed
# with its story; --seed S tells it again in full.
compile billow-sim
exec nice "$build/bin/billow-sim" "$@"
