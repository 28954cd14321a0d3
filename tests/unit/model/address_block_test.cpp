#include "core/model/address_block.h"

#include <gtest/gtest.h>

namespace billow {
namespace {

AddressBlock block(std::string_view text) {
  const auto parsed = AddressBlock::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : AddressBlock{};
}

TEST(AddressBlock, IsReadAndWrittenTheSame) {
  for (const char* text : {"10.1.2.3", "10.1.0.0/16", "0.0.0.0/0", "fd12::/48", "::1", "fe80::/10"})
    EXPECT_EQ(block(text).text(), text);
  EXPECT_EQ(block("10.1.2.3/32").text(), "10.1.2.3");
}

TEST(AddressBlock, RefusesWhatIsNoBlock) {
  for (const std::string_view text :
       {"", "10.1", "10.1.0.0/", "10.1.0.0/33", "10.1.0.0/-1", "10.1.0.0/8x", "fd12::/129",
        "10.0.0.0.0/8", "box1", "10.1.0.0/16/16", " 10.1.0.0/16"})
    EXPECT_FALSE(AddressBlock::parse(text)) << text;
  EXPECT_FALSE(AddressBlock::parse(std::string_view("10.0.0.1\0.9", 11)));
}

TEST(AddressBlock, RefusesBitsBeyondItsLength) {
  const auto parsed = AddressBlock::parse("10.1.128.0/16");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message, "\"10.1.128.0/16\" has bits beyond its /16");
  EXPECT_TRUE(AddressBlock::parse("10.1.128.0/17"));
}

TEST(AddressBlock, ContainsByBitsNotByBytes) {
  const AddressBlock b = block("172.16.0.0/12");
  const unsigned char inside[] = {172, 31, 255, 255}, outside[] = {172, 32, 0, 0};
  EXPECT_TRUE(b.contains(false, inside));
  EXPECT_FALSE(b.contains(false, outside));
  const unsigned char v6[16] = {172, 16};
  EXPECT_FALSE(b.contains(true, v6));  // the same bytes of the other family
}

TEST(AddressBlock, IsWithinOnlyALargerBlock) {
  EXPECT_TRUE(block("10.1.0.0/16").within(block("10.0.0.0/8")));
  EXPECT_TRUE(block("10.0.0.0/8").within(block("10.0.0.0/8")));
  EXPECT_FALSE(block("10.0.0.0/8").within(block("10.1.0.0/16")));
  EXPECT_FALSE(block("0.0.0.0/0").within(block("10.0.0.0/8")));
}

TEST(AllowedBlocks, OnlyPrivateNetworksCanBeAllowed) {
  EXPECT_TRUE(parse_allowed({"10.1.0.0/16", "192.168.7.4", "172.16.0.0/12", "fd12::/48"}));
  // Everything, a block larger than a private one, the public Internet, this node, link-local
  // addresses with the metadata service, and an IPv4 address in an IPv6 one.
  for (const char* text : {"0.0.0.0/0", "::/0", "192.168.0.0/15", "172.0.0.0/8", "8.8.8.8",
                           "127.0.0.1", "169.254.169.254", "fe80::/10", "::ffff:10.0.0.1"})
    EXPECT_FALSE(parse_allowed({text})) << text;
}

TEST(AllowedBlocks, TheirNumberIsLimited) {
  EXPECT_TRUE(parse_allowed({"10.0.0.1", "10.0.0.2"}, 2));
  EXPECT_FALSE(parse_allowed({"10.0.0.1", "10.0.0.2", "10.0.0.3"}, 2));
}

}  // namespace
}  // namespace billow
