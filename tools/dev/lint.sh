# ./dev lint: cppcheck over the sources, with what the compiler does not find. Findings end it with 1.
install $build_packages cppcheck
configure
cppcheck --quiet --error-exitcode=1 --enable=warning,portability --std=c++20 --inline-suppr --suppress=internalAstError \
  --suppress=syntaxError --suppress=unknownMacro --suppress=uninitMemberVar --suppress=missingReturn --suppress=noExplicitConstructor \
  -I "$root/src" -I "$root" "$root/src" "$@"
say "dev: nothing found"
