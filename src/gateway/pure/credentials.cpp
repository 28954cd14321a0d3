#include "gateway/pure/credentials.h"

#include "base/crypto.h"
#include "base/text.h"
#include "gateway/pure/sample.h"

namespace billow::gateway {
namespace {

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// What is not an escape stays as it is, so that one wrong escape hides nothing.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high < 0 ? -1 : hex_digit(text[i + 2]);
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

// Of either alphabet, with or without padding; other characters are skipped.
std::string decoded_anyhow(std::string_view text) {
  std::string out;
  unsigned bits = 0, count = 0;
  for (char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0)
      continue;
    bits = (bits << 6 | static_cast<unsigned>(digit)) & 0xffff;
    count += 6;
    if (count < 8)
      continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return out;
}

bool has_key(std::string_view text) {
  return text.find(endpoint_key_prefix) != text.npos ||
         (text.find('%') != text.npos &&
          without_escapes(text).find(endpoint_key_prefix) != std::string::npos);
}

}  // namespace

OfferedKey offered_key(const net::Headers& headers) {
  OfferedKey out;
  const auto authorization = headers.get("Authorization");
  if (const auto key = headers.get("X-Api-Key"); !key.empty()) {
    out.key = key;
    out.header = "X-Api-Key";
  } else if (starts_with_nocase(authorization, "Bearer ")) {
    out.key = trim(authorization.substr(7));
    out.header = "Authorization";
  } else if (std::string plain; starts_with_nocase(authorization, "Basic ") &&
                                base64_decode(trim(authorization.substr(6)), plain)) {
    if (const auto colon = plain.find(':'); colon != std::string::npos) {
      out.key = plain.substr(colon + 1);
      out.header = "Authorization";
      out.by_browser = true;
    }
  }
  if (!out.key.empty() && out.key.size() <= endpoint_key_bytes_max)
    out.hash = sha256_hex(out.key);
  return out;
}

bool holds_endpoint_key(std::string_view value) {
  if (has_key(value))
    return true;
  constexpr std::string_view basic = "Basic";
  return starts_with_nocase(value, basic) && has_key(decoded_anyhow(value.substr(basic.size())));
}

}  // namespace billow::gateway
