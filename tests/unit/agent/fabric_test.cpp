// Streams between nodes, over loopback: who is let in, and that the port closes; and what links
// should give.
#include "agent/reach/stream_test.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/reach/fabric.h"
#include "base/file.h"
#include "core/wire/agent_v1.h"
#include "core/wire/fabric_v1.h"
#include "gpu/link_facts.h"

namespace billow::agent {
namespace {

const std::string secret = "0123456789abcdef0123456789abcdef";

TEST(StreamTest, MeasuresAWayAndItsLatency) {
  auto listener = StreamListener::open("127.0.0.1", secret);
  ASSERT_TRUE(listener) << listener.error().message;
  const auto figures =
      run_stream_test({"127.0.0.1", (*listener)->port(), secret, milliseconds(100)});
  ASSERT_TRUE(figures) << figures.error().message;
  EXPECT_GT(figures->mbit_s, 0);
  EXPECT_GE(figures->latency_us, 0);
  EXPECT_EQ(figures->interface, "lo");
}

TEST(StreamTest, LetsNobodyInWithoutTheSecret) {
  auto listener = StreamListener::open("127.0.0.1", secret);
  ASSERT_TRUE(listener);
  std::string wrong = secret;
  wrong.back() = 'x';
  const auto figures =
      run_stream_test({"127.0.0.1", (*listener)->port(), wrong, milliseconds(100)});
  EXPECT_FALSE(figures);
}

TEST(StreamTest, APortIsClosedWithItsListener) {
  auto listener = StreamListener::open("127.0.0.1", secret);
  ASSERT_TRUE(listener);
  const std::uint16_t port = (*listener)->port();
  listener->reset();
  const auto figures = run_stream_test({"127.0.0.1", port, secret, milliseconds(100)});
  ASSERT_FALSE(figures);
  EXPECT_NE(figures.error().message.find("cannot be reached"), std::string::npos)
      << figures.error().message;
  EXPECT_FALSE(StreamListener::open("192.0.2.1", secret)) << "not an address of this machine";
}

TEST(StreamTest, ReadsTheFastestInfiniBandPort) {
  char dir[] = "/tmp/billow-sys-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  const std::string root = dir;
  EXPECT_EQ(infiniband_mbit_s(root), 0);
  for (const auto& [device, rate] : {std::pair("mlx5_0", "400 Gb/sec (4X NDR)\n"),
                                     std::pair("mlx5_1", "100 Gb/sec (4X EDR)\n")}) {
    ASSERT_TRUE(make_directories(root + "/class/infiniband/" + device + "/ports/1", 0755));
    ASSERT_TRUE(
        write_file_atomic(root + "/class/infiniband/" + device + "/ports/1/rate", rate, 0644));
  }
  EXPECT_EQ(infiniband_mbit_s(root), 400'000);
  (void)remove_tree(root);
}

GpuInfo card(std::uint32_t index, const char* capability, std::uint32_t links) {
  GpuInfo gpu;
  gpu.index = index;
  gpu.uuid = "GPU-" + std::to_string(index);
  gpu.vendor = Vendor::nvidia;
  gpu.compute_capability = capability;
  gpu.fabric_links = links;
  gpu.pci_bus_id = "00000000:1B:00.0";
  if (links > 0)
    gpu.peers = {{1 - index, LinkLevel::fabric, links}};
  return gpu;
}

TEST(LinkFacts, AreThoseOfTheGenerations) {
  EXPECT_EQ(expected_mb_s(card(0, "9.0", 18), card(1, "9.0", 18), "/nowhere"),
            450'000);  // H100: 900 GB/s both ways together
  EXPECT_EQ(expected_mb_s(card(0, "8.0", 12), card(1, "8.0", 12), "/nowhere"), 300'000);
  EXPECT_EQ(expected_mb_s(card(0, "10.0", 18), card(1, "10.0", 18), "/nowhere"), 900'000);
  EXPECT_EQ(expected_mb_s(card(0, "8.9", 0), card(1, "8.9", 0), "/nowhere"), 16 * 1969);
  EXPECT_EQ(link_name(card(0, "9.0", 18), "/nowhere"), "nvlink4");
  EXPECT_EQ(link_name(card(0, "8.9", 0), "/nowhere"), "pcie4");
}

TEST(LinkFacts, OfTheSlotComeFromTheKernel) {
  char dir[] = "/tmp/billow-sys-XXXXXX";
  ASSERT_TRUE(::mkdtemp(dir));
  const std::string slot = std::string(dir) + "/bus/pci/devices/0000:1b:00.0";
  ASSERT_TRUE(make_directories(slot, 0755));
  ASSERT_TRUE(write_file_atomic(slot + "/max_link_speed", "8.0 GT/s PCIe\n", 0644));
  ASSERT_TRUE(write_file_atomic(slot + "/max_link_width", "8\n", 0644));
  EXPECT_EQ(expected_host_mb_s(card(0, "8.9", 0), dir), 8 * 985);
  EXPECT_EQ(link_name(card(0, "8.9", 0), dir), "pcie3");
  (void)remove_tree(dir);
}

TEST(LinkLabels, SayWhatJoinsTheCardsThatAreOffered) {
  const auto both = link_labels({card(0, "9.0", 18), card(1, "9.0", 18)});
  EXPECT_EQ(both.at("gpu-link"), "nvlink4");
  EXPECT_EQ(both.at("nvlink-gpus"), "2");
  // An engine gave us one of them: there is nobody to reach.
  EXPECT_EQ(link_labels({card(0, "9.0", 18)}).at("nvlink-gpus"), "0");
  EXPECT_FALSE(link_labels({card(0, "8.9", 0)}).contains("nvlink-gpus"));
  EXPECT_TRUE(link_labels({}).empty());
}

TEST(FabricWire, IsToldApartFromEverythingElseAndComesBackWhole) {
  namespace v1 = wire::fabric_v1;
  v1::Ask ask{.id = 7,
              .step = v1::Step::dial,
              .secret = secret,
              .address = "10.0.0.2",
              .port = 4711,
              .lasts = seconds(2),
              .labels = {{"a", "b"}}};
  const std::string frame = v1::encode(ask);
  EXPECT_TRUE(v1::is_fabric(frame));
  EXPECT_FALSE(
      v1::is_fabric(wire::agent_v1::encode(wire::agent_v1::ToAgent(wire::agent_v1::Ack{3}))));
  const auto back = v1::decode_ask(frame);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->step, v1::Step::dial);
  EXPECT_EQ(back->port, 4711);
  EXPECT_EQ(back->labels.at("a"), "b");
  EXPECT_FALSE(v1::decode_answer(frame));
  EXPECT_TRUE(v1::decode_ask(v1::encode(v1::Ask{})));
  EXPECT_FALSE(v1::decode_ask("\x05\0\0\0{\"type\":\"fabric_ask\""));
}

}  // namespace
}  // namespace billow::agent
