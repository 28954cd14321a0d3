# ./dev soak [MINUTES]: the nightly size of the fault simulator (60 minutes by default): 2,000 fresh stories of pools, and
# weeks of virtual time with every kind of fault, pools included. The seeds are fresh and printed.
minutes=${1:-60}
compile_tests billow-sim
first=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
step "stories of pools from seed $first"
nice "$build/bin/billow-sim" --stories 2000 --from "$first"
step "weeks, for $minutes minutes"
exec nice "$build/bin/billow-sim" --hours 168 --seeds 1000000 --minutes "$minutes"
