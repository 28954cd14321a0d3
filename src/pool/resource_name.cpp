#include "pool/resource_name.h"

#include <fmt/format.h>

#include "base/crypto.h"

namespace billow::pool {
namespace {

constexpr std::size_t name_max = 63;
constexpr std::size_t hash_digits = 8;

// Keeps [a-z0-9-] and what `also` names, and writes a hyphen for the rest. A changed or shortened
// text gets a hash, so that it stays unique.
std::string plain(std::string_view text, std::string_view also, std::size_t max) {
  std::string out;
  for (const char c : text) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                      also.find(c) != std::string_view::npos;
    if (kept)
      out += c;
    else if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else
      out += '-';
  }
  if (out == text && out.size() <= max && !out.ends_with('-'))
    return out;
  out.resize(std::min(out.size(), max - hash_digits - 1));
  return out + "-" + sha256_hex(text).substr(0, hash_digits);
}

}  // namespace

std::string resource_prefix(std::string_view installation) {
  return fmt::format("billow-{}-", plain(installation, "", 20));
}

std::string resource_name(std::string_view installation, std::string_view machine) {
  const std::string front = resource_prefix(installation);
  return front + plain(machine, "", name_max - front.size());
}

std::string label_value(std::string_view text) {
  return plain(text, "_", name_max);
}

std::string request_uuid(std::string_view words) {
  std::string digits = sha256_hex(words).substr(0, 32);
  digits[12] = '5';  // made from a name
  digits[16] = '8';  // RFC 9562
  return fmt::format("{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4),
                     digits.substr(12, 4), digits.substr(16, 4), digits.substr(20));
}

}  // namespace billow::pool
