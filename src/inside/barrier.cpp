#include "inside/barrier.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::client {
namespace {

constexpr int hello_patience_ms = 2000;
constexpr int connect_patience_ms = 3000;
constexpr int retry_ms = 50;
constexpr std::size_t line_bytes_max = 400;

std::string proof(const Barrier& m, const char* what, std::int64_t of, std::string_view nonce) {
  return hmac_sha256_hex(m.key, fmt::format("{} {} {} {}", what, m.job, of, nonce));
}

// Empty if no line came in time.
std::string read_line(int fd, int ms) {
  std::string line;
  for (char c; line.size() < line_bytes_max && readable(fd, ms) && ::read(fd, &c, 1) == 1;) {
    if (c == '\n')
      return line;
    line += c;
  }
  return {};
}

// At the address the others know. If this machine does not have that address (it is behind a
// translator), at all its addresses.
Result<Fd> listen_here(const Barrier& m) {
  int why = EADDRNOTAVAIL;
  for (const char* host : {m.address.c_str(), static_cast<const char*>(nullptr)}) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (::getaddrinfo(host, m.port.c_str(), &hints, &found) != 0)
      continue;
    Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd)
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool bound = fd && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(fd.get(), 4096) == 0;
    why = errno;
    ::freeaddrinfo(found);
    if (bound)
      return fd;
    if (why == EADDRINUSE)
      return fail(Code::conflict,
                  fmt::format("port {} of the start barrier is in use on the first node", m.port));
  }
  return fail_errno("start barrier", why);
}

std::unexpected<Error> incomplete(const Barrier& m, const std::vector<Fd>& others) {
  std::string missing;
  for (std::int64_t rank = 1; rank < m.nodes; ++rank)
    if (!others[static_cast<std::size_t>(rank)])
      missing += (missing.empty() ? "" : ", ") + fmt::format("rank {} ({})", rank, m.name_of(rank));
  return fail(Code::timed_out, fmt::format("the gang is not complete: {} did not come", missing),
              fmt::format("check that these nodes can reach {} port {}", m.address, m.port));
}

// Connects, or says in errno why not.
Fd connect_to(const addrinfo& address, int patience_ms) {
  Fd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fd;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0)
    return fd;
  if (errno != EINPROGRESS)
    return Fd();
  pollfd p{fd.get(), POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (::poll(&p, 1, patience_ms) > 0)
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0)
    return fd;
  fd.reset();
  errno = error;
  return fd;
}

// One try. On failure `trouble` says why.
Fd try_to_meet(const Barrier& m, std::string& trouble) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int rc = ::getaddrinfo(m.address.c_str(), m.port.c_str(), &hints, &found); rc != 0) {
    trouble = ::gai_strerror(rc);
    return Fd();
  }
  Fd fd = connect_to(*found, std::min(m.left_ms(), connect_patience_ms));
  const int error = errno;
  ::freeaddrinfo(found);
  if (!fd) {
    trouble = ::strerror(error);
    return fd;
  }
  ::fcntl(fd.get(), F_SETFL, 0);
  const std::string nonce = random_token(12), hello = m.hello(nonce);
  (void)::send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  if (read_line(fd.get(), m.left_ms()) + "\n" == m.answer(m.rank, nonce))
    return fd;
  trouble = "the first node gave up, or another program answers there";
  return Fd();
}

}  // namespace

bool readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, ms) > 0;
}

std::string Barrier::name_of(std::int64_t of) const {
  return static_cast<std::size_t>(of) < names.size() ? names[static_cast<std::size_t>(of)]
                                                     : fmt::format("node {}", of);
}

std::string Barrier::hello(const std::string& nonce) const {
  return key.empty() ? fmt::format("billow {} {}\n", job, rank)
                     : fmt::format("billow {} {} {} {}\n", job, rank, nonce,
                                   proof(*this, "hello", rank, nonce));
}

std::string Barrier::answer(std::int64_t to, const std::string& nonce) const {
  return key.empty() ? "go\n" : fmt::format("go {}\n", proof(*this, "go", to, nonce));
}

std::optional<std::pair<std::int64_t, std::string>> Barrier::greeted(
    const std::string& line) const {
  const auto words = split(line, ' ');
  if (words.size() != (key.empty() ? 3u : 5u) || words[0] != "billow" || words[1] != job)
    return std::nullopt;
  const auto who = parse_int(words[2], 1, nodes - 1);
  if (!who ||
      (!key.empty() && !equal_constant_time(words[4], proof(*this, "hello", *who, words[3]))))
    return std::nullopt;
  return std::pair(*who, answer(*who, key.empty() ? "" : words[3]));
}

int Barrier::left_ms() const {
  return static_cast<int>(std::max<std::int64_t>(0, (deadline - system_clock().steady()).ms()));
}

Result<Fd> meet_as_first(const Barrier& m, std::vector<Fd>& others) {
  Fd listener = BILLOW_TRY(listen_here(m));
  if (m.repairs > 0)
    return listener;  // it takes a lost member's place: the others have begun
  others = std::vector<Fd>(static_cast<std::size_t>(m.nodes));
  std::vector<std::string> answers(others.size());
  std::int64_t missing = m.nodes - 1;
  while (missing > 0) {
    if (!readable(listener.get(), m.left_ms()))
      return incomplete(m, others);
    Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer)
      continue;
    const auto who = m.greeted(read_line(peer.get(), hello_patience_ms));
    if (!who)
      continue;
    Fd& place = others[static_cast<std::size_t>(who->first)];
    if (!place)
      --missing;
    place = std::move(peer);
    answers[static_cast<std::size_t>(who->first)] = who->second;
  }
  for (std::size_t i = 0; i < others.size(); ++i)
    if (others[i])
      (void)::send(others[i].get(), answers[i].data(), answers[i].size(), MSG_NOSIGNAL);
  return m.repairs < 0 ? Fd() : std::move(listener);
}

Result<Fd> meet_as_other(const Barrier& m) {
  std::string trouble = "nothing listens there";
  while (m.left_ms() > 0) {
    if (Fd fd = try_to_meet(m, trouble))
      return fd;
    ::poll(nullptr, 0, retry_ms);
  }
  return fail(
      Code::timed_out,
      fmt::format("rank {} cannot reach the first node ({}) at {} port {}: {}", m.rank,
                  m.name_of(0), m.address, m.port, trouble),
      "the nodes of a gang must reach each other: check their firewalls and `billow nodes`");
}

void admit_latecomer(const Barrier& m, const Fd& listener) {
  const Fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer)
    return;
  if (const auto who = m.greeted(read_line(peer.get(), hello_patience_ms)))
    (void)::send(peer.get(), who->second.data(), who->second.size(), MSG_NOSIGNAL);
}

}  // namespace billow::client
