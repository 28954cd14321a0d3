// libFuzzer over the spec of a task, which the supervisor reads as root: whatever the bytes, it
// reads none outside them, and every text that it hands out ends inside them.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "supervise/spec.h"

namespace {

using billow::supervise::Spec;
using billow::supervise::SpecHeader;

void check_texts(const char** texts, std::uint32_t count, const std::vector<char>& file) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* end = texts[i] + std::strlen(texts[i]);
    BILLOW_CHECK(texts[i] >= file.data() && end < file.data() + file.size(), "inside the file");
  }
  BILLOW_CHECK(texts[count] == nullptr, "a list ends");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // With the right head most inputs come further than its checks; the last bit leaves it as it is.
  std::vector<char> file(data, data + size);
  if (size >= sizeof(SpecHeader) && (data[size - 1] & 1) == 0) {
    SpecHeader head{};
    std::memcpy(&head, file.data(), sizeof head);
    head.magic = billow::supervise::spec_magic;
    head.version = billow::supervise::protocol_version;
    head.bytes = static_cast<std::uint32_t>(size);
    std::memcpy(file.data(), &head, sizeof head);
  }
  std::vector<const char*> pointers(billow::supervise::spec_pointers_needed(size));
  const auto spec = std::make_unique<Spec>();
  if (billow::supervise::decode_spec(file.data(), file.size(), pointers.data(), pointers.size(),
                                     spec.get()))
    return 0;
  check_texts(spec->argv, spec->argv_count, file);
  check_texts(spec->env, spec->env_count, file);
  check_texts(spec->hide_devices, spec->hide_count, file);
  check_texts(spec->binds, spec->binds_count, file);
  check_texts(spec->shown, spec->shown_count, file);
  BILLOW_CHECK(spec->argv_count > 0 && spec->cwd[0] == '/', "a command and its directory");
  return 0;
}
