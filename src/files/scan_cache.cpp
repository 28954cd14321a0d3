#include "files/scan_cache.h"

#include <cstring>

#include "base/file.h"

namespace billow::files {
namespace {

constexpr std::string_view cache_magic = "billow-scan-1\n";

}  // namespace

ScanCache::ScanCache(std::string path) : path_(std::move(path)) {
  if (path_.empty())
    return;
  const auto text = read_file(path_, 512 << 20);
  if (!text || !text->starts_with(cache_magic))
    return;
  std::string_view in = std::string_view(*text).substr(cache_magic.size());
  known_.reserve(in.size() / 96);
  const auto number = [&] {
    std::uint64_t value = 0;
    if (in.size() < 8) {
      in = {};
      return value;
    }
    std::memcpy(&value, in.data(), 8);
    in.remove_prefix(8);
    return value;
  };
  while (in.size() >= 48) {
    Known k;
    const std::uint64_t length = number();
    k.size = number();
    k.inode = number();
    k.mtime_ns = static_cast<std::int64_t>(number());
    k.ctime_ns = static_cast<std::int64_t>(number());
    const std::uint64_t pieces = number();
    if (length > in.size() || pieces > (in.size() - length) / 32)
      break;
    std::string file(in.substr(0, length));
    in.remove_prefix(length);
    k.pieces.resize(pieces);
    for (Sha256& piece : k.pieces) {
      std::memcpy(piece.data(), in.data(), 32);
      in.remove_prefix(32);
    }
    known_.emplace(std::move(file), std::move(k));
  }
}

const Known* ScanCache::find(const std::string& path) const {
  const auto found = known_.find(path);
  return found == known_.end() ? nullptr : &found->second;
}

void ScanCache::save() const {
  if (path_.empty() || !changed_)
    return;
  std::string out(cache_magic);
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
