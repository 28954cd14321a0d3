#include "files/large_pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "files/pack.h"

namespace billow::files {
namespace {

constexpr std::size_t filler_bytes = large_pack_begin - 2 * pack_header_bytes;
constexpr Duration slow_pause = seconds(10), refused_pause = minutes(10);
#ifdef O_DIRECT
constexpr int direct_flag = O_DIRECT;
#else
constexpr int direct_flag = 0;  // macOS: a client keeps no packs
#endif

const Sha256& filler_digest() {
  static const Sha256 digest = sha256(std::string(filler_bytes, '\0'));
  return digest;
}

void put_header(char* at, const Sha256& digest, std::uint64_t size) {
  std::memcpy(at, digest.data(), digest.size());
  for (std::size_t i = 0; i < 8; ++i)
    at[digest.size() + i] = static_cast<char>(size >> (8 * i));
}

bool is_aligned(std::string_view pack) {
  return reinterpret_cast<std::uintptr_t>(pack.data()) % large_pack_begin == 0 &&
         pack.size() % large_pack_begin == 0;
}

}  // namespace

AlignedMemory aligned_memory(std::size_t size) {
  const std::size_t whole = (size + large_pack_begin - 1) / large_pack_begin * large_pack_begin;
  char* memory = static_cast<char*>(std::aligned_alloc(large_pack_begin, whole));
  BILLOW_CHECK(memory != nullptr, "out of memory");
  return AlignedMemory(memory);
}

bool is_filler(const Sha256& digest, std::uint64_t size) {
  return size == filler_bytes && digest == filler_digest();
}

void begin_large_pack(char* pack, const Sha256& digest, std::uint64_t size) {
  std::memset(pack, 0, large_pack_begin);
  put_header(pack, filler_digest(), filler_bytes);
  put_header(pack + large_pack_begin - pack_header_bytes, digest, size);
}

Status PackWriter::write(const std::string& path, std::string_view pack) {
  if (direct_flag != 0 && pack.size() > large_piece_min && is_aligned(pack) &&
      system_clock().steady().ns >= directly_again_ns_ && write_directly(path, pack))
    return {};
  return write_file_atomic(path, pack, 0600);
}

bool PackWriter::write_directly(const std::string& path, std::string_view pack) {
  const std::string temporary = path + ".direct.tmp";
  Fd fd(::open(temporary.c_str(),
               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | direct_flag, 0600));
  const SteadyTime began = system_clock().steady();
  const bool written =
      fd && ::write(fd.get(), pack.data(), pack.size()) == static_cast<ssize_t>(pack.size());
  const bool done = written && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (fd && !done)
    ::unlink(temporary.c_str());
  const SteadyTime now = system_clock().steady();
  const auto wanted_ns = static_cast<std::int64_t>(pack.size() * 1'000'000'000 / fast_bytes_per_s);
  if (!done)
    directly_again_ns_ = (now + refused_pause).ns;
  else if ((now - began).ns > wanted_ns)
    directly_again_ns_ = (now + slow_pause).ns;
  return done;
}

}  // namespace billow::files
