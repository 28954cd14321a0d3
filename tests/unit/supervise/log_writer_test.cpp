// How much of a job's output its log keeps.
#include "supervise/log_writer.h"

#include <stdlib.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace billow::supervise {
namespace {

constexpr std::uint32_t segment_bytes = 256u << 10, segments = 4;

// In a directory of its own, where the writer makes its files.
class Log : public testing::Test {
 protected:
  Log() : before_(std::filesystem::current_path()) {
    char name[] = "/tmp/billow-log-XXXXXX";
    place_ = ::mkdtemp(name);
    std::filesystem::current_path(place_);
    writer_.start(segment_bytes, segments);
  }
  ~Log() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(place_);
  }

  void write(std::uint32_t bytes) {
    const std::string data(bytes, 'x');
    for (std::uint32_t at = 0; at < bytes;) {
      const std::uint32_t part = writer_.fitting(bytes - at);
      ASSERT_GT(part, 0u);
      ASSERT_TRUE(writer_.append(Stream::out, 0, data.data() + at, part, 0));
      at += part;
    }
  }
  std::uint64_t kept() const {
    std::uint64_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(place_))
      bytes += file.file_size() - sizeof(SegmentHeader);
    return bytes;
  }

  std::filesystem::path before_, place_;
  LogWriter writer_;
};

// Whole records of 64 KiB filled three quarters of a segment: a log of 1 MiB kept 0.6 MiB.
TEST_F(Log, SegmentsAreFilledWhateverTheSizeOfRecords) {
  for (const std::uint32_t size : {65'536u, 60'000u, 100u, 5'000u})
    for (int i = 0; i < 200; ++i) {
      write(size);
      EXPECT_LE(kept(), std::uint64_t{segments} * segment_bytes);
      if (writer_.end() > std::uint64_t{segments} * segment_bytes) {
        EXPECT_GE(kept(), std::uint64_t{segments - 1} * segment_bytes - (segments << 12)) << size;
      }
    }
}

}  // namespace
}  // namespace billow::supervise
