#include "files/large_pack.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "files/pack.h"

namespace billow::files {
namespace {

constexpr std::size_t filler_bytes = large_pack_begin - 2 * pack_header_bytes;

const Sha256& filler_digest() {
  static const Sha256 digest = sha256(std::string(filler_bytes, '\0'));
  return digest;
}

void put_header(char* at, const Sha256& digest, std::uint64_t size) {
  std::memcpy(at, digest.data(), digest.size());
  for (std::size_t i = 0; i < 8; ++i)
    at[digest.size() + i] = static_cast<char>(size >> (8 * i));
}

}  // namespace

AlignedMemory aligned_memory(std::size_t size) {
  const std::size_t whole = (size + large_pack_begin - 1) / large_pack_begin * large_pack_begin;
  char* memory = static_cast<char*>(std::aligned_alloc(large_pack_begin, whole));
  BILLOW_CHECK(memory != nullptr, "out of memory");
  return AlignedMemory(memory);
}

void begin_large_pack(char* pack, const Sha256& digest, std::uint64_t size) {
  std::memset(pack, 0, large_pack_begin);
  put_header(pack, filler_digest(), filler_bytes);
  put_header(pack + large_pack_begin - pack_header_bytes, digest, size);
}

Status read_part(int fd, char* into, std::size_t size, std::uint64_t offset) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(fd, into + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return fail(Code::conflict, "a file changed while it was read",
                  "try again when no program writes to it");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace billow::files
