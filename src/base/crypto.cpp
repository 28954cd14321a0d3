#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <cstring>
#include <memory>

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

// The implementation is looked up once and each thread keeps its context: for a small file both
// cost as much as the digest itself.
Sha256 sha256(std::string_view data) {
  static EVP_MD* const kind = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                                EVP_MD_CTX_free);
  Sha256 out{};
  unsigned int size = 0;
  BILLOW_CHECK(EVP_DigestInit_ex(context.get(), kind, nullptr) == 1 &&
                   EVP_DigestUpdate(context.get(), data.data(), data.size()) == 1 &&
                   EVP_DigestFinal_ex(context.get(), out.data(), &size) == 1 && size == out.size(),
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

namespace {

std::string base64_url(std::string_view bytes) {
  std::string text = base64(bytes);
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

// Empty: not URL-safe base64 of exactly that many bytes.
std::string base64_url_decode(std::string_view text, std::size_t bytes) {
  std::string padded(text);
  for (char& c : padded) {
    if (c == '+' || c == '/' || c == '=')
      return {};
    if (c == '-')
      c = '+';
    if (c == '_')
      c = '/';
  }
  while (padded.size() % 4 != 0)
    padded += '=';
  std::string out;
  if (!base64_decode(padded, out) || out.size() != bytes || base64_url(out) != text)
    return {};
  return out;
}

}  // namespace

std::string random_token(std::size_t bytes) {
  return base64_url(random_bytes(bytes));
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
      if (c == '=' && i + 4 == text.size() && k >= 2) {
        ++padding;
        v <<= 6;
      } else if (at && padding == 0)
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

void wipe(std::string& secret) {
  OPENSSL_cleanse(secret.data(), secret.size());
  secret.clear();
}

namespace {

constexpr std::size_t public_key_bytes = 32, signature_bytes = 64;

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

Key read_signing_key(std::string_view pem) {
  const std::unique_ptr<BIO, FreeKey> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr) : nullptr);
  return key && EVP_PKEY_get_id(key.get()) == EVP_PKEY_ED25519 ? std::move(key) : Key();
}

std::unexpected<Error> no_signing_key() {
  return fail(Code::invalid, "this is not an Ed25519 key");
}

}  // namespace

std::string make_signing_key() {
  const Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  const std::unique_ptr<BIO, FreeKey> bio(BIO_new(BIO_s_mem()));
  BILLOW_CHECK(key && bio &&
                   PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                            nullptr) == 1,
               "a key could not be created");
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(size));
}

Result<std::string> public_key_of(std::string_view private_pem) {
  const Key key = read_signing_key(private_pem);
  std::string out(public_key_bytes, '\0');
  std::size_t size = out.size();
  if (!key || EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(out.data()),
                                          &size) != 1)
    return no_signing_key();
  return base64_url(out);
}

Result<std::string> sign(std::string_view private_pem, std::string_view data) {
  const Key key = read_signing_key(private_pem);
  const std::unique_ptr<EVP_MD_CTX, FreeKey> context(EVP_MD_CTX_new());
  std::string out(signature_bytes, '\0');
  std::size_t size = out.size();
  if (!key || !context ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size,
                     reinterpret_cast<const unsigned char*>(data.data()), data.size()) != 1)
    return no_signing_key();
  return base64_url(out);
}

bool is_public_key(std::string_view text) {
  return !base64_url_decode(text, public_key_bytes).empty();
}

bool signature_is_valid(std::string_view public_key,
                        std::string_view data,
                        std::string_view signature) {
  const std::string raw = base64_url_decode(public_key, public_key_bytes);
  const std::string signed_bytes = base64_url_decode(signature, signature_bytes);
  if (raw.empty() || signed_bytes.empty())
    return false;
  const Key key(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(raw.data()), raw.size()));
  const std::unique_ptr<EVP_MD_CTX, FreeKey> context(EVP_MD_CTX_new());
  return key && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(),
                          reinterpret_cast<const unsigned char*>(signed_bytes.data()),
                          signed_bytes.size(), reinterpret_cast<const unsigned char*>(data.data()),
                          data.size()) == 1;
}

}  // namespace billow
