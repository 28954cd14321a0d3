#include "container/no_sftp.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/file.h"

namespace billow::container {
namespace {

constexpr char init = 1, version = 2, status = 101;
constexpr std::uint32_t spoken = 3,
                        unsupported = 8;  // the protocol's version; "operation unsupported"
constexpr std::uint32_t packet_bytes_max = 256 << 10;

bool read_all(char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(STDIN_FILENO, into, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}
std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t out = 0;
  for (std::size_t i = at; i < at + 4; ++i)
    out = out << 8 | static_cast<unsigned char>(bytes[i]);
  return out;
}
void add(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to += static_cast<char>(value >> shift);
}

}  // namespace

void refuse_file_transfers(std::string_view why) {
  for (std::string head(4, '\0'); read_all(head.data(), head.size());) {
    const std::uint32_t size = number_at(head, 0);
    if (size == 0 || size > packet_bytes_max)
      return;
    std::string packet(size, '\0');
    if (!read_all(packet.data(), packet.size()) || packet.size() < 5)
      return;
    std::string body;
    if (packet[0] == init) {
      body += version;
      add(body, spoken);
    } else {
      body += status;
      add(body, number_at(packet, 1));
      add(body, unsupported);
      add(body, static_cast<std::uint32_t>(why.size()));
      body += why;
      add(body, 0);  // empty language tag
    }
    std::string answer;
    add(answer, static_cast<std::uint32_t>(body.size()));
    if (!write_all(STDOUT_FILENO, answer + body))
      return;
  }
}

}  // namespace billow::container
