#include "files/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"

namespace billow::files {
namespace {

constexpr std::uint32_t block_magic = 0x4b574c42;       // "BLWK"
constexpr std::uint32_t block_bytes_max = 2u << 20;     // of records; agents send less at a time
constexpr std::uint32_t block_bytes_small = 64u << 10;  // a smaller last block is written again
constexpr int log_zstd_level = 3;

struct BlockHead {
  std::uint32_t magic;
  std::uint32_t raw_bytes;
  std::uint32_t packed_bytes;
  std::uint32_t reserved;
  std::uint64_t offset;
};
static_assert(sizeof(BlockHead) == 24);

struct PlacedBlock {
  std::uint64_t at = 0;  // in the file
  BlockHead head{};
  std::uint64_t end() const { return head.offset + head.raw_bytes; }
  std::uint64_t file_end() const { return at + sizeof(BlockHead) + head.packed_bytes; }
};

Result<Fd> open_log(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd && !(errno == ENOENT && (flags & O_CREAT) == 0))
    return fail_errno("open " + path, errno);
  return fd;
}

// The whole blocks of the file, in order; stops at the first that is damaged.
std::vector<PlacedBlock> blocks_of(const Fd& fd) {
  std::vector<PlacedBlock> blocks;
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return blocks;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  std::uint64_t at = 0;
  for (;;) {
    PlacedBlock block{.at = at};
    if (size - at < sizeof(BlockHead) ||
        ::pread(fd.get(), &block.head, sizeof(BlockHead), static_cast<off_t>(at)) !=
            static_cast<ssize_t>(sizeof(BlockHead)))
      break;
    const bool valid = block.head.magic == block_magic && block.head.raw_bytes > 0 &&
                       block.head.raw_bytes <= block_bytes_max &&
                       block.head.packed_bytes <= ZSTD_compressBound(block_bytes_max) &&
                       block.file_end() <= size &&
                       (blocks.empty() || block.head.offset >= blocks.back().end());
    if (!valid)
      break;
    at = block.file_end();
    blocks.push_back(block);
  }
  return blocks;
}

LogSpan span_of(const std::vector<PlacedBlock>& blocks) {
  if (blocks.empty())
    return {};
  return {blocks.front().head.offset, blocks.back().end(), blocks.back().file_end()};
}

Result<std::string> unpack(const Fd& fd, const PlacedBlock& block, const std::string& path) {
  std::string packed(block.head.packed_bytes, '\0');
  const ssize_t n = ::pread(fd.get(), packed.data(), packed.size(),
                            static_cast<off_t>(block.at + sizeof(BlockHead)));
  std::size_t unpacked = 0;
  std::string raw;
  if (n == static_cast<ssize_t>(packed.size()))
    raw.resize_and_overwrite(block.head.raw_bytes, [&](char* into, std::size_t) {
      unpacked = ZSTD_decompress(into, block.head.raw_bytes, packed.data(), packed.size());
      return static_cast<std::size_t>(block.head.raw_bytes);
    });
  if (!raw.empty() && unpacked == raw.size())
    return raw;
  return fail(Code::internal, fmt::format("{} is damaged at byte {}", path, block.at));
}

Result<std::string> pack(std::uint64_t offset, std::string_view frames) {
  std::string out(sizeof(BlockHead) + ZSTD_compressBound(frames.size()), '\0');
  const std::size_t bytes =
      ZSTD_compress(out.data() + sizeof(BlockHead), out.size() - sizeof(BlockHead), frames.data(),
                    frames.size(), log_zstd_level);
  if (ZSTD_isError(bytes))
    return fail(Code::internal, ZSTD_getErrorName(bytes));
  const BlockHead head{block_magic, static_cast<std::uint32_t>(frames.size()),
                       static_cast<std::uint32_t>(bytes), 0, offset};
  std::memcpy(out.data(), &head, sizeof(head));
  out.resize(sizeof(BlockHead) + bytes);
  return out;
}

Status write_at(const Fd& fd, std::uint64_t at, std::string_view data, const std::string& path) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n =
        ::pwrite(fd.get(), data.data() + done, data.size() - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail_errno("write " + path, n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

// Writes the newest blocks, up to seven eighths of the limit, to a new file in its place.
Result<LogSpan> drop_oldest(const Fd& fd,
                            std::vector<PlacedBlock> blocks,
                            const std::string& path,
                            std::uint64_t bytes_max) {
  std::uint64_t kept = 0;
  auto first = blocks.end();
  while (first != blocks.begin() && kept + (first - 1)->head.raw_bytes <= bytes_max / 8 * 7)
    kept += (--first)->head.raw_bytes;
  if (first == blocks.end())
    --first;
  blocks.erase(blocks.begin(), first);
  const std::string part = path + ".new";
  const Fd to = BILLOW_TRY(open_log(part, O_WRONLY | O_CREAT | O_TRUNC));
  std::uint64_t at = 0;
  for (PlacedBlock& block : blocks) {
    std::string bytes(block.file_end() - block.at, '\0');
    if (::pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(block.at)) !=
        static_cast<ssize_t>(bytes.size()))
      return fail(Code::internal, fmt::format("{} cannot be read at byte {}", path, block.at));
    BILLOW_TRY_VOID(write_at(to, at, bytes, part));
    block.at = at;
    at += bytes.size();
  }
  if (::rename(part.c_str(), path.c_str()) != 0)
    return fail_errno("rename " + part, errno);
  return span_of(blocks);
}

}  // namespace

Result<LogSpan> log_span(const std::string& path) {
  return span_of(blocks_of(BILLOW_TRY(open_log(path, O_RDONLY))));
}

Result<LogSpan> append_log(const std::string& path,
                           std::uint64_t offset,
                           std::string_view frames,
                           std::uint64_t bytes_max) {
  const Fd fd = BILLOW_TRY(open_log(path, O_RDWR | O_CREAT));
  std::vector<PlacedBlock> blocks = blocks_of(fd);
  LogSpan span = span_of(blocks);
  if (frames.empty())
    return span;
  if (offset < span.end || frames.size() > block_bytes_max - block_bytes_small)
    return fail(Code::conflict, fmt::format("{} ends at {} and cannot take {} bytes at {}", path,
                                            span.end, frames.size(), offset));
  std::string merged;
  if (!blocks.empty() && blocks.back().head.raw_bytes < block_bytes_small && offset == span.end) {
    merged = BILLOW_TRY(unpack(fd, blocks.back(), path));
    merged += frames;
    frames = merged;
    offset = blocks.back().head.offset;
    blocks.pop_back();
  }
  const std::uint64_t at = blocks.empty() ? 0 : blocks.back().file_end();
  const std::string packed = BILLOW_TRY(pack(offset, frames));
  BILLOW_TRY_VOID(write_at(fd, at, packed, path));
  if (::ftruncate(fd.get(), static_cast<off_t>(at + packed.size())) != 0)
    return fail_errno("truncate " + path, errno);
  PlacedBlock added{.at = at};
  std::memcpy(&added.head, packed.data(), sizeof(BlockHead));
  blocks.push_back(added);
  std::uint64_t raw = 0;
  for (const PlacedBlock& block : blocks)
    raw += block.head.raw_bytes;
  return raw > bytes_max ? drop_oldest(fd, std::move(blocks), path, bytes_max)
                         : Result<LogSpan>(span_of(blocks));
}

// Blocks are unpacked in other threads before they are asked for: unpacking takes longer than a
// search through what comes out. A thread's work is large enough to be worth its start.
struct LogScan::Open {
  Fd fd;
  std::string path;
  std::vector<PlacedBlock> blocks;

  using Unpacked = std::vector<Result<std::string>>;
  struct Batch {
    std::size_t first = 0, end = 0;  // blocks
    std::future<Unpacked> unpacked;
  };
  std::deque<Batch> coming;
  Unpacked ready;
  std::size_t ready_first = 0;
  std::size_t next = SIZE_MAX;  // the block that a reader who goes on asks for

  void start_batch(std::size_t first) {
    std::size_t end = first;
    for (std::uint64_t bytes = 0; end < blocks.size() && bytes < batch_bytes; ++end)
      bytes += blocks[end].head.raw_bytes;
    if (end == first)
      return;
    coming.push_back({first, end, std::async(std::launch::async, [this, first, end] {
                        Unpacked out;
                        for (std::size_t i = first; i < end; ++i)
                          out.push_back(unpack(fd, blocks[i], path));
                        return out;
                      })});
  }
  Result<std::string> take(std::size_t number) {
    if (number != std::exchange(next, number + 1)) {  // it does not go on: nothing is ahead of it
      coming.clear();
      ready.clear();
      return unpack(fd, blocks[number], path);
    }
    if (number >= ready_first + ready.size() && !coming.empty()) {
      ready_first = coming.front().first;
      ready = coming.front().unpacked.get();
      coming.pop_front();
    }
    const bool is_ready = number >= ready_first && number < ready_first + ready.size();
    const std::size_t ahead_from = !coming.empty() ? coming.back().end
                                   : is_ready      ? ready_first + ready.size()
                                                   : number + 1;
    if (coming.size() < batches_ahead())
      start_batch(ahead_from);
    return is_ready ? std::move(ready[number - ready_first]) : unpack(fd, blocks[number], path);
  }
  static constexpr std::uint64_t batch_bytes = 4u << 20;
  static std::size_t batches_ahead() {
    return std::clamp(std::thread::hardware_concurrency(), 2u, 4u);
  }
};

LogScan::LogScan(std::string path, Ahead ahead) : path_(std::move(path)), ahead_(ahead) {}
LogScan::~LogScan() = default;

Result<LogBlock> LogScan::read(std::uint64_t offset) {
  if (!open_) {
    open_ = std::make_unique<Open>();
    open_->path = path_;
    open_->fd = BILLOW_TRY(open_log(path_, O_RDONLY));
    open_->blocks = blocks_of(open_->fd);
  }
  LogBlock found{.offset = offset, .frames = {}, .span = span_of(open_->blocks)};
  const auto block = std::ranges::upper_bound(open_->blocks, offset, {}, &PlacedBlock::end);
  if (block == open_->blocks.end())
    return found;
  found.offset = block->head.offset;
  const auto number = static_cast<std::size_t>(block - open_->blocks.begin());
  found.frames =
      BILLOW_TRY(ahead_ == Ahead::yes ? open_->take(number) : unpack(open_->fd, *block, path_));
  return found;
}

Result<LogBlock> read_log_block(const std::string& path, std::uint64_t offset) {
  return LogScan(path).read(offset);
}

}  // namespace billow::files
