# ./dev stop: end what ./dev run started, jobs included.
billow=$build/bin/billow
data=${BILLOW_DATA:-$root/.dev/data}
[ -x "$billow" ] || die "nothing was built here"
"$billow" down --stop-jobs --data "$data"
