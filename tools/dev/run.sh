# ./dev run: build, start Billow on this machine, run a sample job, and leave Billow running.
# It uses real GPUs if the driver finds any, otherwise eight simulated ones.
compile billow billow-supervise billow_nvml_sim
billow=$build/bin/billow
data=${BILLOW_DATA:-$root/.dev/data}
started=$(date +%s%N)
if "$billow" doctor --data "$data" --json 2>/dev/null | grep -q '"GPUs: [1-9]'; then sim=; else sim=8xH100; fi
step "starting Billow${sim:+ with simulated GPUs ($sim)}"
"$billow" up --background --data "$data" ${sim:+--sim "$sim"} || exit 1
say
say '$ billow run --gpus 1 --name hello -- sh -c '"'"'echo "hello from GPU $BILLOW_GPUS on $(uname -n)"'"'"
"$billow" run --data "$data" --gpus 1 --name hello -q -- sh -c 'echo "hello from GPU $BILLOW_GPUS on $(uname -n)"'
ended=$(date +%s%N)
say "dev: starting Billow and running the job took $(( (ended - started) / 1000000 )) ms"
say
say '$ billow ps -a --limit 1'
"$billow" ps -a --limit 1 --data "$data"
say
"$billow" status --data "$data"
say
say "Dashboard: $("$billow" dashboard --data "$data" | head -1)"
say '  (the link works once; `billow dashboard` prints a new one)'
say "Billow keeps running. Try:  $billow shell --gpus 1"
say "Stop it with:  ./dev stop"
