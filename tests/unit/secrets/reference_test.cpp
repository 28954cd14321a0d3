// References to secrets in backends, and which of them a project may use.
#include <gtest/gtest.h>

#include "secrets/backend.h"

namespace billow::secrets {
namespace {

TEST(Reference, NamesABackendAPathAndAKey) {
  const auto full = parse_reference("team:apps/train-1/x.y#token");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->backend, "team");
  EXPECT_EQ(full->path, "apps/train-1/x.y");
  EXPECT_EQ(full->key, "token");
  const auto bare = parse_reference("gcp:hf-token");
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->key, "");
  for (const char* bad :
       {"", "team", "team:", ":path", "team:/a", "team:a/", "team:a//b", "team:../a", "team:a/../b",
        "team:a/./b", "team:a?x=1", "team:a b", "team:a#", "team:a%2fb", "team:a\nb", "te am:a"})
    EXPECT_FALSE(parse_reference(bad)) << bad;
}

TEST(Reference, APrefixCountsInWholeParts) {
  EXPECT_TRUE(is_below("apps/vision/key", "apps/vision"));
  EXPECT_TRUE(is_below("apps/vision", "apps/vision"));
  EXPECT_TRUE(is_below("apps/vision/key", "apps/vision/"));
  EXPECT_FALSE(is_below("apps/visionary", "apps/vision"));
  EXPECT_FALSE(is_below("apps", "apps/vision"));
}

TEST(Settings, NeedWhatTheirKindNeedsAndTravelEncrypted) {
  BackendSettings vault{.name = "team", .address = "https://vault:8200", .credential = "t"};
  EXPECT_TRUE(check_settings(vault));
  vault.address = "http://vault.example.com:8200";
  EXPECT_FALSE(check_settings(vault)) << "a token in plain";
  vault.address = "http://127.0.0.1:8200";
  EXPECT_TRUE(check_settings(vault));
  vault.credential.clear();
  EXPECT_FALSE(check_settings(vault));
  EXPECT_FALSE(check_settings({.name = "a", .kind = BackendKind::aws}));
  EXPECT_TRUE(check_settings({.name = "a", .kind = BackendKind::aws, .region = "eu-west-1"}));
  EXPECT_FALSE(check_settings({.name = "g", .kind = BackendKind::google}));
}

TEST(Members, OfAValueThatIsJson) {
  const Reference whole{"aws", "p", ""}, key{"aws", "p", "k"};
  EXPECT_EQ(member_of("{\"k\":\"v\"}", key).value_or(""), "v");
  EXPECT_EQ(member_of("plain", whole).value_or(""), "plain");
  for (const char* bad : {"plain", "{\"k\":1}", "{\"j\":\"v\"}", "[]"}) {
    const auto none = member_of(bad, key);
    ASSERT_FALSE(none) << bad;
    EXPECT_EQ(none.error().message.find("plain"), std::string::npos) << "the value is not shown";
  }
}

}  // namespace
}  // namespace billow::secrets
