# ./dev coverage [--no-sim]: measure which lines the unit tests and the simulator run, and print a table by room.
install $build_packages $test_build_packages
folder=$root/build-coverage
cmake_in "$folder" -DBILLOW_COVERAGE=ON -DBILLOW_BENCH=OFF
ninja_progress "$folder" "$root/.dev/coverage.log" all
find "$folder" -name '*.gcda' -delete
labels='unit|sim'
[ "${1:-}" = --no-sim ] && labels=unit
step 'running the tests'
(cd "$folder" && ctest -L "$labels" -j "$jobs" >"$root/.dev/coverage-tests.log" 2>&1) ||
  say 'dev: some tests failed (.dev/coverage-tests.log); the table counts them too'
python3 "$root/tools/dev/coverage.py" "$root" "$folder"
