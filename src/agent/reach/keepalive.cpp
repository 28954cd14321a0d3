#include "agent/reach/keepalive.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace billow::agent {
namespace {

constexpr std::size_t peers_max = 64;
constexpr std::size_t line_max = 512;
constexpr int accepted_per_turn_max = 16;  // the rest waits in the queue of the socket

}  // namespace

struct KeepAliveSocket::Peer {
  Fd fd;
  SocketPeer who;
  std::string line;
  net::Watch watch;
  bool done = false;
};

KeepAliveSocket::KeepAliveSocket(net::Loop& loop, Fd listener, Admits admits, Ask ask)
    : loop_(loop), fd_(std::move(listener)), admits_(std::move(admits)), ask_(std::move(ask)) {
  watch_ = loop_.on_readable(fd_.get(), [this] { accept(); });
}
KeepAliveSocket::~KeepAliveSocket() = default;

void KeepAliveSocket::accept() {
  std::erase_if(peers_, [](const auto& peer) { return peer->done; });
  for (int i = 0; i < accepted_per_turn_max; ++i) {
    Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd)
      return;
    auto who = peer_of(fd.get());
    if (!who || !admits_(*who))
      continue;
    if (peers_.size() >= peers_max)
      peers_.erase(peers_.begin());
    auto peer = std::make_unique<Peer>();
    peer->fd = std::move(fd);
    peer->who = std::move(*who);
    Peer* raw = peer.get();
    peer->watch = loop_.on_readable(raw->fd.get(), [this, raw] { read(*raw); });
    peers_.push_back(std::move(peer));
  }
}

void KeepAliveSocket::read(Peer& peer) {
  if (peer.done)
    return;
  char buffer[line_max];
  const ssize_t n = ::read(peer.fd.get(), buffer, sizeof buffer);
  if (n > 0)
    peer.line.append(buffer, static_cast<std::size_t>(n));
  const auto end = peer.line.find('\n');
  if (n > 0 && end == std::string::npos && peer.line.size() < line_max)
    return;
  peer.done = true;
  if (end != std::string::npos) {
    const auto blank = peer.line.find(' ');
    const auto lasts = parse_int(peer.line.substr(0, std::min(blank, end)), 1, 30 * 86400);
    const std::string reason = blank < end ? peer.line.substr(blank + 1, end - blank - 1) : "";
    const Result<Duration> kept =
        lasts ? ask_(peer.who, seconds(*lasts), reason) : Result<Duration>(pass(lasts.error()));
    const std::string answer = kept ? fmt::format("ok {}\n", kept->ns / 1'000'000'000)
                                    : fmt::format("error {}\n", kept.error().message);
    (void)!::send(peer.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  }
  ::shutdown(peer.fd.get(), SHUT_RDWR);
  peer.watch.cancel();
}

}  // namespace billow::agent
