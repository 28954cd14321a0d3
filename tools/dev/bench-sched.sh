# ./dev bench sched [--quick] [--data DIR]: the scheduler on the published traces, and its speed.
data=$root/../shared/data
quick=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick ;;
    --data) data=$2; shift ;;
    *) die "bench sched: unknown option $1 (--quick, --data DIR)" ;;
  esac
  shift
done
compile billow-simulate bench_sched
simulate=$build/bench/billow-simulate
limit=${quick:+--limit 1}
if [ -d "$data/openb" ]; then
  say 'Packing: unallocated GPU % at 100 % and 130 % arrived demand, mean over seeds (FGD as published, mean of ten seeds)'
  printf '%-12s %8s %8s   %8s %8s   %8s %8s   %8s %8s\n' trace bestfit '' 'FGD pub.' '' billow '' shuffled ''
  while read -r trace fgd100 fgd130; do
    run() {
      "$simulate" openb --nodes "$data/openb/openb_node_list_gpu_node.csv" --tasks "$data/openb/openb_pod_list_$trace.csv" \
        --stream "$data/openb_streams/$trace.csv" $limit --json "$@" |
        sed 's/.*"unallocated_pct_100":\([^,]*\),"unallocated_pct_130":\([^,]*\),.*/\1 \2/' |
        awk '{a += $1; b += $2; n++} END {printf "%8.2f %8.2f", a / n, b / n}'
    }
    printf '%-12s %s   %8.2f %8.2f   %s   %s\n' "$trace" "$(run --policy bestfit)" "$fgd100" "$fgd130" "$(run)" "$(run --shuffle-nodes 7)"
  done <<END
default 4.77 4.61
cpu050 5.00 4.79
cpu100 4.79 4.65
cpu250 6.80 6.59
gpushare40 6.04 5.85
gpushare80 10.92 10.70
gpushare100 13.36 13.10
gpuspec10 5.34 5.05
gpuspec25 6.09 5.26
multigpu20 4.47 4.35
multigpu50 2.91 2.82
END
else
  say "bench sched: no traces in $data (--data DIR): the packing and queueing tables are left out"
fi
if [ -d "$data/muri" ]; then
  say 'Queueing: average job completion time in thousands of seconds, and the largest slow-down'
  printf '%-10s %-34s %10s %10s\n' trace policy 'avg JCT' slowdown
  for trace in trace1 trace3 trace1_pr trace3_pr; do
    for options in '--policy srsf' '--policy best' '--policy best --durations learned' '--policy best --interleave' \
      '--policy best --interleave --durations learned'; do
      "$simulate" jobs --trace "$data/muri/$trace.csv" --format muri $options --json |
        sed 's/.*"jct_avg_s":\([^,]*\),.*"slowdown_max":\([^,]*\),.*/\1 \2/' |
        { read -r jct slow; printf '%-10s %-34s %10.1f %10.1f\n' "$trace" "$(echo "$options" | sed 's/--policy //; s/--//g')" "$(echo "$jct" | awk '{print $1 / 1000}')" "$slow"; }
    done
  done
fi
say 'Speed'
"$build/bench/bench_sched" $quick
