// Which addresses a job with --network internet reaches, in every form an address can have.
#include "agent/network/reach_rules.h"

#include <gtest/gtest.h>

#include "net/address.h"

namespace billow::agent {
namespace {

AddressBlock block(const std::string& text) {
  const auto parsed = AddressBlock::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(AddressBlock{});
}

class Reach : public testing::Test {
 protected:
  bool permits(const std::string& host, std::uint16_t port = 80) {
    net::Address address;
    address.host = host;
    address.port = port;
    const auto raw = net::resolve(address, true);
    EXPECT_TRUE(raw) << host;
    const auto target = raw ? target_of(raw->front()) : Result<Target>(pass(raw.error()));
    EXPECT_TRUE(target) << host;
    auto rules = ReachRules::create(allowed_, name_servers_);
    EXPECT_TRUE(rules);
    return rules && target && rules->permits(*target);
  }
  std::vector<AddressBlock> allowed_, name_servers_;
};

TEST_F(Reach, NeverTheNodeItself) {
  allowed_ = private_blocks();
  for (const char* host : {"127.0.0.1", "127.8.8.8", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"})
    EXPECT_FALSE(permits(host)) << host;
}

TEST_F(Reach, NeverTheMetadataServiceNorLinkLocalAddresses) {
  allowed_ = private_blocks();
  for (const char* host :
       {"169.254.169.254", "169.254.0.1", "168.63.129.16", "100.100.100.200", "fd00:ec2::254",
        "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200", "fe80::1",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"})
    EXPECT_FALSE(permits(host)) << host;
}

TEST_F(Reach, PrivateNetworksOnlyIfAllowed) {
  for (const char* host : {"10.0.0.1", "172.16.9.9", "192.168.1.1", "100.64.1.1", "fd12::1",
                           "::ffff:10.0.0.1", "224.0.0.1", "255.255.255.255", "ff02::1"})
    EXPECT_FALSE(permits(host)) << host;
}

TEST_F(Reach, NameServersOnlyOnTheirPort) {
  name_servers_ = {block("127.0.0.53"), block("10.9.9.9")};
  EXPECT_TRUE(permits("127.0.0.53", 53));
  EXPECT_TRUE(permits("10.9.9.9", 53));
  EXPECT_FALSE(permits("127.0.0.53", 80));
  EXPECT_FALSE(permits("10.9.9.9", 443));
  EXPECT_FALSE(permits("127.0.0.1", 53));
}

TEST(NameServers, AreReadAsResolversReadThem) {
  const auto found = name_servers_in(
      "# nameserver 1.1.1.1\nsearch x\nnameserver 127.0.0.53\nnameserver\tfd12::53 \n"
      "nameserver fe80::1%eth0\nnameserver not-an-address\nnameserver 10.0.0.2 trailing\n"
      "nameserver 8.8.8.8\n");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].text(), "127.0.0.53");
  EXPECT_EQ(found[1].text(), "fd12::53");
  EXPECT_EQ(found[2].text(), "10.0.0.2");
}

TEST(AddressBlock, IsReadWholeOrNotAtAll) {
  EXPECT_EQ(block("10.0.0.0/8").text(), "10.0.0.0/8");
  EXPECT_EQ(block("10.1.2.3").text(), "10.1.2.3");
  EXPECT_EQ(block("FD12::/48").text(), "fd12::/48");
  EXPECT_TRUE(block("10.1.0.0/16").within(block("10.0.0.0/8")));
  EXPECT_FALSE(block("10.0.0.0/8").within(block("10.1.0.0/16")));
  EXPECT_FALSE(block("fd12::/48").within(block("10.0.0.0/8")));
  for (const char* wrong : {"", "/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.1/8", "10.0.0",
                            "::/129", "10.0.0.0/8/8", "1.2.3.4 ", "example.org", "fe80::1%lo"})
    EXPECT_FALSE(AddressBlock::parse(wrong)) << wrong;
  EXPECT_FALSE(AddressBlock::parse(std::string("10.0.0.1\0x", 10)));
}

TEST(AddressBlock, OnlyPrivateNetworksCanBeAllowed) {
  EXPECT_TRUE(parse_allowed({"10.1.0.0/16", "fd12::/48", "192.168.0.1"}));
  for (const char* wrong :
       {"0.0.0.0/0", "8.8.8.8", "127.0.0.1", "169.254.169.254", "fe80::/10", "::/0", "10.0.0.0/7"})
    EXPECT_FALSE(parse_allowed({wrong})) << wrong;
  EXPECT_FALSE(parse_allowed(std::vector<std::string>(65, "10.0.0.1")));
}

}  // namespace
}  // namespace billow::agent
