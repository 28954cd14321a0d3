#include "supervise/secrets.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace billow::supervise {
namespace {

char* secret_memory = nullptr;
std::size_t secret_memory_bytes = 0;

}  // namespace

// Variables from the descriptor come first and replace those of the same name in the spec.
const char* take_secrets(Spec* spec) {
  // The agent passes sealed memory. Any other descriptor of this number is accidental.
  const int seals = fcntl(fd_secrets, F_GET_SEALS);
  struct stat st {};
  if (seals < 0 || (seals & F_SEAL_WRITE) == 0 || fstat(fd_secrets, &st) != 0 || st.st_size == 0)
    return nullptr;
  const auto bytes = static_cast<std::size_t>(st.st_size);
  if (bytes > secret_bytes_max)
    return "the task's secrets are too large";
  std::size_t count = 0;
  // At most one string for two bytes ("=" and its end), and the pointers of the spec behind them.
  const std::size_t pointer_bytes = (bytes / 2 + spec->env_count + 2) * sizeof(const char*);
  auto* memory = static_cast<char*>(mmap(nullptr, bytes + pointer_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED)
    return "no memory for the task's secrets";
  madvise(memory, bytes + pointer_bytes, MADV_DONTDUMP);
  char* data = memory + pointer_bytes;
  secret_memory = data;
  secret_memory_bytes = bytes;
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = pread(fd_secrets, data + at, bytes - at, static_cast<off_t>(at));
    if (got <= 0)
      return "the task's secrets cannot be read";
    at += static_cast<std::size_t>(got);
  }
  if (data[bytes - 1] != 0)
    return "the task's secrets are malformed";
  auto** list = reinterpret_cast<const char**>(memory);
  for (const char* at = data; at < data + bytes; at += strlen(at) + 1) {
    if (strchr(at, '=') == nullptr || *at == '=')
      return "the task's secrets are malformed";
    list[count++] = at;
  }
  const std::size_t own = count;
  for (std::uint32_t i = 0; i < spec->env_count; ++i) {
    bool given = false;
    for (std::size_t k = 0; k < own && !given; ++k) {
      const auto length = static_cast<std::size_t>(strchr(list[k], '=') - list[k] + 1);
      given = strncmp(list[k], spec->env[i], length) == 0;
    }
    if (!given)
      list[count++] = spec->env[i];
  }
  list[count] = nullptr;
  spec->env = list;
  spec->env_count = static_cast<std::uint32_t>(count);
  return nullptr;
}

void forget_secrets() {
  if (secret_memory != nullptr)
    explicit_bzero(secret_memory, secret_memory_bytes);
}

}  // namespace billow::supervise
