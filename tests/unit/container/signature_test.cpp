// Signatures of images: what a registry may claim, and what counts.
#include "container/signature.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/crypto.h"
#include "container/registry.h"

namespace billow::container {
namespace {

class SigningKey {
 public:
  SigningKey() : key_(EVP_EC_gen("P-256")) {}
  ~SigningKey() { EVP_PKEY_free(key_); }

  std::string pem() const {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PUBKEY(bio, key_);
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string out(data, static_cast<std::size_t>(size));
    BIO_free(bio);
    return out;
  }
  std::string sign(std::string_view text) const {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    std::string out(200, 0);
    std::size_t size = out.size();
    EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, key_);
    EXPECT_EQ(EVP_DigestSign(context, reinterpret_cast<unsigned char*>(out.data()), &size,
                             reinterpret_cast<const unsigned char*>(text.data()), text.size()),
              1);
    EVP_MD_CTX_free(context);
    return base64(out.substr(0, size));
  }

 private:
  EVP_PKEY* key_;
};

const std::string image = "sha256:" + std::string(64, 'a');

std::string statement(const std::string& digest,
                      const std::string& type = "cosign container image signature") {
  return R"({"critical":{"identity":{"docker-reference":"x"},"image":{"docker-manifest-digest":")" +
         digest + R"("},"type":")" + type + R"("},"optional":null})";
}

TEST(ImageSignature, IsOfTheKeyAndAboutTheImage) {
  const SigningKey key, other;
  const std::string right = statement(image);
  EXPECT_TRUE(is_signed(key.pem(), right, key.sign(right), image));
  EXPECT_FALSE(is_signed(other.pem(), right, key.sign(right), image));
  EXPECT_FALSE(is_signed(key.pem(), right, other.sign(right), image));
  const std::string about_another = statement("sha256:" + std::string(64, 'b'));
  EXPECT_FALSE(is_signed(key.pem(), about_another, key.sign(about_another), image));
  EXPECT_FALSE(is_signed(key.pem(), right, key.sign(about_another), image));
  const std::string another_kind = statement(image, "a note");
  EXPECT_FALSE(is_signed(key.pem(), another_kind, key.sign(another_kind), image));
  EXPECT_FALSE(is_signed(key.pem(), "not JSON", key.sign("not JSON"), image));
  for (const char* signature : {"", "AAAA", "not base64!"})
    EXPECT_FALSE(is_signed(key.pem(), right, signature, image)) << signature;
  EXPECT_FALSE(is_signed("no key", right, key.sign(right), image));
}

TEST(ImageSignature, OneOfSeveralKeysSuffices) {
  const SigningKey first, second, other;
  const std::string right = statement(image), both = first.pem() + "\n" + second.pem();
  EXPECT_TRUE(is_signed(both, right, first.sign(right), image));
  EXPECT_TRUE(is_signed(both, right, second.sign(right), image));
  EXPECT_FALSE(is_signed(both, right, other.sign(right), image));
}

TEST(ImageSignature, KeysArePublicKeys) {
  EXPECT_TRUE(check_public_key(SigningKey().pem()));
  EXPECT_FALSE(check_public_key(""));
  EXPECT_FALSE(check_public_key("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"));
}

TEST(ImageSignature, ChallengesOfRegistries) {
  const Challenge hub = Challenge::parse(
      R"(Bearer realm="https://auth.docker.io/token",service="registry.docker.io",)"
      R"(scope="repository:a/b:pull")");
  EXPECT_EQ(hub.scheme, "bearer");
  EXPECT_EQ(hub.realm, "https://auth.docker.io/token");
  EXPECT_EQ(hub.service, "registry.docker.io");
  EXPECT_EQ(hub.scope, "repository:a/b:pull");
  EXPECT_EQ(Challenge::parse("Basic realm=x").realm, "x");
  EXPECT_EQ(Challenge::parse(R"(bearer  Realm = "a, b" , scope="c)").scope, "c");
  for (const char* odd :
       {"", " ", "Bearer", "Bearer ,,,", "Bearer realm", "Bearer =", "Bearer \"\""})
    EXPECT_EQ(Challenge::parse(odd).realm, "") << odd;
}

}  // namespace
}  // namespace billow::container
