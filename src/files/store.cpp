#include "files/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/file.h"
#include "base/log.h"
#include "files/pack.h"

namespace billow::files {
namespace {

constexpr Duration kept_at_least = minutes(10);

std::vector<std::pair<std::int64_t, std::string>> files_in(const std::string& directory, std::string_view suffix) {
  std::vector<std::pair<std::int64_t, std::string>> out;
  DIR* dir = ::opendir(directory.c_str());
  if (!dir) return out;
  while (const dirent* item = ::readdir(dir)) {
    const std::string name = item->d_name;
    struct stat info {};
    if (name.ends_with(suffix) && ::stat((directory + "/" + name).c_str(), &info) == 0) out.emplace_back(info.st_mtim.tv_sec, name);
    else if (name.find(".tmp") != std::string::npos) ::unlink((directory + "/" + name).c_str());  // of a crash
  }
  ::closedir(dir);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::size_t DigestHash::operator()(const Sha256& digest) const {
  std::size_t out = 0;
  std::memcpy(&out, digest.data(), sizeof out);  // as good a hash as any
  return out;
}

Result<std::unique_ptr<Store>> Store::open(std::string directory, std::uint64_t bytes_max) {
  BILLOW_TRY_VOID(make_directories(directory + "/packs", 0700));
  BILLOW_TRY_VOID(make_directories(directory + "/trees", 0700));
  std::unique_ptr<Store> store(new Store(std::move(directory), bytes_max));
  BILLOW_TRY_VOID(store->load());
  return store;
}

// Only headers are read: a piece is checked when it came in, and by whoever receives it.
Status Store::load() {
  for (const auto& [age, name] : files_in(directory_ + "/packs", ".pack")) {
    const Fd fd(::open((directory_ + "/packs/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) continue;
    const auto pack = packs_.insert(packs_.end(), Pack{name, static_cast<std::uint64_t>(info.st_size), {}, {}});
    std::uint64_t at = 0;
    while (at + pack_header_bytes <= pack->bytes) {
      unsigned char header[pack_header_bytes];
      if (::pread(fd.get(), header, sizeof header, static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof header)) break;
      Sha256 digest;
      std::memcpy(digest.data(), header, 32);
      std::uint64_t size = 0;
      for (std::size_t i = 0; i < 8; ++i) size |= static_cast<std::uint64_t>(header[32 + i]) << (8 * i);
      at += pack_header_bytes;
      if (size > piece_bytes || at + size > pack->bytes) break;
      if (places_.emplace(digest, Place{pack, at, static_cast<std::uint32_t>(size)}).second) pack->pieces.push_back(digest);
      at += size;
    }
    bytes_ += pack->bytes;
  }
  return {};
}

bool Store::has(const Sha256& digest) const {
  std::lock_guard lock(mutex_);
  return places_.contains(digest);
}

std::uint64_t Store::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

// To the end of the line. Its file's time follows now and then, so that the order outlives a restart.
void Store::touch(Packs::iterator pack) const {
  const SteadyTime now = system_clock().steady();
  if (now - pack->used > minutes(1)) ::utimensat(AT_FDCWD, (directory_ + "/packs/" + pack->name).c_str(), nullptr, 0);
  pack->used = now;
  packs_.splice(packs_.end(), packs_, pack);
}

std::vector<Sha256> Store::missing(const std::vector<Sha256>& digests) {
  std::lock_guard lock(mutex_);
  std::vector<Sha256> out;
  std::unordered_set<Sha256, DigestHash> asked;
  const Pack* last = nullptr;
  for (const Sha256& digest : digests) {
    const auto found = places_.find(digest);
    if (found == places_.end()) {
      if (asked.insert(digest).second) out.push_back(digest);
    } else if (&*found->second.pack != last) {
      touch(found->second.pack);
      last = &*found->second.pack;
    }
  }
  return out;
}

Status Store::add(std::string_view pack) {
  std::vector<std::pair<Sha256, std::pair<std::uint64_t, std::uint32_t>>> pieces;
  BILLOW_TRY_VOID(each_piece(pack, [&](const Sha256& digest, std::string_view bytes) -> Status {
    pieces.push_back({digest, {static_cast<std::uint64_t>(bytes.data() - pack.data()), static_cast<std::uint32_t>(bytes.size())}});
    return {};
  }));
  if (pieces.empty()) return {};
  const std::string name = hex(random_bytes(12)) + ".pack";
  BILLOW_TRY_VOID(write_file_atomic(directory_ + "/packs/" + name, pack, 0600));
  std::lock_guard lock(mutex_);
  const auto place = packs_.insert(packs_.end(), Pack{name, pack.size(), system_clock().steady(), {}});
  bytes_ += pack.size();
  for (const auto& [digest, where] : pieces)
    if (places_.emplace(digest, Place{place, where.first, where.second}).second) place->pieces.push_back(digest);
  trim();
  return {};
}

void Store::trim() {
  const SteadyTime now = system_clock().steady();
  while (bytes_ > bytes_max_ && !packs_.empty()) {
    Pack& oldest = packs_.front();
    if (oldest.used.ns > 0 && now - oldest.used < kept_at_least) return;
    ::unlink((directory_ + "/packs/" + oldest.name).c_str());
    for (const Sha256& digest : oldest.pieces) places_.erase(digest);
    bytes_ -= oldest.bytes;
    packs_.pop_front();
  }
}

Result<std::string> Store::read(const Sha256& digest) const {
  std::string path;
  std::uint64_t offset = 0;
  std::string out;
  {
    std::lock_guard lock(mutex_);
    const auto found = places_.find(digest);
    if (found == places_.end()) return fail(Code::not_found, fmt::format("no content {} is kept here", digest_hex(digest)));
    touch(found->second.pack);
    path = directory_ + "/packs/" + found->second.pack->name;
    offset = found->second.offset;
    out.resize(found->second.size);
  }
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(path, errno);
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(fd.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got <= 0) return fail(Code::internal, fmt::format("{} is damaged", path), "remove the file; what was in it is uploaded again when it is needed");
    done += static_cast<std::size_t>(got);
  }
  return out;
}

Status Store::add_tree(const Sha256& digest, std::string_view list) {
  if (sha256(list) != digest) return fail(Code::invalid, "the list of files is not what its digest says");
  const std::string path = directory_ + "/trees/" + digest_hex(digest);
  if (file_exists(path)) return {};
  return write_file_atomic(path, list, 0600);
}

Result<std::string> Store::read_tree(const Sha256& digest) const {
  auto list = read_file(directory_ + "/trees/" + digest_hex(digest), tree_list_bytes_max);
  if (!list) return fail(Code::not_found, fmt::format("no tree {} is kept here", digest_hex(digest)), "submit the job again: its files are then uploaded anew");
  return list;
}

}  // namespace billow::files
