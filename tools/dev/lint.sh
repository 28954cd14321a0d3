# ./dev lint [FILE…]: run clang-tidy and cppcheck over the sources, or over the named ones.
# Fails on any finding.
# clang-tidy 19, because older ones cannot compile std::expected of g++ 12. The checks and their
# reasons: .clang-tidy.
install $build_packages clang-19 clang-tidy-19 cppcheck python3
lint_build=$root/build-lint
# The batches of the build (cmake/batches.cmake): a header that fifty sources share is read and
# checked a few times and not fifty. What the build precompiles is included as text, because
# clang-tidy does not look into a precompiled header.
cmake_in "$lint_build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBILLOW_UNITY=ON -DBILLOW_TESTS=OFF -DBILLOW_BENCH=OFF \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF \
  -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_COMPILER=clang-19
sed -i 's/-Xclang -include-pch -Xclang [^ ]* //' "$lint_build/compile_commands.json"
found=0
units=$*
if [ $# = 0 ]; then
  units=$(sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$lint_build/compile_commands.json" | grep /src/)
  set -- $(git ls-files 'src/*.cpp')
fi
step "clang-tidy over $# sources"
# tools/dev/lint has a header that takes the place of one of ours; why is said there.
printf '%s\n' $units | xargs -P "$jobs" -n 1 clang-tidy-19 -p "$lint_build" --quiet \
  "--extra-arg-before=-I$root/tools/dev/lint" --extra-arg=-ferror-limit=0 2>"$root/.dev/lint.log" || found=1
step 'cppcheck'
# --max-configs=1: only the configuration that is built. The suppressions are false alarms of 2.10
# on C++23, by id:
#   missingReturn: it does not know that a switch over every enumerator returns.
#   uninitMemberVar: it does not see default member initialisers of templates.
cppcheck --quiet --error-exitcode=1 -j "$jobs" --enable=warning,portability --std=c++23 --language=c++ --inline-suppr \
  --max-configs=1 --suppress=missingReturn --suppress=uninitMemberVar \
  -I "$root/src" -I "$root" "$@" || found=1
[ $found = 0 ] || die 'lint found something'
step 'lint found nothing'
