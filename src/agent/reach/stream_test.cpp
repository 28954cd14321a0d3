#include "agent/reach/stream_test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "net/blocking_io.h"

namespace billow::agent {
namespace {

constexpr Duration listens_for = seconds(20);
constexpr int io_patience_s = 5;
constexpr int streams = 4;  // one connection is limited by one core on either side
constexpr int pings = 200;
constexpr std::size_t piece_bytes = 256 << 10;
constexpr std::size_t connections_max = 16;
constexpr char mode_sink = 'S', mode_echo = 'E', granted = '+';

// Compares in constant time, so that the time does not reveal how much matches.
bool same(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

void serve_one(Fd fd, const std::string& secret) {
  net::set_timeouts(fd.get(), io_patience_s);
  std::string shown(secret.size(), '\0');
  char mode = 0;
  if (!net::receive_all(fd.get(), shown.data(), shown.size()) || !same(shown, secret) ||
      !net::receive_all(fd.get(), &mode, 1) || !net::send_all(fd.get(), {&granted, 1}))
    return;
  if (mode == mode_echo) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (char ping[64]; net::receive_all(fd.get(), ping, sizeof ping) &&
                        net::send_all(fd.get(), {ping, sizeof ping});) {}
    return;
  }
  std::vector<char> piece(piece_bytes);
  std::uint64_t total = 0;
  for (ssize_t got; (got = ::recv(fd.get(), piece.data(), piece.size(), 0)) != 0;) {
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return;
    total += static_cast<std::uint64_t>(got);
  }
  net::send_all(fd.get(), {reinterpret_cast<const char*>(&total), sizeof total});
}

Result<Fd> connect_to(const StreamTarget& target, char mode) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (const int error = ::getaddrinfo(target.address.c_str(), std::to_string(target.port).c_str(),
                                      &hints, &found);
      error != 0)
    return fail(Code::unavailable, fmt::format("{}: {}", target.address, ::gai_strerror(error)));
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd)
    net::set_timeouts(fd.get(), io_patience_s);
  const bool connected = fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  ::freeaddrinfo(found);
  if (!connected)
    return fail(Code::unavailable,
                fmt::format("{} cannot be reached at port {}: {}", target.address, target.port,
                            std::strerror(error == EINPROGRESS ? ETIMEDOUT : error)),
                "gangs need nodes that reach each other: check for a firewall between them");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  char answer = 0;
  const std::string greeting = target.secret + mode;
  if (!net::send_all(fd.get(), greeting) || !net::receive_all(fd.get(), &answer, 1) ||
      answer != granted)
    return fail(Code::unavailable,
                fmt::format("{} accepted the connection and closed it", target.address));
  return fd;
}

Result<std::int64_t> latency_us(const StreamTarget& target) {
  const Fd fd = BILLOW_TRY(connect_to(target, mode_echo));
  std::vector<std::int64_t> took;
  char ping[64] = "billow";
  const SteadyTime end = system_clock().steady() + seconds(2);
  for (int i = 0; i < pings && system_clock().steady() < end; ++i) {
    const SteadyTime began = system_clock().steady();
    if (!net::send_all(fd.get(), {ping, sizeof ping}) ||
        !net::receive_all(fd.get(), ping, sizeof ping))
      return fail(Code::unavailable, "the connection was lost");
    took.push_back((system_clock().steady() - began).ns / 1000);
  }
  std::nth_element(took.begin(), took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2),
                   took.end());
  return took[took.size() / 2];
}

struct Leg {
  std::uint64_t bytes = 0;
  bool broke = false;
};

void push(const Fd& fd, SteadyTime end, Leg& leg) {
  const std::vector<char> piece(piece_bytes, 'b');
  while (system_clock().steady() < end)
    if (!net::send_all(fd.get(), {piece.data(), piece.size()}))
      return void(leg.broke = true);
  ::shutdown(fd.get(), SHUT_WR);
  // Count bytes that have arrived, not bytes in this kernel's buffers.
  leg.broke = !net::receive_all(fd.get(), &leg.bytes, sizeof leg.bytes);
}

std::string interface_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return "";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return "";
  std::string name;
  for (const ifaddrs* at = list; at && name.empty(); at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != own.ss_family)
      continue;
    const bool v4 = own.ss_family == AF_INET &&
                    reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr ==
                        reinterpret_cast<const sockaddr_in*>(&own)->sin_addr.s_addr;
    const bool v6 = own.ss_family == AF_INET6 &&
                    std::memcmp(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr,
                                &reinterpret_cast<const sockaddr_in6*>(&own)->sin6_addr, 16) == 0;
    if (v4 || v6)
      name = at->ifa_name;
  }
  ::freeifaddrs(list);
  return name;
}

// Asks the interface itself: /sys may show the interfaces of another network namespace.
std::int64_t speed_mbit_s(int fd, const std::string& interface) {
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(fd, SIOCETHTOOL, &request) == 0) {
    const std::uint32_t speed = ethtool_cmd_speed(&settings);
    return speed == 0 || speed == 0xFFFF || speed == 0xFFFFFFFF ? 0
                                                                : static_cast<std::int64_t>(speed);
  }
  const auto text = read_file("/sys/class/net/" + interface + "/speed", 64);
  return text ? parse_int(trim(*text), 1, 100'000'000).value_or(0) : 0;
}

}  // namespace

Result<std::unique_ptr<StreamListener>> StreamListener::open(const std::string& address,
                                                             std::string secret) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  if (const int error = ::getaddrinfo(address.c_str(), "0", &hints, &found); error != 0)
    return fail(Code::invalid, fmt::format("\"{}\" is not an address of this machine: {}", address,
                                           ::gai_strerror(error)));
  auto out = std::unique_ptr<StreamListener>(new StreamListener);
  out->socket_ = Fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool bound = out->socket_ &&
                     ::bind(out->socket_.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                     ::listen(out->socket_.get(), streams + 1) == 0;
  const int error = errno;
  ::freeaddrinfo(found);
  if (!bound)
    return fail(Code::unavailable,
                fmt::format("cannot listen on {}: {}", address, std::strerror(error)),
                "check that it is an address of this machine, not of a router in front of it");
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(out->socket_.get(), reinterpret_cast<sockaddr*>(&own), &size);
  out->port_ = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
  out->wake_ = Fd(::eventfd(0, EFD_CLOEXEC));
  out->secret_ = std::move(secret);
  out->thread_ = std::thread([raw = out.get()] { raw->serve(); });
  return out;
}

StreamListener::~StreamListener() {
  closing_ = true;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable())
    thread_.join();
}

void StreamListener::serve() {
  const SteadyTime end = system_clock().steady() + listens_for;
  std::vector<std::thread> serving;
  while (!closing_ && serving.size() < connections_max) {
    const Duration left = end - system_clock().steady();
    if (left.ns <= 0)
      break;
    pollfd fds[2] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(left.ms() + 1));
    Fd peer(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer)
      serving.emplace_back(
          [fd = std::move(peer), this]() mutable { serve_one(std::move(fd), secret_); });
  }
  socket_.reset();
  for (std::thread& thread : serving)
    thread.join();  // each ends after its timeout
}

Result<StreamFigures> run_stream_test(const StreamTarget& target) {
  StreamFigures figures;
  figures.latency_us = BILLOW_TRY(latency_us(target));
  std::vector<Fd> ways;
  ways.reserve(streams);
  for (int i = 0; i < streams; ++i)
    ways.push_back(BILLOW_TRY(connect_to(target, mode_sink)));
  figures.interface = interface_of(ways.front().get());
  std::vector<Leg> legs(ways.size());
  std::vector<std::thread> threads;
  threads.reserve(ways.size());
  const SteadyTime began = system_clock().steady(), end = began + target.lasts;
  for (std::size_t i = 0; i < ways.size(); ++i)
    threads.emplace_back([&, i] { push(ways[i], end, legs[i]); });
  for (std::thread& thread : threads)
    thread.join();
  const Duration took = system_clock().steady() - began;
  std::uint64_t bytes = 0;
  for (const Leg& leg : legs) {
    if (leg.broke)
      return fail(Code::unavailable, fmt::format("the connection to {} was lost", target.address));
    bytes += leg.bytes;
  }
  figures.mbit_s = static_cast<std::int64_t>(static_cast<double>(bytes) * 8 / 1e6 / took.seconds());
  if (!figures.interface.empty())
    figures.interface_mbit_s = speed_mbit_s(ways.front().get(), figures.interface);
  return figures;
}

// "400 Gb/sec (4X NDR)", for each port.
std::int64_t infiniband_mbit_s(const std::string& root) {
  std::int64_t best = 0;
  const auto names = [](const std::string& path) {
    std::vector<std::string> out;
    if (DIR* dir = ::opendir(path.c_str())) {
      while (const dirent* entry = ::readdir(dir))
        if (entry->d_name[0] != '.')
          out.emplace_back(entry->d_name);
      ::closedir(dir);
    }
    return out;
  };
  const std::string base = root + "/class/infiniband";
  for (const std::string& device : names(base))
    for (const std::string& port : names(base + "/" + device + "/ports")) {
      const auto text = read_file(base + "/" + device + "/ports/" + port + "/rate", 64);
      if (!text)
        continue;
      const auto number =
          parse_int(std::string_view(*text).substr(0, text->find_first_of(" .")), 1, 100'000);
      if (number)
        best = std::max(best, *number * 1000);
    }
  return best;
}

}  // namespace billow::agent
