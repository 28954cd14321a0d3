#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "base/check.h"
#include "base/platform.h"

namespace billow {
namespace {
constexpr char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

void skip_openssl_configuration() {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
}

Sha256 sha256(std::string_view data) {
  Sha256 out{};
  unsigned int size = 0;
  BILLOW_CHECK(
      EVP_Digest(data.data(), data.size(), out.data(), &size, EVP_sha256(), nullptr) == 1 &&
          size == out.size(),
      "SHA-256 failed");
  return out;
}

std::string sha256_hex(std::string_view data) {
  const Sha256 digest = sha256(data);
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string hmac_sha256_hex(std::string_view key, std::string_view data) {
  unsigned char out[32];
  unsigned int size = 0;
  BILLOW_CHECK(
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(), out, &size) != nullptr,
      "HMAC failed");
  return hex({reinterpret_cast<const char*>(out), size});
}

std::string random_bytes(std::size_t count) {
  std::string out(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const std::int64_t n = platform::random_bytes(out.data() + done, count - done);
    BILLOW_CHECK(n > 0 || errno == EINTR, "the system provides no random bytes");
    if (n > 0)
      done += static_cast<std::size_t>(n);
  }
  return out;
}

std::string random_token(std::size_t bytes) {
  std::string text = base64(random_bytes(bytes));
  while (!text.empty() && text.back() == '=')
    text.pop_back();
  for (char& c : text) {
    if (c == '+')
      c = '-';
    if (c == '/')
      c = '_';
  }
  return text;
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  std::memcpy(&value, random_bytes(8).data(), 8);
  return value;
}

std::string hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t v = static_cast<unsigned char>(bytes[i]) << 16;
    if (i + 1 < bytes.size())
      v |= static_cast<unsigned char>(bytes[i + 1]) << 8;
    if (i + 2 < bytes.size())
      v |= static_cast<unsigned char>(bytes[i + 2]);
    out += base64_alphabet[v >> 18];
    out += base64_alphabet[(v >> 12) & 63];
    out += i + 1 < bytes.size() ? base64_alphabet[(v >> 6) & 63] : '=';
    out += i + 2 < bytes.size() ? base64_alphabet[v & 63] : '=';
  }
  return out;
}

bool base64_decode(std::string_view text, std::string& out) {
  out.clear();
  if (text.size() % 4 != 0)
    return false;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t v = 0;
    int padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const char* at = c ? std::strchr(base64_alphabet, c) : nullptr;
      if (c == '=' && i + 4 == text.size() && k >= 2)
        ++padding, v <<= 6;
      else if (at && padding == 0)
        v = (v << 6) | static_cast<std::uint32_t>(at - base64_alphabet);
      else
        return false;
    }
    out += static_cast<char>(v >> 16);
    if (padding < 2)
      out += static_cast<char>((v >> 8) & 255);
    if (padding < 1)
      out += static_cast<char>(v & 255);
  }
  return true;
}

bool equal_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace billow
