// Tokens, keys and descriptions of identity providers are text from elsewhere: whatever it is, it
// is read or refused, and no token is believed whose signature nobody could make.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "identity/claims.h"
#include "identity/discovery.h"
#include "identity/jwt.h"
#include "identity/key_set.h"

using namespace billow;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto cut = text.find('\n');
  const std::string first = text.substr(0, cut),
                    second = cut == std::string::npos ? "" : text.substr(cut + 1);
  (void)identity::parse_discovery(first, "https://id.example");
  (void)identity::check_provider_url(first, "x");
  const auto keys = identity::KeySet::parse(second);
  const auto token = identity::parse_jwt(first);
  if (!token)
    return 0;
  if (keys)
    (void)keys->check(*token);
  (void)identity::check_claims(token->claims, {"https://id.example", "billow", "n", {}});
  if (const auto person = identity::person_in(token->claims, {"groups", "preferred_username"}))
    for (const char c : person->name)
      if (c == '/' || c == ':' || c == ' ')
        std::abort();  // it becomes the name of a user
  return 0;
}
