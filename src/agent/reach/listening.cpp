#include "agent/reach/listening.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "agent/isolate/replica_guard.h"
#include "base/text.h"
#include "net/guard.h"
#include "process/aside.h"

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

// The listening sockets in the network namespace of this thread.
std::vector<Row> listening() {
  std::vector<Row> out;
  for (const char* table : {"tcp", "tcp6"}) {
    const auto text = read_file(fmt::format("/proc/thread-self/net/{}", table), table_bytes_max);
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
      if (const auto inode = parse_int(words[9], 1, INT64_MAX)) {
        row.inode = static_cast<std::uint64_t>(*inode);
        out.push_back(row);
      }
    }
  }
  return out;
}

// A network namespace is identified by the inode of its file.
std::uint64_t identity_of(int network) {
  struct stat info {};
  return ::fstat(network, &info) == 0 ? info.st_ino : 0;
}
std::uint64_t our_network() {
  struct stat info {};
  return ::stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

// A socket that listens on any address is reached by loopback.
void make_reachable(Row& found) {
  unsigned char* bytes = found.address.sin6_addr.s6_addr;
  if (found.v4) {
    const unsigned char any[4] = {}, loopback[4] = {127, 0, 0, 1};
    if (std::memcmp(bytes, any, sizeof any) == 0)
      std::memcpy(bytes, loopback, sizeof loopback);
  } else if (IN6_IS_ADDR_UNSPECIFIED(&found.address.sin6_addr)) {
    found.address.sin6_addr = in6addr_loopback;
  }
}

// The target of a connection, as the system calls take it.
struct Target {
  sockaddr_storage address{};
  socklen_t length = 0;
};
Target target_of(const Row& socket) {
  Target out;
  if (!socket.v4) {
    out.length = sizeof(sockaddr_in6);
    std::memcpy(&out.address, &socket.address, out.length);
    return out;
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = socket.address.sin6_port;
  std::memcpy(&four.sin_addr, socket.address.sin6_addr.s6_addr, sizeof four.sin_addr);
  out.length = sizeof four;
  std::memcpy(&out.address, &four, sizeof four);
  return out;
}

// The same address with a port that the kernel chooses.
Target from_same_address(Target target) {
  if (target.address.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&target.address)->sin_port = 0;
  else
    reinterpret_cast<sockaddr_in6*>(&target.address)->sin6_port = 0;
  return target;
}

bool leads_to_cloud(const Target& target) {
  net::RawAddress raw{};
  raw.length = target.length;
  std::memcpy(raw.bytes, &target.address, std::min<std::size_t>(sizeof raw.bytes, target.length));
  return net::leads_to_the_machines_cloud(raw);
}

// A socket whose packets stay in its network namespace.
Result<Fd> inner_socket(const Target& target) {
  Fd fd(::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail_errno("socket", errno);
  constexpr char loopback[] = "lo";
  // Before Linux 5.7 only root may; then the check of the address alone must do.
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, loopback, sizeof loopback) != 0 &&
      (errno != EPERM || ::geteuid() == 0))
    return fail_errno("use the loopback device", errno);
  const int one = 1;  // the port is chosen by connect(), which can share it
  ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  const Target from = from_same_address(target);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from.address), from.length) != 0) {
    if (errno == EADDRNOTAVAIL)
      return fail(Code::forbidden, "the job listens on an address that this machine does not have");
    return fail_errno("bind", errno);
  }
  return fd;
}

// What is known of a process only while the pidfd shows that it lives.
bool lives(const Fd& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return process && ::poll(&ended, 1, 0) == 0;
}
Fd process_of(int pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

// One process that may have the socket, and the tables of namespaces that were read already.
class Search {
 public:
  explicit Search(const FindListener& wish) : wish_(wish), ours_(our_network()) {}

  std::optional<Listener> look_at(int pid) {
    Fd process = process_of(pid);
    Fd network(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (!process || !network)
      return std::nullopt;
    const std::vector<Row>& table = table_of(network);
    if (table.empty())
      return std::nullopt;
    const std::map<std::uint64_t, int> own = sockets_of(pid);
    for (const Row& row : table) {
      const auto held = own.find(row.inode);
      if (held == own.end())
        continue;
      // Everything above was this process's, and it is the job's.
      const std::vector<int> again = wish_.processes();
      if (std::find(again.begin(), again.end(), pid) == again.end() || !lives(process))
        return std::nullopt;
      Listener found{row, pid, held->second, std::move(process), {}};
      if (identity_of(network.get()) != ours_)
        found.network = std::move(network);
      make_reachable(found.socket);
      return found;
    }
    return std::nullopt;
  }

 private:
  // The sockets of the namespace on the port. Read inside the namespace: what /proc/PID/net shows
  // may be another one a moment later.
  const std::vector<Row>& table_of(const Fd& network) {
    const auto [at, fresh] = tables_.try_emplace(identity_of(network.get()));
    if (!fresh)
      return at->second;
    if (at->first == ours_) {
      at->second = listening();
    } else {
      (void)process::run_aside({.network = network.get(), .user = {}}, [&]() -> Status {
        at->second = listening();
        return {};
      });
    }
    std::erase_if(at->second, [&](const Row& row) { return row.port() != wish_.port; });
    return at->second;
  }

  const FindListener& wish_;
  std::uint64_t ours_;
  std::map<std::uint64_t, std::vector<Row>> tables_;
};

}  // namespace

std::vector<ListeningSocket> listening_here() {
  return listening();
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

Result<Listener> find_listener(const FindListener& wish) {
  Search search(wish);
  for (const int pid : wish.processes())
    if (auto found = search.look_at(pid))
      return std::move(*found);
  return fail(Code::not_found, fmt::format("the job does not listen on port {}", wish.port));
}

bool has_socket(int pid, int fd, std::uint64_t inode) {
  char target[64] = {};
  if (::readlink(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), target, sizeof target - 1) <= 0)
    return false;
  return target == fmt::format("socket:[{}]", inode);
}

bool still_listens(const Listener& listener) {
  return has_socket(listener.pid, listener.fd, listener.socket.inode) && lives(listener.process);
}

Result<Fd> begin_connect(const Listener& listener, const ConnectAs& as) {
  const Target target = target_of(listener.socket);
  if (leads_to_cloud(target))
    return fail(Code::forbidden,
                "the job listens on a link-local address or one that clouds use for their "
                "machines; let it listen on 127.0.0.1");
  Result<Fd> made = fail(Code::internal, "");
  const auto make = [&]() -> Status {
    made = inner_socket(target);
    return {};
  };
  const bool as_other = ::geteuid() == 0 && as.uid != 0;
  process::Aside aside;
  if (listener.network)
    aside.network = listener.network.get();
  if (as_other)
    aside.user = {as.uid, as.gid};
  if (listener.network || as_other)
    BILLOW_TRY_VOID(process::run_aside(aside, make));
  else
    BILLOW_TRY_VOID(make());
  Fd fd = BILLOW_TRY(std::move(made));
  pass_replica_guard(fd.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target.address), target.length) != 0 &&
      errno != EINPROGRESS)
    return fail_errno("connect", errno);
  return fd;
}

}  // namespace billow::agent
