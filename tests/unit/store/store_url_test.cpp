// How a head is told its database, and that a password among the arguments does not stay there.
#include "store/store_url.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace billow {
namespace {

std::string covered(std::string words) {
  for (char& c : words)
    if (c == ' ')
      c = '\0';
  (void)cover_passwords(words.data(), words.data() + words.size());
  for (char& c : words)
    if (c == '\0')
      c = ' ';
  return words;
}

TEST(StoreUrl, PasswordsAmongArgumentsAreCoveredAndNothingElse) {
  EXPECT_EQ(covered("billow up --store postgres://u:secret@db/b --listen x:1"),
            "billow up --store postgres://u:******@db/b --listen x:1");
  EXPECT_EQ(covered("billow up --store=postgresql://u:s@db:5432/b?sslmode=require"),
            "billow up --store=postgresql://u:*@db:5432/b?sslmode=require");
  EXPECT_EQ(covered("billow up --store postgres://db/b?user=u&password=secret&x=1"),
            "billow up --store postgres://db/b?user=u&password=******&x=1");
  EXPECT_EQ(covered("billow store migrate postgres://u:a%40b@db/b"),
            "billow store migrate postgres://u:*****@db/b");
  for (const char* harmless :
       {"billow up --store postgres://u@db:5432/b", "billow up", "billow run -- echo http://u:p@x/",
        "x postgres://db:5432/b", "", "billow up --store postgres://"})
    EXPECT_EQ(covered(harmless), harmless);
}

TEST(StoreUrl, SaysWhetherThereIsAPassword) {
  EXPECT_TRUE(has_password("postgres://u:p@db/b"));
  EXPECT_TRUE(has_password("postgres://db/b?password=x"));
  EXPECT_FALSE(has_password("postgres://u@db:5432/b"));
  EXPECT_FALSE(has_password("postgres://u:@db/b"));
  EXPECT_FALSE(has_password("http://u:p@db/b"));
}

struct StoreUrlSource : ::testing::Test {
  void SetUp() override {
    ::unsetenv("BILLOW_STORE");
    ::unsetenv("PGPASSWORD");
    char name[] = "/tmp/billow-store-url-XXXXXX";
    path = std::string(::mkdtemp(name)) + "/url";
  }
  void TearDown() override {
    ::unsetenv("BILLOW_STORE");
    ::unsetenv("PGPASSWORD");
    ::unlink(path.c_str());
    ::rmdir(path.substr(0, path.rfind('/')).c_str());
  }
  std::string path;
};

TEST_F(StoreUrlSource, AFileOthersCanReadIsRefused) {
  ASSERT_TRUE(write_file_atomic(path, "postgres://u:p@db/b\n", 0600));
  EXPECT_EQ(store_url({.url = "", .file = path}).value_or(""), "postgres://u:p@db/b");
  ::chmod(path.c_str(), 0640);
  const auto open = store_url({.url = "", .file = path});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().hint, "chmod 600 " + path);
  EXPECT_FALSE(store_url({.url = "postgres://db/b", .file = path}));
  EXPECT_FALSE(store_url({.url = "", .file = path + "-none"}));
  ASSERT_TRUE(write_file_atomic(path, "\n", 0600));
  EXPECT_FALSE(store_url({.url = "", .file = path}));
}

TEST_F(StoreUrlSource, VariablesCountOnceAndAreNotHandedOn) {
  ::setenv("BILLOW_STORE", "postgres://u@db/b", 1);
  ::setenv("PGPASSWORD", "a&b c%", 1);
  EXPECT_EQ(store_url({}).value_or(""), "postgres://u@db/b?password=a%26b%20c%25");
  EXPECT_EQ(::getenv("BILLOW_STORE"), nullptr);
  EXPECT_EQ(::getenv("PGPASSWORD"), nullptr);
  EXPECT_EQ(store_url({}).value_or("none"), "");
  ::setenv("BILLOW_STORE", "postgres://u@db/b", 1);
  ::setenv("PGPASSWORD", "other", 1);
  EXPECT_EQ(store_url({.url = "postgres://u:own@db/c"}).value_or(""), "postgres://u:own@db/c")
      << "the URL's own password counts";
  ::setenv("BILLOW_STORE", "postgres://u@db/b", 1);
  EXPECT_EQ(store_url({.url = "", .file = "", .variables = false}).value_or("none"), "");
}

}  // namespace
}  // namespace billow
