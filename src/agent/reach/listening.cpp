#include "agent/reach/listening.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <thread>

#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::size_t table_bytes_max = 16 << 20;

using Row = ListeningSocket;

// /proc/net/tcp prints addresses as hexadecimal words in the machine's byte order.
bool parse_address(std::string_view text, Row& row) {
  const auto colon = text.find(':');
  if (colon != 8 && colon != 32)
    return false;
  row.v4 = colon == 8;
  row.address.sin6_family = AF_INET6;
  std::uint32_t words[4] = {};
  for (std::size_t i = 0; i < colon / 8; ++i)
    if (std::from_chars(text.data() + i * 8, text.data() + i * 8 + 8, words[i], 16).ec !=
        std::errc())
      return false;
  std::memcpy(row.address.sin6_addr.s6_addr, words, row.v4 ? 4 : 16);
  std::uint16_t port = 0;
  if (std::from_chars(text.data() + colon + 1, text.data() + text.size(), port, 16).ec !=
      std::errc())
    return false;
  row.address.sin6_port = htons(port);
  return true;
}

// The listening sockets in a process's network namespace.
std::vector<Row> listening(const std::string& process) {
  std::vector<Row> out;
  for (const char* table : {"tcp", "tcp6"}) {
    const auto text = read_file(fmt::format("/proc/{}/net/{}", process, table), table_bytes_max);
    if (!text)
      continue;
    std::string_view rest = *text;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      std::array<std::string_view, 10> words;
      std::size_t count = 0;
      for (std::size_t at = line.find_first_not_of(' ');
           at != std::string_view::npos && count < words.size();
           at = line.find_first_not_of(' ', at)) {
        const auto end = std::min(line.find(' ', at), line.size());
        words[count++] = line.substr(at, end - at);
        at = end;
      }
      constexpr std::string_view listen_state = "0A";
      Row row;
      if (count < words.size() || words[3] != listen_state || !parse_address(words[1], row))
        continue;
      if (const auto inode = parse_int(words[9], 1, INT64_MAX))
        row.inode = static_cast<std::uint64_t>(*inode), out.push_back(row);
    }
  }
  return out;
}

std::uint64_t network_of(const std::string& process) {
  struct stat info {};
  return ::stat(("/proc/" + process + "/ns/net").c_str(), &info) == 0 ? info.st_ino : 0;
}

// A socket that listens on any address is reached by loopback.
void make_reachable(Listener& found) {
  unsigned char* bytes = found.address.sin6_addr.s6_addr;
  if (found.v4) {
    unsigned char four[4];
    std::memcpy(four, bytes, 4);
    if (four[0] == 0)
      four[0] = 127, four[3] = 1;
    std::memcpy(bytes, four, 4);
  } else if (IN6_IS_ADDR_UNSPECIFIED(&found.address.sin6_addr)) {
    found.address.sin6_addr = in6addr_loopback;
  }
}

Result<Fd> new_socket(bool v4) {
  Fd fd(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail_errno("socket", errno);
  return fd;
}

// A socket belongs to the network namespace of the thread that creates it, so a separate thread
// enters the namespace and creates it there.
Result<Fd> socket_in(int pid, bool v4) {
  const Fd network(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!network)
    return fail_errno("open the job's network namespace", errno);
  Result<Fd> made = fail(Code::internal, "");
  std::thread([&] {
    if (::setns(network.get(), CLONE_NEWNET) != 0)
      made = fail_errno("enter the job's network namespace", errno);
    else
      made = new_socket(v4);
  }).join();
  return made;
}

}  // namespace

std::vector<ListeningSocket> listening_here() {
  return listening("self");
}

std::map<std::uint64_t, int> sockets_of(int pid) {
  std::map<std::uint64_t, int> out;
  const std::string directory = fmt::format("/proc/{}/fd", pid);
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr)
    return out;
  while (const dirent* entry = ::readdir(dir)) {
    char target[64] = {};
    if (::readlinkat(::dirfd(dir), entry->d_name, target, sizeof target - 1) <= 0)
      continue;
    std::string_view text = target;
    if (!text.starts_with("socket:[") || !text.ends_with(']'))
      continue;
    text = text.substr(8, text.size() - 9);
    const auto inode = parse_int(text, 1, INT64_MAX), fd = parse_int(entry->d_name, 0, INT32_MAX);
    if (inode && fd)
      out.emplace(static_cast<std::uint64_t>(*inode), static_cast<int>(*fd));
  }
  ::closedir(dir);
  return out;
}

Result<Listener> find_listener(const std::vector<int>& pids, std::uint16_t port) {
  std::map<std::uint64_t, std::vector<Row>> tables;  // by network namespace
  for (const int pid : pids) {
    const std::uint64_t network = network_of(std::to_string(pid));
    const auto [at, fresh] = tables.try_emplace(network);
    if (fresh) {
      at->second = listening(std::to_string(pid));
      std::erase_if(at->second, [&](const Row& row) { return row.port() != port; });
    }
    if (at->second.empty())
      continue;
    const std::map<std::uint64_t, int> own = sockets_of(pid);
    for (const Row& row : at->second) {
      const auto held = own.find(row.inode);
      if (held == own.end())
        continue;
      Listener found{row.address, row.v4, pid, held->second, row.inode};
      make_reachable(found);
      return found;
    }
  }
  return fail(Code::not_found, fmt::format("the job does not listen on port {}", port));
}

bool still_listens(const Listener& listener) {
  char target[64] = {};
  if (::readlink(fmt::format("/proc/{}/fd/{}", listener.pid, listener.fd).c_str(), target,
                 sizeof target - 1) <= 0)
    return false;
  return target == fmt::format("socket:[{}]", listener.inode);
}

Result<Fd> begin_connect(const Listener& listener) {
  const bool elsewhere = network_of(std::to_string(listener.pid)) != network_of("self");
  Fd fd = BILLOW_TRY(elsewhere ? socket_in(listener.pid, listener.v4) : new_socket(listener.v4));
  sockaddr_in four{};
  const sockaddr* to = reinterpret_cast<const sockaddr*>(&listener.address);
  socklen_t length = sizeof(listener.address);
  if (listener.v4) {
    four.sin_family = AF_INET;
    four.sin_port = listener.address.sin6_port;
    std::memcpy(&four.sin_addr, listener.address.sin6_addr.s6_addr, 4);
    to = reinterpret_cast<const sockaddr*>(&four);
    length = sizeof(four);
  }
  if (::connect(fd.get(), to, length) != 0 && errno != EINPROGRESS)
    return fail_errno("connect", errno);
  return fd;
}

}  // namespace billow::agent
