#include "agent/task/log_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

using namespace supervise;
constexpr std::size_t boundaries_max = 4096;
constexpr int open_attempts_max = 16;

struct Head {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  // of records
};

// The base of an open segment and how much it holds.
std::optional<Head> identify(int fd) {
  SegmentHeader header;
  struct stat st {};
  if (::pread(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)))
    return std::nullopt;
  if (std::memcmp(header.magic, segment_magic, sizeof(segment_magic)) != 0 || ::fstat(fd, &st) != 0)
    return std::nullopt;
  return Head{header.base, static_cast<std::uint64_t>(st.st_size) - sizeof(header)};
}

// The bases of the older segments, in order.
std::vector<std::uint64_t> old_bases(const std::string& path) {
  std::vector<std::uint64_t> bases;
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr)
    return bases;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with("out.") || !name.ends_with(".log") || name.size() <= 8)
      continue;
    const auto base = parse_int(name.substr(4, name.size() - 8), 0, INT64_MAX);
    if (base)
      bases.push_back(static_cast<std::uint64_t>(*base));
  }
  ::closedir(dir);
  std::sort(bases.begin(), bases.end());
  return bases;
}

// How many of the first bytes of `data` are whole records; stops at an invalid header.
std::size_t whole_records(std::string_view data, std::size_t stop_after) {
  std::size_t at = 0;
  while (at < stop_after && data.size() - at >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, data.data() + at, sizeof(head));
    if (head.bytes > record_data_bytes_max || data.size() - at - sizeof(head) < head.bytes)
      break;
    at += sizeof(head) + head.bytes;
  }
  return at;
}

}  // namespace

struct LogReader::Segment {
  Fd fd;
  std::uint64_t base = 0, bytes = 0;
  bool current = false;
  std::uint64_t end() const { return base + bytes; }
};

// The segment that holds `offset`, or the oldest one if that was dropped.
Result<LogReader::Segment> LogReader::open_segment(std::uint64_t offset) const {
  const std::string current_path = path_ + "/" + file_log;
  for (int attempt = 0; attempt < open_attempts_max; ++attempt) {
    Fd fd(::open(current_path.c_str(), O_RDONLY | O_CLOEXEC));
    std::optional<Head> head;
    if (fd)
      head = identify(fd.get());
    if (head && offset >= head->base)
      return Segment{std::move(fd), head->base, head->bytes, true};
    const auto bases = old_bases(path_);
    if (bases.empty()) {
      if (head)
        return Segment{std::move(fd), head->base, head->bytes,
                       true};  // the one asked for was dropped
      if (!fd && !file_exists(path_))
        return fail(Code::not_found, path_ + " does not exist and has no log");
      return Segment{};  // nothing written yet
    }
    auto above = std::upper_bound(bases.begin(), bases.end(), offset);
    const std::uint64_t base = above == bases.begin() ? *above : *(above - 1);
    Fd old(::open(fmt::format("{}/out.{}.log", path_, base).c_str(), O_RDONLY | O_CLOEXEC));
    if (!old)
      continue;  // dropped since we looked
    if (auto old_head = identify(old.get()))
      return Segment{std::move(old), old_head->base, old_head->bytes, false};
  }
  return fail(Code::unavailable, path_ + ": the log rotates faster than it can be read",
              "read again");
}

void LogReader::remember(std::uint64_t offset) {
  boundaries_.insert(offset);
  if (boundaries_.size() > boundaries_max)
    boundaries_.erase(boundaries_.begin());
}

// The first record at or after `offset`: known, or found by walking from the nearest one known
// before it.
std::uint64_t LogReader::boundary_at(const Segment& segment, std::uint64_t offset, Side side) {
  if (offset <= segment.base)
    return segment.base;
  if (boundaries_.contains(offset))
    return offset;
  auto known = boundaries_.upper_bound(offset);
  std::uint64_t at = segment.base;
  if (known != boundaries_.begin())
    at = std::max(at, *--known);
  while (at < offset && segment.end() - at >= sizeof(RecordHead)) {
    RecordHead head;
    if (::pread(segment.fd.get(), &head, sizeof(head),
                static_cast<off_t>(sizeof(SegmentHeader) + (at - segment.base))) !=
        static_cast<ssize_t>(sizeof(head)))
      break;
    if (head.bytes > record_data_bytes_max || segment.end() - at - sizeof(head) < head.bytes)
      break;
    if (side == Side::before && at + sizeof(head) + head.bytes > offset)
      break;
    at += sizeof(head) + head.bytes;
  }
  return at;
}

Result<LogChunk> LogReader::read(std::uint64_t offset, std::size_t bytes_max) {
  LogChunk chunk;
  BILLOW_TRY_VOID(read_into(chunk, offset, bytes_max));
  return chunk;
}

Status LogReader::read_into(LogChunk& chunk, std::uint64_t offset, std::size_t bytes_max) {
  Segment segment = BILLOW_TRY(open_segment(offset));
  if (!segment.fd) {
    chunk.frames.clear();
    chunk.at_end = true;
    return {};
  }
  // At the end of a segment that has a successor: continue there.
  for (int hop = 0; !segment.current && offset >= segment.end() && hop < open_attempts_max; ++hop) {
    const std::uint64_t end = segment.end();
    segment = BILLOW_TRY(open_segment(std::max(offset, end)));
    if (!segment.current && segment.end() == end)
      break;
  }
  if (offset < segment.base)
    chunk.gone_bytes = segment.base - offset;
  const std::uint64_t start = std::min(boundary_at(segment, offset, Side::after), segment.end());
  chunk.offset = start;
  const std::uint64_t available = segment.end() - start;
  const std::size_t wanted = static_cast<std::size_t>(
      std::min<std::uint64_t>(available, bytes_max + sizeof(RecordHead) + record_data_bytes_max));
  ssize_t n = 0;
  chunk.frames.resize_and_overwrite(wanted, [&](char* into, std::size_t) {
    n = ::pread(segment.fd.get(), into, wanted,
                static_cast<off_t>(sizeof(SegmentHeader) + (start - segment.base)));
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  });
  if (n < 0)
    return fail_errno("read the log in " + path_, errno);
  chunk.frames.resize(whole_records(chunk.frames, std::max<std::size_t>(bytes_max, 1)));
  chunk.next_offset = start + chunk.frames.size();
  // The invalid rest of a finished segment (a damaged disk) is skipped, not returned again and
  // again.
  if (!segment.current && chunk.frames.empty() && available > 0) {
    chunk.gone_bytes += available;
    chunk.offset = chunk.next_offset = segment.end();
  }
  chunk.at_end = segment.current && chunk.next_offset + sizeof(RecordHead) > segment.end();
  remember(chunk.next_offset);
  return {};
}

Result<wire::LogAnswer> LogReader::query(const wire::LogQuery& query) {
  const auto read_piece = [this](std::uint64_t offset, std::size_t bytes_max,
                                 wire::LogPiece& into) -> Status {
    LogChunk chunk;
    chunk.frames = std::move(into.frames);
    BILLOW_TRY_VOID(read_into(chunk, offset, bytes_max));
    into = {chunk.offset, chunk.next_offset, std::move(chunk.frames), chunk.at_end};
    return {};
  };
  return wire::run_query(query, lines_, read_piece);
}

Result<std::uint64_t> LogReader::end() const {
  const Segment segment = BILLOW_TRY(open_segment(UINT64_MAX));
  return segment.fd ? segment.end() : 0;
}

Result<std::uint64_t> LogReader::tail_offset(std::uint64_t bytes) {
  const std::uint64_t last = BILLOW_TRY(end());
  const std::uint64_t wanted = last > bytes ? last - bytes : 0;
  const Segment segment = BILLOW_TRY(open_segment(wanted));
  if (!segment.fd)
    return 0;
  const std::uint64_t offset = boundary_at(segment, wanted, Side::before);
  remember(offset);
  return offset;
}

}  // namespace billow::agent
