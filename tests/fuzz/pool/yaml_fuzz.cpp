// libFuzzer over the reader of kubeconfig files: no text crashes it, and what it has read is
// written and read again to the same value. Built with clang and -DBILLOW_FUZZ=ON only, by
// `./dev fuzz`.
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "pool/kubernetes/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = billow::pool::parse_yaml(text);
  if (!value || !billow::valid_utf8(value->dump()))
    return 0;
  const auto again = billow::pool::parse_yaml(billow::pool::to_yaml(*value));
  BILLOW_CHECK(again && again->dump() == value->dump(), "a value changes when it is written");
  return 0;
}
