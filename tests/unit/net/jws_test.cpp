// Signed JSON as ACME authorities read it. That its signatures are right, the authority of the
// end-to-end tests checks with another library.
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "net/jws.h"

namespace billow::net {
namespace {

TEST(Jws, Base64urlHasNoPadding) {
  EXPECT_EQ(base64url("\xfb\xff"), "-_8");
  EXPECT_EQ(base64url(""), "");
  EXPECT_EQ(base64url("abcd"), "YWJjZA");
}

TEST(Jws, AKeyIsReadBack) {
  const auto made = JwsKey::make();
  ASSERT_TRUE(made);
  const auto again = JwsKey::read(made->pem());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->thumbprint(), made->thumbprint());
  EXPECT_EQ(made->thumbprint().size(), 43);
  EXPECT_EQ(made->public_jwk()["x"].str_or("").size(), 43);
  EXPECT_FALSE(JwsKey::read("nonsense"));
  EXPECT_FALSE(JwsKey::read(make_signing_key())) << "another kind of key";
}

TEST(Jws, ADocumentHasItsThreeParts) {
  const auto key = JwsKey::make();
  ASSERT_TRUE(key);
  const auto text = key->sign(Json::object({{"url", "https://ca.example/x"}}), "{}");
  ASSERT_TRUE(text);
  const auto document = parse_json(*text);
  ASSERT_TRUE(document);
  EXPECT_EQ((*document)["payload"].str_or(""), "e30");
  EXPECT_EQ((*document)["signature"].str_or("").size(), 86) << "64 bytes";
  EXPECT_EQ(document->members().size(), 3);
}

TEST(Jws, BytesOfPem) {
  EXPECT_EQ(pem_bytes("-----BEGIN X-----\nYWJj\nZA==\n-----END X-----\n").value(), "abcd");
  EXPECT_FALSE(pem_bytes("YWJj"));
}

}  // namespace
}  // namespace billow::net
