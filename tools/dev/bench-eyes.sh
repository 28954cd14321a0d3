# ./dev bench eyes: the cost of watching: disk space of a month of history, a scrape of 1,000 GPUs,
# an idle open dashboard, 5,000 jobs with 1,000 GPUs in the browser, and a search through a log of a
# gigabyte beside grep. `--only hour` takes an hour: the memory of two open tabs and of the head
# while jobs come and go.
compile_tests billow billow-supervise billow_nvml_sim billow-history-fill
install chromium python3
python3 "$root/tools/bench/eyes.py" --billow "$build/bin/billow" --history "$build/bench/billow-history-fill" "$@"
