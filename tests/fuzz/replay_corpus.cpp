// Gives every file of corpus/NAME to the fuzz target NAME, in a build of the usual compiler: what
// the fuzzers have reached once is tried by every run of the tests. `replay_corpus NAME FOLDER`; a
// target that fails ends the program as it ends a fuzzer, after the name of the file was printed.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

#define TARGET(name) extern "C" int fuzz_##name(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.def"
#undef TARGET

namespace {

using Target = int (*)(const std::uint8_t*, std::size_t);

Target find(const std::string& wanted) {
#define TARGET(name)   \
  if (wanted == #name) \
    return fuzz_##name;
#include "fuzz_targets.def"
#undef TARGET
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const Target target = argc == 3 ? find(argv[1]) : nullptr;
  if (!target) {
    std::fprintf(stderr, "usage: replay_corpus TARGET FOLDER\n");
    return 2;
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2]))
    files.push_back(entry.path());
  for (const std::string& path : files) {
    const auto bytes = billow::read_file(path);
    if (!bytes) {
      std::fprintf(stderr, "%s cannot be read\n", path.c_str());
      return 1;
    }
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    // A copy of its own, so that a sanitizer sees reads beyond its end.
    std::vector<std::uint8_t> copy(bytes->size());
    std::memcpy(copy.data(), bytes->data(), bytes->size());
    (void)target(copy.data(), copy.size());
  }
  if (files.empty())
    std::fprintf(stderr, "%s is empty\n", argv[2]);
  return files.empty() ? 1 : 0;
}
