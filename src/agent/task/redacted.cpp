#include "agent/task/redacted.h"

#include <cstdint>
#include <set>
#include <string_view>

#include "base/crypto.h"
#include "base/text.h"
#include "supervise/redactor.h"

namespace billow::agent {
namespace {

// Shorter lines of a value with several lines are also words of other texts: "{", "type: key".
constexpr std::size_t line_bytes_min = 16;

// Values beyond the limits of the supervisor are left out.
void add(std::set<std::string>& known, std::string& out, std::string value) {
  if (value.size() < supervise::redacted_bytes_min || !known.insert(value).second ||
      known.size() > supervise::redacted_values_max)
    return;
  const auto length = static_cast<std::uint32_t>(value.size());
  if (out.size() + sizeof(length) + length > supervise::redacted_bytes_max)
    return;
  out.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(value);
}

}  // namespace

std::string redacted_values(const std::vector<GivenSecret>& secrets) {
  std::set<std::string> known;
  std::string out;
  for (const GivenSecret& secret : secrets) {
    std::string value;
    if (!base64_decode(secret.value, value))
      continue;
    while (value.ends_with('\n') || value.ends_with('\r'))
      value.pop_back();
    std::string encoded = base64(value);
    while (encoded.ends_with('='))
      encoded.pop_back();
    if (value.size() >= supervise::redacted_bytes_min)
      add(known, out, std::move(encoded));
    if (value.find('\n') != std::string::npos)
      for (const std::string& line : split(value, '\n'))
        if (const std::string text(trim(line)); text.size() >= line_bytes_min)
          add(known, out, text);
    add(known, out, std::move(value));
  }
  return out;
}

}  // namespace billow::agent
