// Values kept at rest so that only whoever has the key can read or alter them: AES-256-GCM with a
// nonce of its own for each. What a value belongs to (a project and a name, say) is sealed with it,
// so that one sealed value cannot be put in another's place.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow {

inline constexpr std::size_t seal_key_bytes = 32;

// Tells keys apart without telling anything of them: eight hexadecimal digits.
std::string seal_key_name(std::string_view key);

// "1.KEYNAME.BASE64(nonce, ciphertext, tag)"
std::string seal(std::string_view key, std::string_view value, std::string_view belongs_to);

// forbidden: sealed with another key. internal: altered, or not what it is said to belong to.
Result<std::string> unseal(std::string_view key,
                           std::string_view sealed,
                           std::string_view belongs_to);

// The key a sealed value needs; empty where the text is none.
std::string_view seal_key_of(std::string_view sealed);

}  // namespace billow
