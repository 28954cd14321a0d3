# ./dev tsan [quick]: run the same suites with the thread sanitizer.
. "$root/tools/dev/sanitize.inc"
install $build_packages $test_build_packages
sanitize thread "${1:-full}"
