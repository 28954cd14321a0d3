// libFuzzer over the redactor of logs: the first two bytes say how long the secret is and how the
// output is cut; then come the secret and the output. The secret is nowhere in what is shown.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "supervise/redactor.h"

namespace {

// Whether the text that stands for hidden bytes may itself be or complete the secret.
bool stars_hold(std::string_view secret) {
  return secret.find('*') != secret.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using billow::supervise::Redactor;
  if (size < 2 || data[0] == 0 || size - 2 < data[0])
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string_view secret = bytes.substr(0, data[0]);
  // The output holds the secret wherever the input has the byte 0xFF.
  std::string output;
  for (const char c : bytes.substr(secret.size()))
    if (c == '\xff')
      output += secret;
    else
      output += c;
  std::string values(4, '\0');
  values[0] = static_cast<char>(secret.size());
  values += secret;
  const auto redactor = std::make_unique<Redactor>();
  BILLOW_CHECK(redactor->take(values.data(), values.size()) == nullptr, "values are taken");
  if (!redactor->active())
    return 0;  // too short to hide
  std::string shown;
  const auto sink = [](void* to, const char* text, std::uint32_t n) {
    static_cast<std::string*>(to)->append(text, n);
  };
  const std::size_t piece = static_cast<std::size_t>(data[1]) + 1;
  for (std::size_t at = 0; at < output.size(); at += piece) {
    const std::string_view part = std::string_view(output).substr(at, piece);
    redactor->feed(0, part.data(), part.size(), sink, &shown);
  }
  redactor->release(0, sink, &shown);
  BILLOW_CHECK(!redactor->holds(0), "nothing is held back at the end");
  redactor->forget();
  if (output.find(secret) != output.npos)
    BILLOW_CHECK(shown.find(secret) == shown.npos || stars_hold(secret), "the secret is hidden");
  return 0;
}
