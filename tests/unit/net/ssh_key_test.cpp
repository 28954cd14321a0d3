// SSH keys have the form that OpenSSH's files have.
#include "net/ssh_key.h"

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/text.h"

namespace billow {
namespace {

TEST(SshKey, AMadeKeyHasTheFormatOfOpenSsh) {
  const SshKey key = make_ssh_key("job 7");
  EXPECT_TRUE(key.public_line.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"));
  EXPECT_TRUE(key.public_line.ends_with(" job 7"));
  EXPECT_TRUE(is_ssh_public_key(key.public_line));
  auto lines = split(key.private_file, '\n');
  ASSERT_GT(lines.size(), 4u);
  EXPECT_EQ(lines.front(), "-----BEGIN OPENSSH PRIVATE KEY-----");
  EXPECT_EQ(lines[lines.size() - 2], "-----END OPENSSH PRIVATE KEY-----");
  std::string body, decoded;
  for (std::size_t i = 1; i + 2 < lines.size(); ++i)
    body += lines[i];
  ASSERT_TRUE(base64_decode(body, decoded));
  EXPECT_TRUE(decoded.starts_with(std::string("openssh-key-v1\0", 15)));
  EXPECT_NE(decoded.find("job 7"), std::string::npos);
  EXPECT_NE(make_ssh_key("x").public_line, make_ssh_key("x").public_line);
}

TEST(SshKey, OptionsAndOtherTextsAreNoKeys) {
  const std::string key = make_ssh_key("").public_line;
  for (const std::string& bad : {std::string(), std::string("ssh-ed25519"), "command=\"id\" " + key,
                                 "@cert-authority " + key, key + "\nssh-rsa AAAA",
                                 std::string("ssh-rsa not*base64"), std::string("rsa AAAA")})
    EXPECT_FALSE(is_ssh_public_key(bad)) << bad;
}

TEST(SshKey, HasTheFormsOfOpenSsh) {
  const SshKey key = make_ssh_key("billow");
  EXPECT_TRUE(key.public_line.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"));
  EXPECT_TRUE(key.public_line.ends_with(" billow"));
  EXPECT_TRUE(
      key.private_file.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA"));
  EXPECT_NE(key.public_line, make_ssh_key("billow").public_line);
}

}  // namespace
}  // namespace billow
