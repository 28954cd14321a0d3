#include "identity/key_set.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <fmt/format.h>

namespace billow::identity {
namespace {

constexpr std::size_t keys_max = 64;
constexpr int rsa_bits_min = 2048, rsa_bits_max = 8192;
constexpr std::size_t p256_bytes = 32;

using Number = std::unique_ptr<BIGNUM, decltype(&BN_free)>;
Number number(std::string_view bytes) {
  return {BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                    static_cast<int>(bytes.size()), nullptr),
          BN_free};
}

// A public key from its parameters; null: they are not a key.
std::shared_ptr<EVP_PKEY> make_key(const char* kind, OSSL_PARAM_BLD* parts) {
  const std::unique_ptr<OSSL_PARAM, decltype(&OSSL_PARAM_free)> params(
      OSSL_PARAM_BLD_to_param(parts), OSSL_PARAM_free);
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> make(
      EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr), EVP_PKEY_CTX_free);
  EVP_PKEY* key = nullptr;
  if (!params || !make || EVP_PKEY_fromdata_init(make.get()) != 1 ||
      EVP_PKEY_fromdata(make.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
    return nullptr;
  std::shared_ptr<EVP_PKEY> out(key, EVP_PKEY_free);
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> look(
      EVP_PKEY_CTX_new_from_pkey(nullptr, key, nullptr), EVP_PKEY_CTX_free);
  return look && EVP_PKEY_public_check(look.get()) == 1 ? out : nullptr;
}

std::shared_ptr<EVP_PKEY> rsa_key(std::string_view modulus, std::string_view exponent) {
  const Number n = number(modulus), e = number(exponent);
  const std::unique_ptr<OSSL_PARAM_BLD, decltype(&OSSL_PARAM_BLD_free)> parts(OSSL_PARAM_BLD_new(),
                                                                              OSSL_PARAM_BLD_free);
  if (!n || !e || !parts || BN_num_bits(n.get()) < rsa_bits_min ||
      BN_num_bits(n.get()) > rsa_bits_max || BN_num_bits(e.get()) > 64 || !BN_is_odd(e.get()) ||
      BN_is_one(e.get()) ||
      OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1)
    return nullptr;
  return make_key("RSA", parts.get());
}

std::shared_ptr<EVP_PKEY> p256_key(const std::string& x, const std::string& y) {
  if (x.size() != p256_bytes || y.size() != p256_bytes)
    return nullptr;
  const std::string point = "\x04" + x + y;  // uncompressed
  const std::unique_ptr<OSSL_PARAM_BLD, decltype(&OSSL_PARAM_BLD_free)> parts(OSSL_PARAM_BLD_new(),
                                                                              OSSL_PARAM_BLD_free);
  if (!parts ||
      OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1)
    return nullptr;
  return make_key("EC", parts.get());
}

// Tokens have the two numbers of an ECDSA signature side by side; OpenSSL wants them in DER.
std::string in_der(const std::string& pair) {
  if (pair.size() != 2 * p256_bytes)
    return {};
  const std::unique_ptr<ECDSA_SIG, decltype(&ECDSA_SIG_free)> signature(ECDSA_SIG_new(),
                                                                        ECDSA_SIG_free);
  Number r = number(std::string_view(pair).substr(0, p256_bytes)),
         s = number(std::string_view(pair).substr(p256_bytes));
  if (!signature || !r || !s || ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1)
    return {};
  (void)r.release();
  (void)s.release();
  unsigned char* bytes = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &bytes);
  if (size <= 0)
    return {};
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return out;
}

bool verifies(EVP_PKEY* key, const std::string& data, const std::string& signature) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  return context && !signature.empty() &&
         EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(data.data()),
                          data.size()) == 1;
}

}  // namespace

Result<KeySet::Key> KeySet::parse_key(const Json& json) {
  const auto bytes_of = [&](const char* name) {
    std::string out;
    return base64url_decode(json[name].str_or(""), out) ? out : std::string();
  };
  Key out;
  out.id = json["kid"].str_or("");
  const std::string_view kind = json["kty"].str_or(""), alg = json["alg"].str_or(""),
                         use = json["use"].str_or("sig");
  if (use != "sig")
    return fail(Code::unsupported, "not for signatures");
  if (kind == "RSA" && (alg.empty() || alg == "RS256")) {
    out.kind = Kind::rsa;
    out.key = rsa_key(bytes_of("n"), bytes_of("e"));
  } else if (kind == "EC" && json["crv"].str_or("") == "P-256" && (alg.empty() || alg == "ES256")) {
    out.kind = Kind::p256;
    out.key = p256_key(bytes_of("x"), bytes_of("y"));
  }
  if (!out.key)
    return fail(Code::unsupported, "not a key that is accepted here");
  return out;
}

Result<KeySet> KeySet::parse(std::string_view text) {
  const Json json = BILLOW_TRY(parse_json(text));
  if (!json["keys"].is_array() || json["keys"].size() > keys_max)
    return fail(Code::invalid, "the provider's keys cannot be read");
  KeySet out;
  for (const Json& each : json["keys"].items())
    if (auto key = parse_key(each))
      out.keys_.push_back(std::move(*key));
  if (out.keys_.empty())
    return fail(Code::invalid, "the provider publishes no key for RS256 or ES256");
  return out;
}

Status KeySet::check(const Jwt& token) const {
  const std::string_view alg = token.header["alg"].str_or("");
  if (alg != "RS256" && alg != "ES256")
    return fail(Code::unauthorized, "the token's signature is neither RS256 nor ES256");
  if (token.header.find("crit"))
    return fail(Code::unauthorized, "the token demands an extension that is not known here");
  const Kind wanted = alg == "RS256" ? Kind::rsa : Kind::p256;
  const Json* id = token.header.find("kid");
  const Key* found = nullptr;
  std::size_t candidates = 0;
  for (const Key& key : keys_) {
    if (id ? key.id != id->str_or("") || !id->is_string() : key.kind != wanted)
      continue;
    if (id && key.kind != wanted)
      return fail(Code::unauthorized, "the token's key is of another kind than its signature");
    found = &key;
    ++candidates;
  }
  if (candidates == 0)
    return fail(Code::not_found, "the provider has no key of the token's number");
  if (candidates > 1)
    return fail(Code::unauthorized, "the token does not say which key it was signed with");
  if (!verifies(found->key.get(), token.signed_part,
                wanted == Kind::rsa ? token.signature : in_der(token.signature)))
    return fail(Code::unauthorized, "the token's signature is not valid");
  return {};
}

}  // namespace billow::identity
