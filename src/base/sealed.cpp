#include "base/sealed.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <memory>
#include <optional>

#include "base/check.h"
#include "base/crypto.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr std::size_t nonce_bytes = 12, tag_bytes = 16;
constexpr std::string_view plain_version = "1.", envelope_version = "2.";

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

// nonce, ciphertext, tag
std::string encrypted(std::string_view key, std::string_view value, std::string_view belongs_to) {
  BILLOW_CHECK(key.size() == seal_key_bytes, "a sealing key must have 32 bytes");
  const std::string nonce = random_bytes(nonce_bytes);
  std::string out(value.size(), '\0'), tag(tag_bytes, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int n = 0;
  const bool done =
      cipher &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(key), bytes(nonce)) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &n, bytes(belongs_to),
                        static_cast<int>(belongs_to.size())) == 1 &&
      EVP_EncryptUpdate(cipher.get(), bytes(out), &n, bytes(value),
                        static_cast<int>(value.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), nullptr, &n) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, tag_bytes, tag.data()) == 1;
  BILLOW_CHECK(done, "AES-256-GCM failed");
  return nonce + out + tag;
}

// None: it was altered, or the key or the owner is another.
std::optional<std::string> decrypted(std::string_view key,
                                     std::string_view encoded,
                                     std::string_view belongs_to) {
  BILLOW_CHECK(key.size() == seal_key_bytes, "a sealing key must have 32 bytes");
  std::string raw;
  if (!base64_decode(encoded, raw) || raw.size() < nonce_bytes + tag_bytes)
    return std::nullopt;
  const std::string_view nonce = std::string_view(raw).substr(0, nonce_bytes),
                         body = std::string_view(raw).substr(nonce_bytes,
                                                             raw.size() - nonce_bytes - tag_bytes);
  std::string out(body.size(), '\0'), tag = raw.substr(raw.size() - tag_bytes);
  const Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int n = 0;
  const bool done =
      cipher &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes(key), bytes(nonce)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &n, bytes(belongs_to),
                        static_cast<int>(belongs_to.size())) == 1 &&
      EVP_DecryptUpdate(cipher.get(), bytes(out), &n, bytes(body), static_cast<int>(body.size())) ==
          1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, tag_bytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), nullptr, &n) == 1;
  return done ? std::optional(std::move(out)) : std::nullopt;
}

// A data key cannot stand for a value, nor that of one owner for another's.
std::string data_key_of(std::string_view belongs_to) {
  return "data key of " + std::string(belongs_to);
}

struct Parts {
  std::string_view key_name;
  std::string_view data_key;  // empty: the value is sealed with the master key itself
  std::string_view value;
};

std::optional<Parts> parts_of(std::string_view sealed) {
  const bool envelope = sealed.starts_with(envelope_version);
  if (!envelope && !sealed.starts_with(plain_version))
    return std::nullopt;
  sealed.remove_prefix(plain_version.size());
  Parts out;
  const auto dot = sealed.find('.');
  if (dot == std::string_view::npos || dot == 0)
    return std::nullopt;
  out.key_name = sealed.substr(0, dot);
  out.value = sealed.substr(dot + 1);
  if (!envelope)
    return out;
  const auto second = out.value.find('.');
  if (second == std::string_view::npos || second == 0)
    return std::nullopt;
  out.data_key = out.value.substr(0, second);
  out.value.remove_prefix(second + 1);
  return out;
}

Error damaged() {
  return {Code::internal, "the sealed value is damaged", ""};
}

Result<Parts> parts_for(std::string_view key, std::string_view sealed) {
  const auto parts = parts_of(sealed);
  if (!parts)
    return pass(damaged());
  if (parts->key_name != seal_key_name(key))
    return fail(Code::forbidden,
                fmt::format("it was sealed with another key ({}; the current one is {})",
                            parts->key_name, seal_key_name(key)));
  return *parts;
}

std::string enveloped(std::string_view key,
                      std::string_view data_key,
                      std::string_view value,
                      std::string_view belongs_to) {
  return fmt::format("{}{}.{}.{}", envelope_version, seal_key_name(key),
                     base64(encrypted(key, data_key, data_key_of(belongs_to))), value);
}

}  // namespace

std::string seal_key_name(std::string_view key) {
  return hmac_sha256_hex(key, "billow seal key name").substr(0, 8);
}

std::string_view seal_key_of(std::string_view sealed) {
  const auto parts = parts_of(sealed);
  return parts ? parts->key_name : std::string_view{};
}

std::string seal(std::string_view key, std::string_view value, std::string_view belongs_to) {
  std::string data_key = random_bytes(seal_key_bytes);
  std::string out =
      enveloped(key, data_key, base64(encrypted(data_key, value, belongs_to)), belongs_to);
  wipe(data_key);
  return out;
}

Result<std::string> unseal(std::string_view key,
                           std::string_view sealed,
                           std::string_view belongs_to) {
  const Parts parts = BILLOW_TRY(parts_for(key, sealed));
  std::optional<std::string> data_key;
  if (!parts.data_key.empty()) {
    data_key = decrypted(key, parts.data_key, data_key_of(belongs_to));
    if (!data_key || data_key->size() != seal_key_bytes)
      return pass(damaged());
  }
  auto value = decrypted(data_key ? std::string_view(*data_key) : key, parts.value, belongs_to);
  if (data_key)
    wipe(*data_key);
  if (!value)
    return pass(damaged());
  return std::move(*value);
}

Result<std::string> rewrap(std::string_view old_key,
                           std::string_view new_key,
                           std::string_view sealed,
                           std::string_view belongs_to) {
  const Parts parts = BILLOW_TRY(parts_for(old_key, sealed));
  if (parts.data_key.empty()) {
    std::string value = BILLOW_TRY(unseal(old_key, sealed, belongs_to));
    std::string out = seal(new_key, value, belongs_to);
    wipe(value);
    return out;
  }
  auto data_key = decrypted(old_key, parts.data_key, data_key_of(belongs_to));
  if (!data_key || data_key->size() != seal_key_bytes)
    return pass(damaged());
  std::string out = enveloped(new_key, *data_key, parts.value, belongs_to);
  wipe(*data_key);
  return out;
}

}  // namespace billow
