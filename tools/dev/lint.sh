# ./dev lint [FILE…]: run clang-tidy and cppcheck over the sources, or over the named ones.
# Fails on any finding.
# clang-tidy 19, because older ones cannot compile std::expected of g++ 12. The checks and their
# reasons: .clang-tidy.
install $build_packages $test_build_packages clang-19 clang-tidy-19 cppcheck python3
lint_build=$root/build-lint
# Without batches and precompiled headers: each source is read alone, as its author sees it.
cmake_in "$lint_build" -DCMAKE_BUILD_TYPE=Debug -DBILLOW_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
found=0
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.cpp')
step "clang-tidy over $# sources"
printf '%s\n' "$@" | xargs -P "$jobs" -n 4 clang-tidy-19 -p "$lint_build" --quiet 2>"$root/.dev/lint.log" || found=1
step 'cppcheck'
# --max-configs=1: only the configuration that is built. The suppressions are false alarms of 2.10
# on C++23, by id:
#   missingReturn: it does not know that a switch over every enumerator returns.
#   uninitMemberVar: it does not see default member initialisers of templates.
#   internalAstError, unknownMacro in these two files alone: deducing lambdas and a macro of GoogleTest.
cppcheck --quiet --error-exitcode=1 -j "$jobs" --enable=warning,portability --std=c++23 --language=c++ --inline-suppr \
  --max-configs=1 --suppress=missingReturn --suppress=uninitMemberVar --suppress=noExplicitConstructor \
  -I "$root/src" -I "$root" "$@" || found=1
[ $found = 0 ] || die 'lint found something'
step 'lint found nothing'
