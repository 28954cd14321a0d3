// Which addresses lead inwards.
#include "net/guard.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>

namespace billow::net {
namespace {

RawAddress raw(const std::string& host) {
  const auto found = resolve({.host = host, .port = 80, .unix_path = {}}, true);
  EXPECT_TRUE(found && !found->empty()) << host;
  return found && !found->empty() ? found->front() : RawAddress{};
}

bool inwards(const char* host) {
  return leads_inwards(raw(host));
}

// The addresses that clouds document for the metadata, credentials, names and time of their
// machines, as their SDKs and cloud-init use them.
TEST(Guard, MetadataServicesOfAllClouds) {
  for (const char* host : {"169.254.169.254",     // most clouds
                           "169.254.170.2",       // AWS, containers
                           "169.254.170.23",      // AWS, pods
                           "169.254.169.253",     // AWS, names
                           "169.254.169.123",     // AWS, time
                           "fd00:ec2::254",       // AWS
                           "fd00:ec2::23",        // AWS, pods
                           "fd20:ce::254",        // Google
                           "168.63.129.16",       // Azure
                           "192.0.0.192",         // Oracle (old)
                           "fd00:c1::a9fe:a9fe",  // Oracle
                           "100.100.100.200",     // Alibaba
                           "fd00:100::100:200",   // Alibaba
                           "169.254.42.42",       // Scaleway
                           "fd00:42::42",         // Scaleway
                           "fd00:a9fe:a9fe::1",   // Akamai (Linode)
                           "169.254.0.23",        // Tencent
                           "100.96.0.96",         // Volcengine
                           "fe80::a9fe:a9fe"}) {  // OpenStack
    EXPECT_TRUE(leads_to_the_machines_cloud(raw(host))) << host;
    EXPECT_TRUE(leads_inwards(raw(host))) << host;
  }
  for (const char* host : {"fd00:1::1", "fd12::1", "10.0.0.1", "100.96.0.97", "8.8.8.8"})
    EXPECT_FALSE(leads_to_the_machines_cloud(raw(host))) << host;
}

TEST(Guard, AddressesOfThisMachineInEveryForm) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(::getifaddrs(&list), 0);
  std::vector<std::string> v4, all;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    char text[INET6_ADDRSTRLEN];
    if (!one->ifa_addr)
      continue;
    const int family = one->ifa_addr->sa_family;
    const void* from =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    if ((family != AF_INET && family != AF_INET6) || !::inet_ntop(family, from, text, sizeof text))
      continue;
    all.emplace_back(text);
    if (family == AF_INET)
      v4.emplace_back(text);
  }
  ::freeifaddrs(list);
  ASSERT_FALSE(v4.empty()) << "not even a loopback";
  for (const std::string& host : all)
    EXPECT_TRUE(leads_to_this_machine(raw(host))) << host;
  for (const std::string& host : v4) {
    EXPECT_TRUE(leads_to_this_machine(raw("::ffff:" + host))) << host;
    EXPECT_TRUE(leads_to_this_machine(raw("64:ff9b::" + host))) << host;
    EXPECT_TRUE(leads_to_this_machine(raw("64:ff9b:1::" + host))) << host;
  }
  for (const char* host : {"192.0.2.77", "2001:db8::77", "::ffff:192.0.2.77", "2002:c000:24d::"})
    EXPECT_FALSE(leads_to_this_machine(raw(host))) << host;
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
                           "fed0::1",
                           "feff:ffff::1",
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
