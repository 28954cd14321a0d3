#include "files/scan_cache.h"

#include <cstring>

#include "base/file.h"

namespace billow::files {
namespace {

constexpr std::string_view cache_magic = "billow-scan-1\n";
constexpr std::size_t numbers = 6;  // at the beginning of a record

}  // namespace

ScanCache::ScanCache(std::string path) : path_(std::move(path)) {
  if (path_.empty())
    return;
  if (auto text = read_file(path_, 512 << 20); text && text->starts_with(cache_magic))
    text_ = std::move(*text);
  at_ = cache_magic.size();
}

bool ScanCache::record_at(std::size_t at, Record& out) const {
  if (text_.size() < at || text_.size() - at < numbers * 8)
    return false;
  std::uint64_t n[numbers];
  std::memcpy(n, text_.data() + at, sizeof n);
  const std::string_view rest = std::string_view(text_).substr(at + sizeof n);
  if (n[0] > rest.size() || n[5] > (rest.size() - n[0]) / 32)
    return false;
  out.path = rest.substr(0, n[0]);
  out.pieces = rest.substr(n[0], n[5] * 32);
  out.whole = std::string_view(text_).substr(at, sizeof n + n[0] + n[5] * 32);
  out.known = {n[1], n[2], static_cast<std::int64_t>(n[3]), static_cast<std::int64_t>(n[4]), {}};
  return true;
}

bool ScanCache::find(const std::string& path, Known& now) {
  Record found;
  if (!record_at(at_, found) || found.path != path) {
    if (index_.empty())
      for (std::size_t at = cache_magic.size(); record_at(at, found); at += found.whole.size())
        index_.emplace(found.path, at);
    const auto place = index_.find(path);
    if (place == index_.end() || !record_at(place->second, found))
      return false;
  }
  at_ = static_cast<std::size_t>(found.whole.data() - text_.data()) + found.whole.size();
  if (!found.known.same_file(now))
    return false;
  now.pieces.resize(found.pieces.size() / 32);
  if (!now.pieces.empty())
    std::memcpy(now.pieces.data(), found.pieces.data(), found.pieces.size());
  kept_.push_back(found.whole);
  return true;
}

void ScanCache::save() const {
  if (path_.empty() || fresh_.empty())
    return;
  std::string out(cache_magic);
  out.reserve(text_.size() + fresh_.size() * 128);
  for (const std::string_view record : kept_)
    out += record;
  const auto put = [&](std::uint64_t value) {
    out.append(reinterpret_cast<const char*>(&value), 8);
  };
  for (const auto& [path, k] : fresh_) {
    put(path.size());
    put(k.size);
    put(k.inode);
    put(static_cast<std::uint64_t>(k.mtime_ns));
    put(static_cast<std::uint64_t>(k.ctime_ns));
    put(k.pieces.size());
    out += path;
    for (const Sha256& piece : k.pieces)
      out.append(reinterpret_cast<const char*>(piece.data()), 32);
  }
  if (const auto slash = path_.rfind('/'); slash != std::string::npos)
    (void)make_directories(path_.substr(0, slash), 0700);
  (void)write_file_atomic(path_, out, 0600);
}

}  // namespace billow::files
