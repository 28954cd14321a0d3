// Digests against published vectors; encodings against their definitions.
#include "base/crypto.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "base/text.h"

namespace billow {
namespace {

TEST(Crypto, Sha256OfPublishedVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Crypto, HmacOfRfc4231) {
  EXPECT_EQ(hmac_sha256_hex("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Crypto, Base64OfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : vectors) {
    std::string decoded;
    EXPECT_EQ(base64(plain), encoded);
    EXPECT_TRUE(base64_decode(encoded, decoded));
    EXPECT_EQ(decoded, plain);
  }
}

TEST(Crypto, Base64OfEveryBytes) {
  Rng rng(9);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes, decoded;
    for (auto n = rng.below(40); n > 0; --n)
      bytes += static_cast<char>(rng.below(256));
    ASSERT_TRUE(base64_decode(base64(bytes), decoded));
    ASSERT_EQ(decoded, bytes);
  }
}

TEST(Crypto, Base64RefusesWhatItDidNotWrite) {
  std::string out;
  for (const char* bad : {"Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9*", "Zm 9", "Zg=a"})
    EXPECT_FALSE(base64_decode(bad, out)) << bad;
  EXPECT_FALSE(base64_decode(std::string_view("Zm\0v", 4), out)) << "a zero byte is no letter";
}

TEST(Crypto, ASignatureIsForItsKeyAndText) {
  const std::string key = make_signing_key(), other = make_signing_key();
  const std::string public_key = *public_key_of(key);
  const std::string signature = *sign(key, "text");
  EXPECT_TRUE(is_public_key(public_key));
  EXPECT_TRUE(signature_is_valid(public_key, "text", signature));
  EXPECT_FALSE(signature_is_valid(public_key, "Text", signature));
  EXPECT_FALSE(signature_is_valid(*public_key_of(other), "text", signature));
  std::string changed = signature;
  changed[0] = changed[0] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(signature_is_valid(public_key, "text", changed));
  for (const char* bad : {"", "A", "not base64!", "AAAA"}) {
    EXPECT_FALSE(is_public_key(bad)) << bad;
    EXPECT_FALSE(signature_is_valid(bad, "text", signature)) << bad;
    EXPECT_FALSE(signature_is_valid(public_key, "text", bad)) << bad;
  }
  EXPECT_FALSE(public_key_of("no key"));
  EXPECT_FALSE(sign("no key", "text"));
}

TEST(Crypto, TokensAreUrlSafeAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 500; ++i) {
    const std::string token = random_token();
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_of("+/="), std::string::npos);
    EXPECT_TRUE(seen.insert(token).second);
  }
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(1'000).size(), 1'000u);
}

TEST(Crypto, ComparisonLooksAtEveryByte) {
  EXPECT_TRUE(equal_constant_time("", ""));
  EXPECT_TRUE(equal_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_constant_time("Secret", "secret"));
  EXPECT_FALSE(equal_constant_time("secret", "secret0"));
}

}  // namespace
}  // namespace billow
