#include "agent/content/piece_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
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

// Inside the kernel where that works, else through the buffer. File systems that can (XFS, Btrfs)
// share the blocks instead.
Status copy_range(int from, std::uint64_t offset, const PieceSource::Target& to, char* buffer) {
  std::uint64_t done = 0;
  while (done < to.size) {
    off_t in = static_cast<off_t>(offset + done), out = static_cast<off_t>(to.offset + done);
    const ssize_t n = ::copy_file_range(from, &in, to.descriptor, &out, to.size - done, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    done += static_cast<std::uint64_t>(n);
  }
  if (done == to.size)
    return {};
  BILLOW_TRY_VOID(read_at(from, buffer, to.size - done, offset + done));
  return write_at(to.descriptor, {buffer, to.size - done}, to.offset + done);
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
