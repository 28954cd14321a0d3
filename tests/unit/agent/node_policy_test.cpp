// The policy of a node: which accounts jobs may run as, whatever the head says.
#include "agent/node/node_policy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace billow::agent {
namespace {

UserRecord account(std::string name, std::uint32_t uid, std::vector<std::uint32_t> groups = {}) {
  UserRecord record{std::move(name), "/", "/bin/sh", {uid, uid, {}}};
  record.identity.groups = std::move(groups);
  return record;
}

bool may(const NodePolicy& policy, const std::string& owner, const UserRecord& as) {
  return check_policy(policy, owner, as).has_value();
}

TEST(NodePolicy, WithoutAFileOnlyPeoplesAccountsRunAndRootForTheFounderAlone) {
  const NodePolicy policy;
  EXPECT_TRUE(may(policy, "ana", account("ana", 1000)));
  EXPECT_TRUE(may(policy, "root", account("root", 0)));
  EXPECT_FALSE(may(policy, "ops", account("root", 0))) << "an admin who was added later";
  EXPECT_FALSE(may(policy, "", account("root", 0))) << "a head that does not say whose job it is";
  EXPECT_FALSE(may(policy, "ops", account("toor", 0))) << "root under another name";
  EXPECT_FALSE(may(policy, "ops", account("postgres", 110)));
  EXPECT_FALSE(may(policy, "ops", account("nobody", 65534)));
  EXPECT_EQ(check_policy(policy, "ops", account("postgres", 110)).error().code, Code::forbidden);
}

TEST(NodePolicy, AFileSaysWhoRunsAndNobodyElseDoes) {
  const auto policy = parse_node_policy(
      "# people\n"
      "allow 2000-2999 nobody\n"
      "deny 2500\tbob # he left\n"
      "root none\n");
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_TRUE(may(*policy, "ana", account("ana", 2000)));
  EXPECT_TRUE(may(*policy, "ana", account("nobody", 65534)));
  EXPECT_FALSE(may(*policy, "ana", account("ana", 1000))) << "the defaults are replaced";
  EXPECT_FALSE(may(*policy, "ana", account("x", 2500)));
  EXPECT_FALSE(may(*policy, "ana", account("bob", 2001)));
  EXPECT_FALSE(may(*policy, "root", account("root", 0))) << "not even the founder";
  const auto everybody = parse_node_policy("allow 0-4294967294\nroot ops");
  ASSERT_TRUE(everybody);
  EXPECT_FALSE(may(*everybody, "ana", account("root", 0))) << "root is never among the numbers";
  EXPECT_TRUE(may(*everybody, "ops", account("root", 0)));
  EXPECT_FALSE(may(*everybody, "root", account("root", 0)));
}

TEST(NodePolicy, WhoeverDeniesRootDeniesIt) {
  EXPECT_FALSE(may(*parse_node_policy("deny root"), "root", account("root", 0)));
  EXPECT_FALSE(may(*parse_node_policy("deny root\nroot ops"), "ops", account("root", 0)));
  EXPECT_TRUE(may(*parse_node_policy("deny bob\nroot ops"), "ops", account("root", 0)));
}

TEST(NodePolicy, WhomItDeniesItDeniesUnderEachName) {
  const auto policy = parse_node_policy("allow 0-4294967294\ndeny daemon");
  ASSERT_TRUE(policy);
  const auto daemon = look_up_user("daemon");
  ASSERT_TRUE(daemon);
  EXPECT_FALSE(may(*policy, "ana", account("another-name", daemon->identity.uid)));
  EXPECT_TRUE(may(*policy, "ana", account("another", daemon->identity.uid + 1)));
}

// Confined jobs run as a number of their own, whether or not their user has an account here.
TEST(NodePolicy, JudgesUsersWithoutAnAccountByTheirNames) {
  const auto may_confined = [](const char* text, const UserRecord* instead = nullptr) {
    return check_policy_without_account(*parse_node_policy(text), "bob", instead).has_value();
  };
  EXPECT_TRUE(may_confined(""));
  EXPECT_TRUE(may_confined("deny ana 2000-2999\nroot none\nisolation strict"));
  EXPECT_FALSE(may_confined("deny bob"));
  EXPECT_FALSE(may_confined("allow @ml")) << "of no group";
  EXPECT_FALSE(may_confined("allow ana 0-4294967294")) << "of no number";
  EXPECT_TRUE(may_confined("allow 1000-59999 bob")) << "allowed by name";
  EXPECT_FALSE(may_confined("allow bob\ndeny bob"));
  const UserRecord other = account("1000", 1000);
  EXPECT_TRUE(may_confined("allow 1000", &other)) << "the other user is allowed";
  EXPECT_FALSE(may_confined("deny bob", &other)) << "whoever it runs as";
}

TEST(NodePolicy, CanAskForStrictIsolation) {
  EXPECT_FALSE(NodePolicy{}.strict_only);
  EXPECT_TRUE(parse_node_policy("isolation strict")->strict_only);
  EXPECT_FALSE(parse_node_policy("isolation strict\nisolation plain")->strict_only);
  for (const char* bad : {"isolation", "isolation thick", "isolation strict plain"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, SaysHowMuchDiskJobsGet) {
  EXPECT_FALSE(parse_node_policy("")->rules.disk_bytes) << "half of what is free";
  EXPECT_EQ(parse_node_policy("disk 3GiB")->rules.disk_bytes, 3ll << 30);
  EXPECT_EQ(parse_node_policy("disk none")->rules.disk_bytes, 0);
  EXPECT_FALSE(parse_node_policy("disk none\ndisk half")->rules.disk_bytes);
  EXPECT_FALSE(parse_node_policy("disk 20")) << "20 bytes, which nobody means";
  for (const char* bad : {"disk", "disk much", "disk 0", "disk 1GB 2GB", "disk -1GB"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, CanRefuseJobsThatAreNotKeptFromOtherGpus) {
  EXPECT_FALSE(NodePolicy{}.rules.devices_closed);
  EXPECT_TRUE(parse_node_policy("devices closed")->rules.devices_closed);
  EXPECT_FALSE(parse_node_policy("devices closed\ndevices unguarded")->rules.devices_closed);
  for (const char* bad : {"devices", "devices open", "devices closed unguarded"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, CanGiveJobsAPrivateTmp) {
  EXPECT_FALSE(NodePolicy{}.rules.private_tmp) << "where the node can";
  EXPECT_EQ(parse_node_policy("tmp private")->rules.private_tmp, true);
  EXPECT_EQ(parse_node_policy("tmp private\ntmp shared")->rules.private_tmp, false);
  for (const char* bad : {"tmp", "tmp own", "tmp private shared"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, HidesTheProcessesOfOthersUnlessItSaysOtherwise) {
  EXPECT_TRUE(NodePolicy{}.rules.private_proc);
  EXPECT_FALSE(parse_node_policy("proc shared")->rules.private_proc);
  EXPECT_TRUE(parse_node_policy("proc shared\nproc private")->rules.private_proc);
  for (const char* bad : {"proc", "proc hidden", "proc private shared"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, SaysWhetherJobsMayRunWithoutTheMetadataGuard) {
  EXPECT_FALSE(NodePolicy{}.rules.metadata_closed) << "as the agent's options say";
  EXPECT_EQ(parse_node_policy("metadata closed")->rules.metadata_closed, true);
  EXPECT_EQ(parse_node_policy("metadata unguarded")->rules.metadata_closed, false);
  for (const char* bad : {"metadata", "metadata open", "metadata closed unguarded"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

TEST(NodePolicy, SaysWhetherReplicasAnswerGatewaysAlone) {
  EXPECT_FALSE(NodePolicy{}.rules.replicas_closed) << "where the node can";
  EXPECT_EQ(parse_node_policy("replicas closed")->rules.replicas_closed, true);
  EXPECT_EQ(parse_node_policy("replicas open")->rules.replicas_closed, false);
  for (const char* bad : {"replicas", "replicas none", "replicas open closed"})
    EXPECT_FALSE(parse_node_policy(bad)) << bad;
}

bool may_use(const std::string& policy, const std::string& image) {
  const auto parsed = parse_node_policy(policy);
  EXPECT_TRUE(parsed) << policy;
  Surroundings asked;
  asked.image = image;
  return parsed && check_images(parsed->images, asked).has_value();
}

TEST(NodePolicy, NamesTheImages) {
  EXPECT_TRUE(may_use("", "ubuntu"));
  EXPECT_FALSE(may_use("images none", "ubuntu"));
  EXPECT_TRUE(may_use("images docker.io/library/*", "ubuntu:24.04"));
  EXPECT_FALSE(may_use("images docker.io/library/*", "acme/ubuntu"));
  EXPECT_TRUE(may_use("images ghcr.io/acme/** nvcr.io/nvidia/pytorch", "ghcr.io/acme/a/b:1"));
  EXPECT_TRUE(
      may_use("images ghcr.io/acme/**\nimages nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/pytorch"));
  EXPECT_FALSE(may_use("images ghcr.io/acme/**", "ghcr.io/acme.evil.com/a"));
  EXPECT_FALSE(may_use("images ghcr.io/acme/**", "evil.com/ghcr.io/acme/a"));
  EXPECT_FALSE(may_use("images ghcr.io/acme/a", "ghcr.io/acme/a/b"));
}

TEST(NodePolicy, ReadsImageRulesWordByWord) {
  const auto all = parse_node_policy("images ghcr.io/acme/** signed /a.pub pinned signed /b.pub");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->images.names, std::vector<std::string>{"ghcr.io/acme/**"});
  EXPECT_EQ(all->images.signer_files, (std::vector<std::string>{"/a.pub", "/b.pub"}));
  EXPECT_TRUE(all->images.pinned);
  const auto lines = parse_node_policy("images signed /a.pub\nimages pinned signed /b.pub");
  ASSERT_TRUE(lines);
  EXPECT_EQ(lines->images.signer_files, (std::vector<std::string>{"/a.pub", "/b.pub"}))
      << "a second line must not replace the first";
  for (const char* good : {"**", "*/acme/*", "localhost/mine", "[a-z]*.io/x", "host:5000/a/b"})
    EXPECT_TRUE(parse_node_policy(std::string("images ") + good)) << good;
  for (const char* bad :
       {"ghcr.io/acme/** signed", "pinned signed", "signed key.pub", "/etc/billow/cosign.pub",
        "Signed", "unsigned", "ubuntu", "*", "acme/tools", "ghcr.io/acme/x:1", "ghcr.io/Acme/x",
        "ghcr.io//x", "ghcr.io/x/", "https://ghcr.io/x", "ghcr.io/x@sha256:0"})
    EXPECT_FALSE(parse_node_policy(std::string("images ") + bad)) << bad;
}

TEST(NodePolicy, WantsDigests) {
  const std::string digest = "@sha256:" + std::string(64, 'a');
  EXPECT_FALSE(may_use("images pinned", "ubuntu:24.04"));
  EXPECT_TRUE(may_use("images pinned", "ubuntu" + digest));
  EXPECT_FALSE(may_use("images pinned docker.io/library/debian", "ubuntu" + digest));
}

TEST(NodePolicy, LimitsOfImagesRefuseEnvironments) {
  Surroundings asked;
  asked.environment_digest = std::string(64, 'a');
  EXPECT_TRUE(check_images({.pinned = true}, asked)) << "it is named by its digest";
  EXPECT_FALSE(check_images({.none = true}, asked));
  EXPECT_FALSE(check_images({.names = {"ghcr.io/**"}}, asked));
  EXPECT_FALSE(check_images({.signer_files = {"/k"}, .signers = "a key"}, asked));
}

TEST(NodePolicy, AKeyThatCannotBeUsedIsAnError) {
  EXPECT_FALSE(parse_node_policy("images signed"));
  EXPECT_FALSE(parse_node_policy("images signed relative.pub"));
  const std::string file = testing::TempDir() + "/images.policy." + std::to_string(::getpid());
  const std::string key = file + ".pub";
  ASSERT_TRUE(write_file_atomic(file, "images signed " + key + "\n", 0644));
  EXPECT_FALSE(load_node_policy(file)) << "there is no key";
  ASSERT_TRUE(write_file_atomic(key, "nothing\n", 0644));
  EXPECT_FALSE(load_node_policy(file)) << "not a key";
  ::unlink(file.c_str());
  ::unlink(key.c_str());
}

TEST(NodePolicy, GroupsAreThoseOfTheMachine) {
  const auto policy = parse_node_policy("allow @daemon");  // group 1 everywhere
  ASSERT_TRUE(policy);
  EXPECT_TRUE(may(*policy, "ana", account("ana", 1000, {1})));
  EXPECT_FALSE(may(*policy, "ana", account("ana", 1000, {2})));
  EXPECT_FALSE(may(*parse_node_policy("allow @no-such-group"), "ana", account("ana", 1000)));
}

TEST(NodePolicy, WhatItCannotReadIsAnError) {
  for (const char* text : {"permit ana", "allow", "allow 5-1", "deny 1x", "root",
                           "allow 99999999999", "allow 1-", "allow 1000-59999\nnonsense"})
    EXPECT_FALSE(parse_node_policy(text)) << text;
  EXPECT_FALSE(parse_node_policy(std::string_view("\0", 1)));
  EXPECT_TRUE(parse_node_policy(" \t\r\n\n# allow everybody\n"));
}

TEST(NodePolicy, AFileThatOthersCanWriteIsRefused) {
  const std::string path = testing::TempDir() + "/node.policy." + std::to_string(::getpid());
  EXPECT_FALSE(load_node_policy(path)) << "named, and not there";
  ASSERT_TRUE(write_file_atomic(path, "allow nobody\n", 0644));
  ASSERT_TRUE(load_node_policy(path));
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(load_node_policy(path));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(load_node_policy(path)) << "it belongs to somebody else";
  }
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace billow::agent
