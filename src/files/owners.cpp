#include "files/owners.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/crypto.h"
#include "base/file.h"
#include "files/pack.h"

namespace billow::files {

constexpr std::size_t owner_bytes_max = 512 << 20;

std::size_t DigestHash::operator()(const Sha256& digest) const {
  std::size_t out = 0;
  std::memcpy(&out, digest.data(), sizeof out);  // a digest is a good hash
  return out;
}

std::string Owners::path_of(const std::string& owner) const {
  return directory_ + "/" + sha256_hex(owner).substr(0, 32);
}

DigestSet& Owners::of(const std::string& owner) {
  const auto [found, fresh] = known_.try_emplace(owner);
  if (fresh)
    if (auto text = read_file(path_of(owner), owner_bytes_max)) {
      text->resize(text->size() / 32 * 32);  // a crash may have truncated the last one
      if (const auto digests = decode_digests(*text))
        found->second.insert(digests->begin(), digests->end());
    }
  return found->second;
}

Status Owners::add(const std::string& owner, const std::vector<Sha256>& digests) {
  DigestSet& known = of(owner);
  std::vector<Sha256> fresh;
  for (const Sha256& digest : digests)
    if (known.insert(digest).second)
      fresh.push_back(digest);
  if (fresh.empty())
    return {};
  const std::string path = path_of(owner);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno(path, errno);
  const off_t end = ::lseek(fd.get(), 0, SEEK_END);
  if (end % 32 != 0 && ::ftruncate(fd.get(), end / 32 * 32) != 0)
    return fail_errno(path, errno);
  return write_all(fd.get(), encode_digests(fresh));
}

void Owners::prune(const std::function<bool(const Sha256&)>& kept) {
  for (auto& [owner, known] : known_) {
    const std::size_t before = known.size();
    std::erase_if(known, [&](const Sha256& digest) { return !kept(digest); });
    if (known.size() == before)
      continue;
    (void)write_file_atomic(path_of(owner), encode_digests({known.begin(), known.end()}), 0600);
  }
}

}  // namespace billow::files
