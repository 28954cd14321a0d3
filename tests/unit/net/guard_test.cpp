// Which addresses lead inwards.
#include "net/guard.h"

#include <gtest/gtest.h>

namespace billow::net {
namespace {

bool inwards(const char* host) {
  const auto found = resolve({.host = host, .port = 80, .unix_path = {}}, true);
  EXPECT_TRUE(found && !found->empty()) << host;
  return found && !found->empty() && leads_inwards(found->front());
}

TEST(Guard, NonPublicAddressesLeadInwards) {
  for (const char* host : {"127.0.0.1",
                           "127.9.9.9",
                           "0.0.0.0",
                           "10.1.2.3",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.1.1",
                           "169.254.169.254",
                           "100.64.0.1",
                           "100.100.100.200",
                           "168.63.129.16",
                           "192.0.0.192",
                           "198.18.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::127.0.0.1",
                           "fe80::1",
                           "fec0::1",
                           "fc00::1",
                           "fd12:3456::1",
                           "ff02::1",
                           "64:ff9b::7f00:1",
                           "64:ff9b::a9fe:a9fe",
                           "2002:7f00:1::",
                           "fd00:ec2::254"})
    EXPECT_TRUE(inwards(host)) << host;
  for (const char* host :
       {"1.1.1.1", "8.8.8.8", "172.32.0.1", "192.169.0.1", "100.128.0.1", "198.20.0.1",
        "223.255.255.255", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"})
    EXPECT_FALSE(inwards(host)) << host;
}

}  // namespace
}  // namespace billow::net
