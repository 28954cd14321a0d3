// Encryption of stored values in envelopes: each value is encrypted (AES-256-GCM) with a data key
// of its own, and the data key with the master key, so that only a holder of the master key can
// read or alter them. The owner of a value (for example a project and a name) is authenticated with
// it, so that one sealed value cannot replace another. A new master key only wraps the data keys
// anew.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow {

inline constexpr std::size_t seal_key_bytes = 32;

// Identifies a key without revealing it: eight hexadecimal digits.
std::string seal_key_name(std::string_view key);

// "2.KEYNAME.BASE64(data key).BASE64(value)", each with nonce, ciphertext and tag. Values of
// earlier versions have no data key: "1.KEYNAME.BASE64(value)".
std::string seal(std::string_view key, std::string_view value, std::string_view belongs_to);

// forbidden: sealed with another key. internal: altered, or sealed for another owner.
Result<std::string> unseal(std::string_view key,
                           std::string_view sealed,
                           std::string_view belongs_to);

// The same value for the holder of another master key.
Result<std::string> rewrap(std::string_view old_key,
                           std::string_view new_key,
                           std::string_view sealed,
                           std::string_view belongs_to);

// The name of the key that a sealed value needs; empty if the text is not a sealed value.
std::string_view seal_key_of(std::string_view sealed);

}  // namespace billow
