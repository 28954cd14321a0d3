#include "agent/network/uplink.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/limits.h"

namespace billow::agent {
namespace {

constexpr std::size_t piece_bytes = 64 << 10;
constexpr int accepted_per_turn_max = 32;
constexpr int packets_per_turn_max = 64;
constexpr Duration flow_idle_max = seconds(60);
constexpr Duration accept_pause = milliseconds(200);  // where descriptors or memory are short
constexpr Duration look_every = seconds(10);
constexpr double begin_per_s = 100;  // new connections and flows
// The first connections have buffers that grow with their speed, the many that follow do not.
constexpr std::size_t fast_connections = 16, usual_connections = 128;

net::RawAddress name_of(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  net::RawAddress raw;
  socklen_t length = sizeof raw.bytes;
  if (get(fd, reinterpret_cast<sockaddr*>(raw.bytes), &length) == 0)
    raw.length = length;
  return raw;
}

// Bounds what the kernel holds for a connection whose job reads nothing, besides the limits of the
// uplink's control group: not every kernel counts such memory there.
void bound_buffers(int job, int out, std::size_t others) {
  constexpr int usual = 256 << 10, small = 64 << 10;
  const int bytes = others < usual_connections ? usual : small;
  for (const int fd : {job, out}) {
    if (fd == out && others < fast_connections)
      continue;
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
}

// The other side sees that the connection was refused, not that it ended well.
void reset(int fd) {
  const linger now{1, 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

in6_addr v6_form(const AddressBlock& address) {
  in6_addr out{};
  if (address.v6) {
    std::memcpy(&out, address.bytes.data(), 16);
  } else {
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(out.s6_addr + 12, address.bytes.data(), 4);
  }
  return out;
}

}  // namespace

bool is_jobs_own(const net::RawAddress& from) {
  static const AddressBlock loopback_v4{false, {127}, 8},
      loopback_v6{true, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128};
  const auto source = target_of(from);
  return source && (source->address == job_v4 || source->address == job_v6 ||
                    source->address.within(loopback_v4) || source->address.within(loopback_v6));
}

bool Uplink::may_begin() {
  const SteadyTime now = loop_.steady();
  const double gone_s = static_cast<double>((now - begin_counted_).ns) / 1e9;
  begin_tokens_ = std::min(uplink_begin_burst, begin_tokens_ + gone_s * begin_per_s);
  begin_counted_ = now;
  if (begin_tokens_ < 1)
    return false;
  begin_tokens_ -= 1;
  return true;
}

// ---- connections

// Two sockets, each with what it has still to send. Reading from one pauses while the other does
// not take its bytes.
struct Uplink::Pair {
  struct End {
    Fd fd;
    std::unique_ptr<net::FdWatch> watch;
    std::string pending;  // to be sent on this socket
    std::size_t sent = 0;
    bool ended = false;   // the peer sends nothing more
    bool closed = false;  // and is told that nothing more comes
  };
  End job, out;
  bool connecting = true;
  std::function<void()> on_end;

  void begin(net::Loop& loop) {
    job.watch = loop.watch(job.fd.get(), [this](bool, bool) { turn(); });
    out.watch = loop.watch(out.fd.get(), [this](bool, bool writable) {
      if (connecting && writable) {
        if (net::connect_error(out.fd.get()) != 0)
          return fail();
        connecting = false;
      }
      turn();
    });
    want();
  }
  void turn() {
    if (connecting)
      return;
    if (!carry(job, out) || !carry(out, job))
      return fail();
    if (job.closed && out.closed)
      return on_end();
    want();
  }

 private:
  void fail() {
    reset(job.fd.get());
    on_end();
  }
  void want() {
    job.watch->want(!connecting && out.pending.empty() && !job.ended, !job.pending.empty());
    out.watch->want(!connecting && job.pending.empty() && !out.ended,
                    connecting || !out.pending.empty());
  }
  // False: the connection is broken.
  static bool carry(End& from, End& to) {
    if (!flush(to))
      return false;
    if (to.pending.empty() && !from.ended) {
      to.pending.resize(piece_bytes);
      const ssize_t n = ::recv(from.fd.get(), to.pending.data(), piece_bytes, 0);
      const int error = errno;
      to.pending.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      to.sent = 0;
      if (n < 0 && error != EAGAIN && error != EINTR)
        return false;
      from.ended = n == 0;
      if (!flush(to))
        return false;
    }
    if (from.ended && to.pending.empty() && !to.closed) {
      to.closed = true;
      (void)::shutdown(to.fd.get(), SHUT_WR);
    }
    return true;
  }
  static bool flush(End& to) {
    while (!to.pending.empty()) {
      const ssize_t n = ::send(to.fd.get(), to.pending.data() + to.sent,
                               to.pending.size() - to.sent, MSG_NOSIGNAL);
      if (n < 0)
        return errno == EAGAIN || errno == EINTR;
      to.sent += static_cast<std::size_t>(n);
      if (to.sent == to.pending.size())
        to.pending.clear();
    }
    return true;
  }
};

void Uplink::listen() {
  connections_ = loop_.on_readable(uplink_fds::connections, [this] { accept(); });
}

void Uplink::accept() {
  for (int i = 0; i < accepted_per_turn_max; ++i) {
    Fd fd(::accept4(uplink_fds::connections, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        connections_.cancel();  // it would be ready again at once
        accept_again_ = loop_.after(accept_pause, [this] { listen(); });
      }
      return;
    }
    reset(fd.get());
    const auto target = target_of(name_of(fd.get(), ::getsockname));
    if (!target || !is_jobs_own(name_of(fd.get(), ::getpeername)) ||
        pairs_.size() >= limits::uplink_connections_max || !rules_.permits(*target) || !may_begin())
      continue;
    auto out = net::start_connect(target->raw());
    if (!out)
      continue;
    const linger usual{0, 0};
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &usual, sizeof usual);
    net::tune_tcp(fd.get());
    net::tune_tcp(out->get());
    bound_buffers(fd.get(), out->get(), pairs_.size());
    auto pair = std::make_unique<Pair>();
    pair->job.fd = std::move(fd);
    pair->out.fd = std::move(*out);
    pair->on_end = [this, id = ++next_] {
      ended(id);
    };
    Pair& begun = *(pairs_[next_] = std::move(pair));
    begun.begin(loop_);
  }
}

void Uplink::ended(std::uint64_t pair) {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end())
    return;
  // It may be on the stack: it goes after this callback, and its sockets are watched no more.
  found->second->job.watch->want(false, false);
  found->second->out.watch->want(false, false);
  loop_.post([this, pair] { pairs_.erase(pair); });
}

// ---- packets

struct Uplink::Flow {
  Fd fd;  // connected to the target
  net::RawAddress from;
  Target target;
  SteadyTime used;
  net::Watch watch;
};

void Uplink::receive() {
  static char payload[65536];
  for (int i = 0; i < packets_per_turn_max; ++i) {
    net::RawAddress from, meant;
    iovec piece{payload, sizeof payload};
    alignas(cmsghdr) char control[512];
    msghdr message{};
    message.msg_name = from.bytes;
    message.msg_namelen = sizeof from.bytes;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(uplink_fds::packets, &message, MSG_DONTWAIT);
    if (n < 0)
      return;
    from.length = message.msg_namelen;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
      const bool v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR;
      const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR;
      if (!v4 && !v6)
        continue;
      meant.length = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(meant.bytes, CMSG_DATA(c), meant.length);
    }
    const auto target = target_of(meant);
    if (!target || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || !is_jobs_own(from))
      continue;
    const std::string key =
        std::string(from.bytes, from.length) + std::string(meant.bytes, meant.length);
    if (Flow* flow = flow_for(key, from, *target))
      (void)!::send(flow->fd.get(), payload, static_cast<std::size_t>(n),
                    MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

Uplink::Flow* Uplink::flow_for(const std::string& key,
                               const net::RawAddress& from,
                               const Target& target) {
  if (const auto found = flows_.find(key); found != flows_.end()) {
    found->second->used = loop_.steady();
    return found->second.get();
  }
  if (!rules_.permits(target) || answering_socket(target.port) < 0 || !may_begin())
    return nullptr;
  if (flows_.size() >= limits::uplink_flows_max)
    flows_.erase(
        std::ranges::min_element(flows_, {}, [](const auto& flow) { return flow.second->used; }));
  const net::RawAddress to = target.raw();
  Fd fd(::socket(target.address.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(to.bytes), to.length) != 0)
    return nullptr;
  auto flow = std::make_unique<Flow>();
  flow->fd = std::move(fd);
  flow->from = from;
  flow->target = target;
  flow->used = loop_.steady();
  Flow* raw = flow.get();
  flow->watch = loop_.on_readable(raw->fd.get(), [this, raw] { answer(*raw); });
  flows_[key] = std::move(flow);
  return raw;
}

void Uplink::answer(Flow& flow) {
  static char payload[65536];
  const int socket = answering_socket(flow.target.port);
  for (int i = 0; i < packets_per_turn_max; ++i) {
    const ssize_t n = ::recv(flow.fd.get(), payload, sizeof payload, MSG_DONTWAIT);
    if (n < 0)
      return;  // nothing there, or the target refused
    flow.used = loop_.steady();
    iovec piece{payload, static_cast<std::size_t>(n)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
    msghdr message{};
    message.msg_name = flow.from.bytes;
    message.msg_namelen = flow.from.length;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = IPPROTO_IPV6;
    head->cmsg_type = IPV6_PKTINFO;
    head->cmsg_len = CMSG_LEN(sizeof(in6_pktinfo));
    in6_pktinfo source{};
    source.ipi6_addr = v6_form(flow.target.address);
    std::memcpy(CMSG_DATA(head), &source, sizeof source);
    (void)!::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

// A packet that comes back must come from the port that the job sent to, and a socket has one port.
int Uplink::answering_socket(std::uint16_t port) {
  if (const auto found = answering_.find(port); found != answering_.end())
    return found->second;
  if (answering_.size() >= limits::uplink_packet_ports_max)
    return -1;
  const int fd = uplink_fds::first_answer + static_cast<int>(answering_.size());
  const int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof on);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return -1;
  return answering_[port] = fd;
}

void Uplink::forget_idle() {
  const SteadyTime now = loop_.steady();
  std::erase_if(flows_, [&](const auto& flow) { return now - flow.second->used > flow_idle_max; });
}

Uplink::Uplink(net::Loop& loop, ReachRules rules)
    : loop_(loop), rules_(std::move(rules)), begin_counted_(loop.steady()) {
  life_ = loop_.on_readable(uplink_fds::life, [this] { loop_.stop(); });
  listen();
  packets_ = loop_.on_readable(uplink_fds::packets, [this] { receive(); });
  idle_ = loop_.every(look_every, [this] { forget_idle(); });
}

Uplink::~Uplink() = default;

void Uplink::run() {
  loop_.run();
}

}  // namespace billow::agent
