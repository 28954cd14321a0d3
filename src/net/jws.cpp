#include "net/jws.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::net {
namespace {

constexpr int coordinate_bytes = 32;  // of P-256

struct FreeJwsKey {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
struct FreeJwsBio {
  void operator()(BIO* bio) const { ::BIO_free_all(bio); }
};
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};
struct FreeSignature {
  void operator()(ECDSA_SIG* signature) const { ::ECDSA_SIG_free(signature); }
};
using OwnedJwsKey = std::unique_ptr<EVP_PKEY, FreeJwsKey>;
using JwsBio = std::unique_ptr<BIO, FreeJwsBio>;

std::unexpected<Error> jws_broken(std::string_view what) {
  ::ERR_clear_error();
  return fail(Code::internal, fmt::format("OpenSSL could not {}", what));
}

Result<OwnedJwsKey> jws_key_of(const std::string& pem) {
  const JwsBio bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  OwnedJwsKey key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key || ::EVP_PKEY_is_a(key.get(), "EC") != 1) {
    ::ERR_clear_error();
    return fail(Code::invalid, "not a private key of an elliptic curve in PEM form");
  }
  return key;
}

Result<std::string> jws_coordinate(const EVP_PKEY* key, const char* name) {
  BIGNUM* number = nullptr;
  unsigned char bytes[coordinate_bytes];
  const bool got = ::EVP_PKEY_get_bn_param(key, name, &number) == 1 &&
                   ::BN_bn2binpad(number, bytes, coordinate_bytes) == coordinate_bytes;
  ::BN_free(number);
  if (!got)
    return jws_broken("read a public key of P-256");
  return base64url({reinterpret_cast<const char*>(bytes), coordinate_bytes});
}

// A signature of OpenSSL (DER) as the two numbers that a JWS has.
Result<std::string> plain_signature(const std::string& der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const std::unique_ptr<ECDSA_SIG, FreeSignature> signature(
      ::d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  unsigned char bytes[2 * coordinate_bytes];
  if (!signature ||
      ::BN_bn2binpad(::ECDSA_SIG_get0_r(signature.get()), bytes, coordinate_bytes) !=
          coordinate_bytes ||
      ::BN_bn2binpad(::ECDSA_SIG_get0_s(signature.get()), bytes + coordinate_bytes,
                     coordinate_bytes) != coordinate_bytes)
    return jws_broken("read a signature");
  return std::string(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

}  // namespace

std::string base64url(std::string_view bytes) {
  std::string out = base64(bytes);
  while (out.ends_with('='))
    out.pop_back();
  for (char& c : out)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  return out;
}

Result<std::string> pem_bytes(std::string_view pem) {
  std::string body, out;
  bool inside = false;
  for (const std::string& line : split(std::string(pem), '\n')) {
    const std::string_view text = trim(line);
    if (text.starts_with("-----BEGIN"))
      inside = true;
    else if (text.starts_with("-----END"))
      break;
    else if (inside)
      body.append(text);
  }
  if (body.empty() || !base64_decode(body, out))
    return fail(Code::invalid, "not a PEM text");
  return out;
}

Result<JwsKey> JwsKey::make() {
  const OwnedJwsKey key(::EVP_EC_gen("P-256"));
  const JwsBio bio(::BIO_new(::BIO_s_mem()));
  char* text = nullptr;
  if (!key ||
      ::PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return jws_broken("create a key");
  const long length = BIO_get_mem_data(bio.get(), &text);
  return read(std::string(text, static_cast<std::size_t>(length)));
}

Result<JwsKey> JwsKey::read(const std::string& pem) {
  const OwnedJwsKey key = BILLOW_TRY(jws_key_of(pem));
  JwsKey out;
  out.pem_ = pem;
  out.x_ = BILLOW_TRY(jws_coordinate(key.get(), OSSL_PKEY_PARAM_EC_PUB_X));
  out.y_ = BILLOW_TRY(jws_coordinate(key.get(), OSSL_PKEY_PARAM_EC_PUB_Y));
  return out;
}

Json JwsKey::public_jwk() const {
  return Json::object({{"crv", "P-256"}, {"kty", "EC"}, {"x", x_}, {"y", y_}});
}

// RFC 7638: the required members only, in the order of their names, without spaces.
std::string JwsKey::thumbprint() const {
  const auto digest =
      sha256(fmt::format(R"({{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}})", x_, y_));
  return base64url({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

Result<std::string> JwsKey::sign(Json header, std::string_view payload) const {
  header.set("alg", "ES256");
  const std::string protected_part = base64url(header.dump()), payload_part = base64url(payload);
  const std::string signed_part = protected_part + "." + payload_part;
  const OwnedJwsKey key = BILLOW_TRY(jws_key_of(pem_));
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> context(::EVP_MD_CTX_new());
  std::size_t size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(signed_part.data());
  if (!context ||
      ::EVP_DigestSignInit(context.get(), nullptr, ::EVP_sha256(), nullptr, key.get()) != 1 ||
      ::EVP_DigestSign(context.get(), nullptr, &size, data, signed_part.size()) != 1)
    return jws_broken("sign");
  std::string der(size, '\0');
  if (::EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(der.data()), &size, data,
                       signed_part.size()) != 1)
    return jws_broken("sign");
  der.resize(size);
  const std::string signature = BILLOW_TRY(plain_signature(der));
  return Json::object({{"protected", protected_part},
                       {"payload", payload_part},
                       {"signature", base64url(signature)}})
      .dump();
}

}  // namespace billow::net
