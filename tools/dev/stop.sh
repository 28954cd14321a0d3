# ./dev stop: stop what ./dev run started, including its jobs.
billow=$build/bin/billow
data=${BILLOW_DATA:-$root/.dev/data}
[ -x "$billow" ] || die "nothing has been built in $build"
"$billow" down --stop-jobs --data "$data"
