#include "pool/oauth/jwt.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <memory>

#include "base/crypto.h"
#include "net/certs.h"

namespace billow::pool {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

std::string base64url(std::string_view bytes) {
  std::string text = base64(bytes);
  while (text.ends_with('='))
    text.pop_back();
  for (char& c : text)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

std::string from_base64url(std::string_view text) {
  std::string padded(text);
  for (char& c : padded)
    c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (padded.size() % 4 != 0)
    padded += '=';
  std::string bytes;
  return base64_decode(padded, bytes) ? bytes : std::string();
}

// An encrypted key must not ask at the head's terminal.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

Result<std::string> rsa_signature(JwtAlgorithm algorithm,
                                  std::string_view data,
                                  const std::string& private_pem) {
  const std::unique_ptr<BIO, FreeBio> bio(
      BIO_new_mem_buf(private_pem.data(), static_cast<int>(private_pem.size())));
  const std::unique_ptr<EVP_PKEY, FreeKey> key(
      bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr) : nullptr);
  if (!key || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA)
    return fail(Code::unauthorized, "the private key is not an RSA key without a passphrase",
                "download a new key from the provider");
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* settings = nullptr;
  bool ok = context &&
            EVP_DigestSignInit(context.get(), &settings, EVP_sha256(), nullptr, key.get()) == 1;
  if (ok && algorithm == JwtAlgorithm::ps256)
    ok = EVP_PKEY_CTX_set_rsa_padding(settings, RSA_PKCS1_PSS_PADDING) == 1 &&
         EVP_PKEY_CTX_set_rsa_pss_saltlen(settings, RSA_PSS_SALTLEN_DIGEST) == 1;
  std::size_t length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  ok = ok && EVP_DigestSign(context.get(), nullptr, &length, bytes, data.size()) == 1;
  std::string signature(length, '\0');
  ok = ok && EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                            &length, bytes, data.size()) == 1;
  if (!ok)
    return fail(Code::internal, "OpenSSL could not sign a token");
  signature.resize(length);
  return signature;
}

}  // namespace

Result<std::string> signed_jwt(JwtAlgorithm algorithm,
                               Json header,
                               const Json& claims,
                               const std::string& private_pem) {
  header.set("alg", algorithm == JwtAlgorithm::rs256 ? "RS256" : "PS256");
  header.set("typ", "JWT");
  const std::string signed_part = base64url(header.dump()) + "." + base64url(claims.dump());
  const std::string signature = BILLOW_TRY(rsa_signature(algorithm, signed_part, private_pem));
  return signed_part + "." + base64url(signature);
}

Json unverified_claims(std::string_view token) {
  const std::size_t first = token.find('.');
  const std::size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos)
    return {};
  auto claims = parse_json(from_base64url(token.substr(first + 1, second - first - 1)));
  return claims ? std::move(*claims) : Json();
}

Result<std::string> x5t_s256(const std::string& cert_pem) {
  const std::string digits = BILLOW_TRY(net::cert_fingerprint(cert_pem));
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return base64url(bytes);
}

}  // namespace billow::pool
