// ID tokens: which are believed, and every way to forge one that is known.
#include <gtest/gtest.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "base/crypto.h"
#include "identity/claims.h"
#include "identity/discovery.h"
#include "identity/jwt.h"
#include "identity/key_set.h"

namespace billow::identity {
namespace {

using PrivateKey = std::shared_ptr<EVP_PKEY>;

std::string url64(std::string_view bytes) {
  std::string text = base64(bytes);
  while (text.ends_with('='))
    text.pop_back();
  for (char& c : text)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}
PrivateKey make_rsa(unsigned bits = 2048) {
  return {EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", static_cast<std::size_t>(bits)),
          EVP_PKEY_free};
}
// Making one takes long: tests share these.
const PrivateKey& first_rsa() {
  static const PrivateKey key = make_rsa();
  return key;
}
const PrivateKey& second_rsa() {
  static const PrivateKey key = make_rsa();
  return key;
}
PrivateKey make_p256() {
  return {EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), EVP_PKEY_free};
}
std::string number_of(const PrivateKey& key, const char* name, int bytes = 0) {
  BIGNUM* value = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key.get(), name, &value), 1);
  std::string out(static_cast<std::size_t>(bytes ? bytes : BN_num_bytes(value)), '\0');
  BN_bn2binpad(value, reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size()));
  BN_free(value);
  return out;
}
Json rsa_jwk(const PrivateKey& key, const char* id) {
  return Json::object({{"kty", "RSA"},
                       {"kid", id},
                       {"n", url64(number_of(key, OSSL_PKEY_PARAM_RSA_N))},
                       {"e", url64(number_of(key, OSSL_PKEY_PARAM_RSA_E))}});
}
Json p256_jwk(const PrivateKey& key, const char* id) {
  return Json::object({{"kty", "EC"},
                       {"crv", "P-256"},
                       {"kid", id},
                       {"x", url64(number_of(key, OSSL_PKEY_PARAM_EC_PUB_X, 32))},
                       {"y", url64(number_of(key, OSSL_PKEY_PARAM_EC_PUB_Y, 32))}});
}
KeySet set_of(std::initializer_list<Json> keys) {
  Json list = Json::array();
  for (const Json& key : keys)
    list.push(key);
  auto set = KeySet::parse(Json::object({{"keys", list}}).dump());
  EXPECT_TRUE(set);
  return set ? *set : KeySet();
}
std::string raw_signature(const PrivateKey& key, const std::string& data) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, key.get());
  std::size_t size = 1024;
  std::string out(size, '\0');
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(out.data()), &size,
                 reinterpret_cast<const unsigned char*>(data.data()), data.size());
  EVP_MD_CTX_free(context);
  out.resize(size);
  if (EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_EC)
    return out;
  const auto* der = reinterpret_cast<const unsigned char*>(out.data());
  ECDSA_SIG* pair = d2i_ECDSA_SIG(nullptr, &der, static_cast<long>(size));
  std::string two(64, '\0');
  BN_bn2binpad(ECDSA_SIG_get0_r(pair), reinterpret_cast<unsigned char*>(two.data()), 32);
  BN_bn2binpad(ECDSA_SIG_get0_s(pair), reinterpret_cast<unsigned char*>(two.data()) + 32, 32);
  ECDSA_SIG_free(pair);
  return two;
}
std::string token(const PrivateKey& key, const Json& header, const Json& claims) {
  const std::string data = url64(header.dump()) + "." + url64(claims.dump());
  return data + "." + url64(raw_signature(key, data));
}
Json head(const char* alg, const char* kid) {
  return Json::object({{"alg", alg}, {"kid", kid}});
}
// Why the token is not believed; none: it is.
std::optional<Code> code_of(const KeySet& keys, const std::string& text) {
  const auto parsed = parse_jwt(text);
  if (!parsed)
    return parsed.error().code;
  const Status checked = keys.check(*parsed);
  return checked ? std::nullopt : std::optional(checked.error().code);
}

const Json claims = Json::object({{"iss", "https://id.example"},
                                  {"aud", "billow"},
                                  {"sub", "1"},
                                  {"iat", 1000},
                                  {"exp", 2000},
                                  {"nonce", "n"}});
Expected expected() {
  return {"https://id.example", "billow", "n", WallTime{1500ll * 1'000'000'000}};
}

TEST(IdToken, IsAcceptedWithBothKindsOfKeys) {
  const PrivateKey rsa = first_rsa(), ec = make_p256();
  const KeySet keys = set_of({rsa_jwk(rsa, "a"), p256_jwk(ec, "b")});
  EXPECT_EQ(code_of(keys, token(rsa, head("RS256", "a"), claims)), std::nullopt);
  EXPECT_EQ(code_of(keys, token(ec, head("ES256", "b"), claims)), std::nullopt);
}

TEST(IdToken, ForgedOnesAreRefused) {
  const PrivateKey rsa = first_rsa(), other = second_rsa(), ec = make_p256();
  const Json jwk = rsa_jwk(rsa, "a");
  const KeySet keys = set_of({jwk, p256_jwk(ec, "b")});
  const std::string good = token(rsa, head("RS256", "a"), claims);
  // No signature, in the ways that libraries have accepted.
  for (const char* alg : {"none", "None", "NONE", "", "HS256", "RS384", "PS256", "ES384"})
    EXPECT_EQ(code_of(keys, token(rsa, head(alg, "a"), claims)), Code::unauthorized) << alg;
  EXPECT_EQ(code_of(keys, good.substr(0, good.rfind('.') + 1)), Code::invalid);
  // The public key as the secret of an HMAC.
  const std::string data = url64(head("HS256", "a").dump()) + "." + url64(claims.dump());
  EXPECT_EQ(code_of(keys, data + "." + url64(hmac_sha256_hex(jwk["n"].as_string(), data))),
            Code::unauthorized);
  // A key of the attacker's, also if the token brings it along.
  EXPECT_EQ(code_of(keys, token(other, head("RS256", "a"), claims)), Code::unauthorized);
  Json brought = head("RS256", "a");
  brought.set("jwk", rsa_jwk(other, "a"));
  EXPECT_EQ(code_of(keys, token(other, brought, claims)), Code::unauthorized);
  // Another key's number, a key of another kind, none at all.
  EXPECT_EQ(code_of(keys, token(rsa, head("RS256", "b"), claims)), Code::unauthorized);
  EXPECT_EQ(code_of(keys, token(rsa, head("ES256", "a"), claims)), Code::unauthorized);
  EXPECT_EQ(code_of(keys, token(rsa, head("RS256", "c"), claims)), Code::not_found);
  EXPECT_EQ(code_of(keys, token(rsa, head("RS256", "../a"), claims)), Code::not_found);
  Json critical = head("RS256", "a");
  critical.set("crit", Json::array());
  EXPECT_EQ(code_of(keys, token(rsa, critical, claims)), Code::unauthorized);
  // A changed claim, a changed signature.
  std::string changed = good;
  changed[good.find('.') + 5] ^= 1;
  EXPECT_NE(code_of(keys, changed), std::nullopt);
  std::string cut = good;
  cut.pop_back();
  EXPECT_NE(code_of(keys, cut), std::nullopt);
}

TEST(IdToken, AKeyIsNeededIfSeveralFit) {
  const PrivateKey one = first_rsa(), two = second_rsa();
  const Json header = Json::object({{"alg", "RS256"}});
  EXPECT_EQ(code_of(set_of({rsa_jwk(one, "a")}), token(one, header, claims)), std::nullopt);
  EXPECT_EQ(code_of(set_of({rsa_jwk(one, "a"), rsa_jwk(two, "b")}), token(one, header, claims)),
            Code::unauthorized);
}

TEST(KeySet, LeavesOutWhatIsNoKey) {
  const PrivateKey rsa = first_rsa(), small = make_rsa(1024);
  Json encrypts = rsa_jwk(rsa, "enc");
  encrypts.set("use", "enc");
  Json outside = p256_jwk(make_p256(), "point");
  outside.set("y", outside["x"]);
  const Json even = Json::object(
      {{"kty", "RSA"}, {"kid", "e"}, {"n", rsa_jwk(rsa, "a")["n"]}, {"e", url64("\x02")}});
  const KeySet keys = set_of({rsa_jwk(rsa, "a"), rsa_jwk(small, "small"), encrypts, outside, even,
                              Json::object({{"kty", "oct"}, {"kid", "s"}, {"k", "c2VjcmV0"}})});
  EXPECT_EQ(keys.size(), 1u);
  for (const char* bad :
       {"", "[]", "{}", R"({"keys":[]})", R"({"keys":{}})", R"({"keys":[1,null]})"})
    EXPECT_FALSE(KeySet::parse(bad)) << bad;
}

TEST(Claims, MustBeForUsAndForNow) {
  EXPECT_TRUE(check_claims(claims, expected()));
  const auto with = [](const char* name, Json value) {
    Json changed = claims;
    changed.set(name, std::move(value));
    return check_claims(changed, expected()).has_value();
  };
  EXPECT_FALSE(with("iss", "https://id.example/"));
  EXPECT_FALSE(with("iss", "https://evil.example"));
  EXPECT_FALSE(with("iss", Json::array()));
  EXPECT_FALSE(with("aud", "other"));
  EXPECT_FALSE(with("aud", Json()));
  EXPECT_FALSE(with("azp", "other"));
  EXPECT_TRUE(with("azp", "billow"));
  EXPECT_FALSE(with("exp", 1469));
  EXPECT_TRUE(with("exp", 1471));
  EXPECT_FALSE(with("exp", "2000"));
  EXPECT_FALSE(with("exp", Json()));
  EXPECT_FALSE(with("iat", 1531));
  EXPECT_FALSE(with("nbf", 1531));
  EXPECT_FALSE(with("nonce", "other"));
  EXPECT_FALSE(with("nonce", ""));
  Json two = Json::array();
  two.push("billow");
  two.push("other");
  EXPECT_FALSE(with("aud", two));
}

TEST(Claims, SayWhoSomebodyIs) {
  Json all = claims;
  all.set("preferred_username", "Ana@example.com");
  Json groups = Json::array();
  for (const char* group : {"ml", "ml ", "ML", "admins\n", ""})
    groups.push(group);
  groups.push(7);
  all.set("groups", groups);
  const auto person = person_in(all, {"groups", "preferred_username"});
  ASSERT_TRUE(person);
  EXPECT_EQ(person->name, "ana");
  // As they are: comparing is exact, so nothing is trimmed or folded here.
  EXPECT_EQ(person->groups, (std::vector<std::string>{"ml", "ml ", "ML", "admins\n"}));
  all.set("preferred_username", "../root");
  EXPECT_EQ(person_in(all, {"groups", "preferred_username"})->name, "");
  all.set("sub", "a b");
  EXPECT_FALSE(person_in(all, {"groups", "preferred_username"}));
}

TEST(Claims, ADomainNeedsAVerifiedAddress) {
  Person person{.subject = "1", .name = "ana", .email = "ana@Example.com", .groups = {}};
  EXPECT_TRUE(in_domain(person, {}));
  EXPECT_FALSE(in_domain(person, {"example.com"}));
  person.email_verified = true;
  EXPECT_TRUE(in_domain(person, {"example.com"}));
  person.email = "ana@evilexample.com";
  EXPECT_FALSE(in_domain(person, {"example.com"}));
  person.email = "ana@example.com@evil.com";
  EXPECT_FALSE(in_domain(person, {"example.com"}));
}

TEST(Discovery, LeadsOnlyWhereTheIssuerMay) {
  const auto text = [](const char* issuer, const char* keys) {
    return Json::object({{"issuer", issuer},
                         {"authorization_endpoint", "https://id.example/auth"},
                         {"token_endpoint", "https://id.example/token"},
                         {"jwks_uri", keys}})
        .dump();
  };
  EXPECT_TRUE(
      parse_discovery(text("https://id.example", "https://id.example/keys"), "https://id.example"));
  EXPECT_FALSE(parse_discovery(text("https://evil.example", "https://id.example/keys"),
                               "https://id.example"));
  EXPECT_FALSE(
      parse_discovery(text("https://id.example", "http://127.0.0.1/keys"), "https://id.example"));
  EXPECT_FALSE(
      parse_discovery(text("https://id.example", "file:///etc/passwd"), "https://id.example"));
  EXPECT_FALSE(parse_discovery(text("https://id.example", ""), "https://id.example"));
  EXPECT_TRUE(check_provider_url("http://127.0.0.1:3000", "x"));
  EXPECT_TRUE(check_provider_url("https://id.example/realms/a", "x"));
  for (const char* bad : {"http://id.example", "ftp://id.example", "https://", "id.example",
                          "https://id.example#x", "https://a@id.example", "https://id.example/ x"})
    EXPECT_FALSE(check_provider_url(bad, "x")) << bad;
  EXPECT_EQ(discovery_url("https://id.example/"),
            "https://id.example/.well-known/openid-configuration");
}

}  // namespace
}  // namespace billow::identity
