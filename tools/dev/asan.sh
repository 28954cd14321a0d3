# ./dev asan [quick]: run unit tests, simulator and gateway with the address and undefined sanitizers.
# quick: only the suites that CI runs on every submission.
. "$root/tools/dev/sanitize.inc"
install $build_packages $test_build_packages
sanitize address "${1:-full}"
