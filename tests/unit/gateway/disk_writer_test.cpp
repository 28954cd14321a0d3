#include "gateway/record/disk_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "base/file.h"

namespace billow::gateway {
namespace {

struct Folder {
  std::string path = "/tmp/billow-disk-writer-XXXXXX";
  Folder() { EXPECT_NE(::mkdtemp(path.data()), nullptr); }
  ~Folder() { (void)remove_tree(path); }
};

// Somebody who asks for writes while the disk is stuck.
struct Stuck {
  std::promise<void> free;
  explicit Stuck(DiskWriter& writer) {
    std::promise<void> begun;
    writer.run([&begun, until = free.get_future().share()] {
      begun.set_value();
      until.wait();
    });
    begun.get_future().wait();
  }
};

TEST(DiskWriter, NobodyWaitsForASlowDisk) {
  const Folder dir;
  DiskWriter writer;
  Stuck stuck(writer);
  std::atomic<int> done = 0;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < 2 * DiskWriter::jobs_max; ++i)
    taken += writer.run([&] { ++done; });
  EXPECT_EQ(taken, DiskWriter::jobs_max) << "the others are refused, and nobody waits";
  writer.replace(dir.path + "/figures.json", "1");
  EXPECT_EQ(done, 0);
  EXPECT_FALSE(file_exists(dir.path + "/figures.json"));
  stuck.free.set_value();
  writer.wait();
  EXPECT_EQ(static_cast<std::size_t>(done), taken);
  EXPECT_EQ(read_file(dir.path + "/figures.json").value_or(""), "1");
}

TEST(DiskWriter, OnlyTheNewestContentOfAFileIsWritten) {
  const Folder dir;
  DiskWriter writer;
  Stuck stuck(writer);
  // More than the queue holds: if each took a place, this would wait for ever.
  for (std::size_t i = 0; i <= 2 * DiskWriter::jobs_max; ++i)
    writer.replace(dir.path + "/figures.json", std::to_string(i));
  stuck.free.set_value();
  writer.wait();
  EXPECT_EQ(read_file(dir.path + "/figures.json").value_or(""),
            std::to_string(2 * DiskWriter::jobs_max));
}

TEST(DiskWriter, WritesInOrderAndEverythingBeforeItEnds) {
  std::vector<int> order;
  {
    DiskWriter writer;
    for (int i = 0; i < 200; ++i)
      EXPECT_TRUE(writer.run([&order, i] { order.push_back(i); }));
  }
  ASSERT_EQ(order.size(), 200u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

}  // namespace
}  // namespace billow::gateway
