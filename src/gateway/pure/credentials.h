// The credentials of a request: the key that it offers to the gateway, and what of its fields a
// replica must not see.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "net/http/http.h"

namespace billow::gateway {

inline constexpr std::size_t endpoint_key_bytes_max = 256;

struct OfferedKey {
  std::string key;   // right or wrong; empty: none
  std::string hash;  // SHA-256, hex; empty: none, or longer than any key
  const char* header = "";
  bool by_browser = false;  // which sends it with the calls of every page
};
// A key comes as a bearer token (as OpenAI's clients send it), as X-Api-Key, or as the password of
// a browser's sign-in dialog.
OfferedKey offered_key(const net::Headers& headers);

// Whether the value of a field holds a key of some endpoint: as it is, percent-encoded, or inside
// of Basic credentials, also in forms that the gateway would not accept as a key, because a replica
// could still read them.
bool holds_endpoint_key(std::string_view value);

}  // namespace billow::gateway
