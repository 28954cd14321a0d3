// What is sealed can be read only with its key.
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/sealed.h"

namespace billow {
namespace {

TEST(Sealed, ComesBackWithItsKeyOnly) {
  const std::string key = random_bytes(seal_key_bytes), other = random_bytes(seal_key_bytes);
  for (const std::string& value : {std::string("hf_token"), std::string(),
                                   std::string("with\0zero", 9), random_bytes(65536)}) {
    const std::string sealed = seal(key, value, "secret 1 A");
    const auto back = unseal(key, sealed, "secret 1 A");
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, value);
    if (value.size() > 4) {
      EXPECT_EQ(sealed.find(value), std::string::npos);
    }
    const auto wrong = unseal(other, sealed, "secret 1 A");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code, Code::forbidden);
    EXPECT_EQ(seal_key_of(sealed), seal_key_name(key));
  }
  EXPECT_NE(seal(key, "same", "x"), seal(key, "same", "x"));
}

TEST(Sealed, CannotBePutInAnothersPlaceOrAltered) {
  const std::string key = random_bytes(seal_key_bytes), sealed = seal(key, "value", "secret 1 A");
  EXPECT_FALSE(unseal(key, sealed, "secret 2 A"));
  for (std::size_t at = 0; at < sealed.size(); ++at) {
    std::string altered = sealed;
    altered[at] = altered[at] == 'A' ? 'B' : 'A';
    const auto back = unseal(key, altered, "secret 1 A");
    EXPECT_TRUE(!back || *back == "value")
        << at;  // bits of the last digit that base64 does not use
    if (at + 4 < sealed.size()) {
      EXPECT_FALSE(back) << at;
    }
  }
  for (const char* nonsense :
       {"", "1.", "1.abcdef01.", "2.abcdef01.AAAA", "1.abcdef01.AAAA", "AAAA"})
    EXPECT_FALSE(unseal(key, nonsense, "")) << nonsense;
}

TEST(Sealed, ValuesOfVersion01AreRead) {
  std::string key;
  for (int i = 0; i < 32; ++i)
    key += static_cast<char>(i);
  const std::string old = "1.f331da2e.AAECAwQFBgcICQoLL2SJb6qOp3WLNYZm2yKCvy9xxKIedTm2";
  EXPECT_EQ(unseal(key, old, "secret 1 A").value_or(""), "hf_token");
  const std::string other = random_bytes(seal_key_bytes);
  const auto anew = rewrap(key, other, old, "secret 1 A");
  ASSERT_TRUE(anew);
  EXPECT_EQ(unseal(other, *anew, "secret 1 A").value_or(""), "hf_token");
}

TEST(Sealed, ANewKeyWrapsTheDataKeyAndLeavesTheValueAlone) {
  const std::string first = random_bytes(seal_key_bytes), second = random_bytes(seal_key_bytes);
  const std::string sealed = seal(first, "value", "secret 1 A");
  const auto anew = rewrap(first, second, sealed, "secret 1 A");
  ASSERT_TRUE(anew);
  EXPECT_EQ(seal_key_of(*anew), seal_key_name(second));
  EXPECT_EQ(anew->substr(anew->rfind('.')), sealed.substr(sealed.rfind('.')));
  EXPECT_EQ(unseal(second, *anew, "secret 1 A").value_or(""), "value");
  EXPECT_FALSE(unseal(first, *anew, "secret 1 A"));
  EXPECT_FALSE(rewrap(second, first, sealed, "secret 1 A")) << "not the key that sealed it";
  EXPECT_FALSE(rewrap(first, second, sealed, "secret 2 A")) << "not its owner";
  // The data key of one value does not open another.
  const std::string other = seal(second, "other", "secret 1 A");
  const std::string mixed = anew->substr(0, anew->rfind('.')) + other.substr(other.rfind('.'));
  EXPECT_FALSE(unseal(second, mixed, "secret 1 A"));
}

}  // namespace
}  // namespace billow
