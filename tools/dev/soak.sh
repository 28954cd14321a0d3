# ./dev soak [MINUTES] [PROCESSES]: the nightly size of the fault simulator (60 minutes by default, one process for each
# CPU): 2,000 fresh stories of pools, and weeks of virtual time with every kind of fault, pools
# included. The seeds are fresh and printed. Each process prints every 30 seconds how many hours and
# faults it has simulated.
minutes=${1:-60} processes=${2:-$(nproc)}
compile_tests billow-sim
first=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
step "stories of pools from seed $first"
nice "$build/bin/billow-sim" --stories 2000 --from "$first"
step "weeks, for $minutes minutes, in $processes processes"
# A quarter of the time goes into memory that is taken and given back; this library is faster at it.
faster=$(ldconfig -p | sed -n 's/.*libjemalloc.*=> //p' | head -n 1)
running= i=0
while [ "$i" -lt "$processes" ]; do
  LD_PRELOAD=$faster nice "$build/bin/billow-sim" --hours 168 --seeds 1000000 --minutes "$minutes" &
  running="$running $!" i=$((i + 1))
done
failed=0
for one in $running; do wait "$one" || failed=1; done
exit "$failed"
