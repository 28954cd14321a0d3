#include "base/sealed.h"

#include <openssl/evp.h>

#include <memory>

#include "base/check.h"
#include "base/crypto.h"

namespace billow {
namespace {

constexpr std::size_t nonce_bytes = 12, tag_bytes = 16;
constexpr std::string_view version = "1.";

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

}  // namespace

std::string seal_key_name(std::string_view key) {
  return hmac_sha256_hex(key, "billow seal key name").substr(0, 8);
}

std::string_view seal_key_of(std::string_view sealed) {
  if (!sealed.starts_with(version))
    return {};
  sealed.remove_prefix(version.size());
  const auto dot = sealed.find('.');
  return dot == std::string_view::npos ? std::string_view{} : sealed.substr(0, dot);
}

std::string seal(std::string_view key, std::string_view value, std::string_view belongs_to) {
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
  return std::string(version) + seal_key_name(key) + "." + base64(nonce + out + tag);
}

Result<std::string> unseal(std::string_view key,
                           std::string_view sealed,
                           std::string_view belongs_to) {
  BILLOW_CHECK(key.size() == seal_key_bytes, "a sealing key must have 32 bytes");
  const std::string_view needs = seal_key_of(sealed);
  const auto damaged = [] {
    return fail(Code::internal, "the sealed value is damaged");
  };
  if (needs.empty())
    return damaged();
  if (needs != seal_key_name(key))
    return fail(Code::forbidden,
                fmt::format("it was sealed with another key ({}; the current one is {})", needs,
                            seal_key_name(key)));
  std::string raw;
  if (!base64_decode(sealed.substr(version.size() + needs.size() + 1), raw) ||
      raw.size() < nonce_bytes + tag_bytes)
    return damaged();
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
  if (!done)
    return damaged();
  return out;
}

}  // namespace billow
