// The few cryptographic tools used outside TLS: random secrets, SHA-256, HMAC, Ed25519 signatures,
// and comparison in constant time.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"

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
// Overwrites the bytes and empties the text, so that a secret does not stay in freed memory.
void wipe(std::string& secret);

// Ed25519. Private keys are PEM (PKCS #8); public keys are 32 bytes, signatures 64, both as
// URL-safe base64 without padding.
std::string make_signing_key();
Result<std::string> public_key_of(std::string_view private_pem);
Result<std::string> sign(std::string_view private_pem, std::string_view data);
bool is_public_key(std::string_view text);
bool signature_is_valid(std::string_view public_key,
                        std::string_view data,
                        std::string_view signature);

}  // namespace billow
