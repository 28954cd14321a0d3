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

}  // namespace
}  // namespace billow
