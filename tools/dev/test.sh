# ./dev test [CTEST OPTION…]: install, build and run every test, then the core under the address sanitizer.
# With ctest options (-L unit, -R NAME) only these tests run, without the sanitizer. Twice as many
# tests as cores run at a time, at most eight: most end-to-end tests wait more than they compute.
# tests/e2e/CMakeLists.txt says which of them must not meet. BILLOW_TEST_JOBS=N runs N.
install $build_packages $test_build_packages $test_packages $browser_packages
for folder in tests/s3 tests/openai tests/grpc tests/mcp tests/clouds tests/clouds/google_azure tests/oidc; do
  npm_packages "$folder" || { tail -20 "$root/.dev/npm.log" >&2; die "npm ci failed in $folder"; }
done
compile_tests
step 'running the tests'
report=$root/.dev/tests.xml
at_once=${BILLOW_TEST_JOBS:-$(($(nproc) < 4 ? $(nproc) * 2 : 8))}
failed=0
alone=$root/.dev/tests-alone.xml
rm -f "$report" "$alone"
if ! (cd "$build" && ctest --output-on-failure --output-junit "$report" -j "$at_once" "$@"); then
  # A few failures are tried once more, alone: the summary names what fails only beside others.
  if [ "$(wc -l <"$build/Testing/Temporary/LastTestsFailed.log")" -le 3 ]; then
    step 'running what failed once more, alone'
    (cd "$build" && ctest --rerun-failed --output-on-failure --output-junit "$alone" -j 1) || failed=1
  else
    failed=1
  fi
fi
python3 "$root/tools/dev/test_summary.py" "$report" "$alone" || failed=1
if [ $# -eq 0 ]; then
  . "$root/tools/dev/sanitize.inc"
  sanitize address quick || failed=1
fi
step "$([ $failed = 0 ] && echo 'all tests passed' || echo 'some tests failed')"
exit $failed
