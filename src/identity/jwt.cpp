#include "identity/jwt.h"

namespace billow::identity {
namespace {

int digit(char c) {
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '-' ? 62 : c == '_' ? 63 : -1;
}

Result<Json> object_in(std::string_view part, const char* what) {
  std::string text;
  if (!base64url_decode(part, text))
    return fail(Code::invalid, std::string("the token's ") + what + " is not base64url");
  Json json = BILLOW_TRY(parse_json(text));
  if (!json.is_object())
    return fail(Code::invalid, std::string("the token's ") + what + " is not a JSON object");
  return json;
}

}  // namespace

bool base64url_decode(std::string_view text, std::string& out) {
  out.clear();
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = digit(c);
    if (value < 0)
      return false;
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return count < 6 && (bits & ((1u << count) - 1)) == 0;
}

Result<Jwt> parse_jwt(std::string_view text) {
  if (text.size() > jwt_bytes_max)
    return fail(Code::too_large, "the token is too long");
  const auto first = text.find('.');
  const auto second = first == std::string_view::npos ? first : text.find('.', first + 1);
  if (second == std::string_view::npos || text.find('.', second + 1) != std::string_view::npos)
    return fail(Code::invalid, "this is not a signed token: it does not have three parts");
  Jwt out;
  out.header = BILLOW_TRY(object_in(text.substr(0, first), "header"));
  out.claims = BILLOW_TRY(object_in(text.substr(first + 1, second - first - 1), "claims"));
  out.signed_part = text.substr(0, second);
  if (!base64url_decode(text.substr(second + 1), out.signature) || out.signature.empty())
    return fail(Code::invalid, "the token has no signature");
  return out;
}

}  // namespace billow::identity
