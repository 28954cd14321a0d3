// The few cryptographic tools used outside TLS: random secrets, SHA-256, HMAC, and comparison in
// constant time.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace billow {

// Keeps OpenSSL from reading its configuration file at first use, which would cost a command a
// millisecond. Call first in main.
void skip_openssl_configuration();

using Sha256 = std::array<unsigned char, 32>;
Sha256 sha256(std::string_view data);
std::string sha256_hex(std::string_view data);
std::string hmac_sha256_hex(std::string_view key, std::string_view data);

std::string random_bytes(std::size_t count);       // from the system's generator
std::string random_token(std::size_t bytes = 24);  // URL-safe base64 without padding
std::uint64_t random_u64();

std::string hex(std::string_view bytes);
std::string base64(std::string_view bytes);
bool base64_decode(std::string_view text, std::string& out);
bool equal_constant_time(std::string_view a, std::string_view b);

}  // namespace billow
