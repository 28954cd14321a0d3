# ./dev bench sched [--quick] [--data DIR] [--only packing|mixes|queueing|speed|head] [--busy-machine] [--json FILE]
# The scheduler on published traces, its speed, and jobs through the whole head; every figure beside its target. It takes
# some minutes without --quick.
data=$root/../shared/data
case " $* " in *' --data '*) ;; *) set -- --data "$data" "$@" ;; esac
compile_tests billow bench_sched bench_head
install python3
python3 "$root/tools/bench/sched.py" --billow "$build/bin/billow" \
  --bench "$build/bench/bench_sched" --head "$build/bench/bench_head" "$@"
