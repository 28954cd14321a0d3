#include "agent/content/piece_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace billow::agent {
namespace {

// More than cores: while one waits for the disk, another copies.
constexpr std::size_t copying_threads_max = 4;

Status read_at(int fd, char* into, std::size_t size, std::uint64_t offset) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(fd, into + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return fail(Code::internal, "a pack of files is damaged");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Status write_at(int fd, std::string_view data, std::uint64_t offset) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      return fail_errno("a job's file", put == 0 ? EIO : errno);
    data.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

// Shares the blocks where the file system can (XFS, Btrfs): nothing is copied at all.
bool share_blocks(int from, std::uint64_t offset, const PieceSource::Target& to) {
  file_clone_range range{from, offset, to.size, to.offset};
  return offset % files::large_pack_begin == 0 && ::ioctl(to.descriptor, FICLONERANGE, &range) == 0;
}

bool is_cached(int fd, std::uint64_t offset) {
  char octet = 0;
  iovec part{&octet, 1};
  return ::preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

// The pack past the page cache, which the job's own file needs more; invalid: it is in the cache,
// or cannot be read so.
Fd open_directly(int fd, std::uint64_t offset, std::uint32_t size) {
  if (offset % files::large_pack_begin != 0 || size % files::large_pack_begin != 0 ||
      is_cached(fd, offset + size - 1))
    return Fd();
  return Fd(
      ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
}

Status copy_range(int from, std::uint64_t offset, const PieceSource::Target& to, char* buffer) {
  if (share_blocks(from, offset, to))
    return {};
  const Fd directly = open_directly(from, offset, to.size);
  if (!directly || !read_at(directly.get(), buffer, to.size, offset))
    BILLOW_TRY_VOID(read_at(from, buffer, to.size, offset));
  return write_at(to.descriptor, {buffer, to.size}, to.offset);
}

}  // namespace

Status PieceSource::open_at(const files::PieceFile& place,
                            const Sha256& digest,
                            Opened& last) const {
  if (last.path != place.path || !last.fd) {
    last.fd = Fd(::open(place.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    last.path = place.path;
    struct stat info {};
    if (!last.fd || ::fstat(last.fd.get(), &info) != 0)
      return fail_errno(place.path, errno);
    if (!S_ISREG(info.st_mode) || (knows(digest) && info.st_uid != owner_)) {
      last.fd = Fd();
      return fail(Code::forbidden, fmt::format("{} is not a file of the head's", place.path));
    }
    // Looking at its header must not bring the content into the page cache.
    if (place.offset == files::large_pack_begin)
      ::posix_fadvise(last.fd.get(), 0, 0, POSIX_FADV_RANDOM);
  }
  char header[files::pack_header_bytes];
  if (place.offset < sizeof header ||
      ::pread(last.fd.get(), header, sizeof header,
              static_cast<off_t>(place.offset - sizeof header)) !=
          static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header, digest.data(), digest.size()) != 0)
    return fail(Code::not_found, fmt::format("{} is not the pack it should be", place.path));
  return {};
}

bool PieceSource::use_places(const std::vector<Sha256>& digests,
                             std::vector<files::PieceFile> places,
                             uid_t owner) {
  if (places.size() != digests.size() || places.empty())
    return false;
  owner_ = owner;
  at_head_.reserve(at_head_.size() + digests.size());
  for (std::size_t i = 0; i < digests.size(); ++i)
    at_head_.insert_or_assign(digests[i], std::move(places[i]));
  if (open_at(at_head_.at(digests[0]), digests[0], last_))
    return true;
  for (const Sha256& digest : digests)
    at_head_.erase(digest);
  return false;
}

Result<files::PieceFile> PieceSource::find(const Sha256& digest) const {
  const auto found = at_head_.find(digest);
  return found == at_head_.end() ? store_.locate(digest) : Result<files::PieceFile>(found->second);
}

Status PieceSource::append(const Sha256& digest, std::string& to) {
  files::PieceFile place = BILLOW_TRY(find(digest));
  if (!open_at(place, digest, last_)) {
    // The head has removed the pack in the meantime, or written it anew.
    at_head_.erase(digest);
    BILLOW_TRY_VOID(fetch_({digest}));
    place = BILLOW_TRY(store_.locate(digest));
    BILLOW_TRY_VOID(open_at(place, digest, last_));
  }
  const std::size_t begin = to.size();
  to.resize(begin + place.size);
  return read_at(last_.fd.get(), to.data() + begin, place.size, place.offset);
}

Status PieceSource::copy(const Target& target, Opened& last, char* buffer) const {
  const files::PieceFile place = BILLOW_TRY(find(target.digest));
  BILLOW_TRY_VOID(open_at(place, target.digest, last));
  if (place.size != target.size)
    return fail(Code::invalid, "a piece of a file does not have its size");
  return copy_range(last.fd.get(), place.offset, target, buffer);
}

Status PieceSource::copy(std::vector<Target> targets) {
  // Writes to one file wait for each other: the threads get pieces of different ones.
  std::ranges::stable_sort(targets, {}, &Target::offset);
  std::atomic<std::size_t> next{0};
  const std::size_t count = std::min<std::size_t>(copying_threads_max, targets.size());
  std::vector<std::vector<Target>> failed(count);
  const auto work = [&](std::vector<Target>& left) {
    Opened last;
    const files::AlignedMemory buffer = files::aligned_memory(files::piece_bytes);
    for (std::size_t i; (i = next++) < targets.size();)
      if (!copy(targets[i], last, buffer.get()))
        left.push_back(targets[i]);
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < count; ++i)
      threads.emplace_back([&, i] { work(failed[i]); });
    if (count > 0)
      work(failed[0]);
  }
  // What could not be read there is fetched, and then an error is one.
  std::string bytes;
  for (const std::vector<Target>& left : failed)
    for (const Target& target : left) {
      bytes.clear();
      BILLOW_TRY_VOID(append(target.digest, bytes));
      if (bytes.size() != target.size)
        return fail(Code::invalid, "a piece of a file does not have its size");
      BILLOW_TRY_VOID(write_at(target.descriptor, bytes, target.offset));
    }
  return {};
}

}  // namespace billow::agent
