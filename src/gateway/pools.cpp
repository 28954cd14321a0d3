// Replicas as the proxies see them, and the connections to them. A connection belongs to the loop
// that has opened it; an idle one is used again by requests of that loop only.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "gateway/http2.h"

namespace billow::gateway {
namespace {

// More idle connections than `gateway_idle_per_replica_max` are kept for a moment: with that many
// requests at once, closing and opening connections costs more than the requests themselves.
constexpr std::size_t idle_surplus_max = 4'096;
constexpr Duration idle_surplus_life = seconds(2);

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// Whether this descriptor is a connection to the address, and neither end has closed it. Its loop
// may close it at any time, and its number may then belong to something else.
bool is_connection_to(int fd, const net::RawAddress& address) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || size != address.length ||
      std::memcmp(&peer, address.bytes, size) != 0)
    return false;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

Upstream::Upstream() : serial(next_serial()) {}

Result<std::shared_ptr<Upstream>> Upstream::create(ReplicaKey key, const std::string& address) {
  auto out = std::make_shared<Upstream>();
  out->key = key;
  out->name = address;
  const auto parsed = BILLOW_TRY(net::parse_address(address));
  const auto found = BILLOW_TRY(net::resolve(parsed));
  if (found.empty())
    return fail(Code::unavailable, address + " has no address");
  out->address = found.front();
  return out;
}

void Upstream::close() {
  std::vector<std::function<void()>> told;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    told = std::exchange(on_close_, {});
  }
  for (const auto& fn : told)
    fn();
}

void Upstream::on_close(std::function<void()> fn) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      on_close_.push_back(std::move(fn));
      return;
    }
  }
  fn();
}

void Upstream::opened(int fd) {
  const std::lock_guard lock(mutex_);
  sockets_.push_back(fd);
}

void Upstream::left(int fd) {
  const std::lock_guard lock(mutex_);
  if (const auto found = std::ranges::find(sockets_, fd); found != sockets_.end())
    sockets_.erase(found);
}

bool Upstream::has_open_socket() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(sockets_, [&](int fd) { return is_connection_to(fd, address); });
}

// ---- the connections of one loop

void Proxy::Pool::close() {
  for (const auto& back : std::exchange(idle, {}))
    back->close();
  for (const auto& connection : std::exchange(http2, {}))
    connection->retire();
}

Proxy::Pool& Proxy::pool_of(const std::shared_ptr<Upstream>& upstream) {
  const auto [at, fresh] = pools_.try_emplace(upstream->serial);
  if (!fresh)
    return at->second;
  at->second.of = upstream;
  upstream->on_close([this, serial = upstream->serial, alive = std::weak_ptr(alive_)] {
    if (alive.expired())
      return;
    run_here([this, serial] {
      if (const auto found = pools_.find(serial); found != pools_.end())
        found->second.close();
    });
  });
  return at->second;
}

void Proxy::sweep_pools(SteadyTime now) {
  for (auto& [serial, pool] : pools_) {
    // The last one is used first, so the first ones are those that were not needed for longest.
    std::size_t surplus = pool.idle.size() > limits::gateway_idle_per_replica_max
                              ? pool.idle.size() - limits::gateway_idle_per_replica_max
                              : 0;
    std::erase_if(pool.idle, [&](const auto& back) {
      const Duration unused = now - back->idle_since;
      const bool too_many = surplus > 0 && unused >= idle_surplus_life;
      if (back->open() && unused < limits::client_idle_timeout && !too_many)
        return false;
      surplus -= surplus > 0;
      back->close();
      return true;
    });
    std::erase_if(pool.http2, [&](const auto& connection) {
      if (!connection->expired(now))
        return false;
      connection->retire();
      return true;
    });
  }
  for (auto at = pools_.begin(); at != pools_.end();) {
    if (!at->second.of.expired()) {
      ++at;
      continue;
    }
    at->second.close();
    at = pools_.erase(at);
  }
}

Result<net::Transport> Proxy::dial(const Upstream& upstream, bool http2) {
  auto fd = BILLOW_TRY(net::start_connect(upstream.address));
  if (!upstream.tls)
    return net::Transport(std::move(fd));
  return net::Transport::with_tls(std::move(fd), upstream.tls,
                                  net::parse_address(upstream.name).value_or(net::Address{}).host,
                                  http2);
}

// One connection carries as many requests as the replica allows; then another is opened.
std::shared_ptr<Back> Proxy::connect_http2(const std::shared_ptr<Upstream>& upstream,
                                           std::string& why) {
  Pool& pool = pool_of(upstream);
  std::erase_if(pool.http2, [](const auto& connection) { return !connection->usable(); });
  for (const auto& connection : pool.http2)
    if (connection->has_room())
      return connection->new_request(loop_.steady());
  auto transport = dial(*upstream, true);
  if (!transport) {
    why = transport.error().message;
    return nullptr;
  }
  auto connection = std::make_shared<Http2Back>(loop_, std::move(*transport));
  connection->start();
  pool.http2.push_back(connection);
  return connection->new_request(loop_.steady());
}

std::shared_ptr<Back> Proxy::connect(const std::shared_ptr<Upstream>& upstream,
                                     bool http2,
                                     std::string& why) {
  if (http2)
    return connect_http2(upstream, why);
  auto& idle = pool_of(upstream).idle;
  while (!idle.empty()) {
    auto back = std::move(idle.back());
    idle.pop_back();
    if (back->open() && !back->stale())
      return back;
    back->close();
  }
  auto transport = dial(*upstream, false);
  if (!transport) {
    why = transport.error().message;
    return nullptr;
  }
  auto back = std::make_shared<Back>(*this, std::move(*transport), alone_ ? nullptr : upstream);
  back->stream().start();
  return back;
}

void Proxy::keep(const std::shared_ptr<Upstream>& upstream, std::shared_ptr<Back> back) {
  if (!back->open() || stopping_ || upstream->closed())
    return back->close();
  auto& idle = pool_of(upstream).idle;
  if (idle.size() >= limits::gateway_idle_per_replica_max + idle_surplus_max)
    return back->close();
  back->set_paused(false);
  back->idle_since = loop_.steady();
  idle.push_back(std::move(back));
}

bool Proxy::has_connection(const Upstream& upstream, const Front& but) const {
  const auto pool = pools_.find(upstream.serial);
  if (pool != pools_.end() &&
      std::ranges::any_of(pool->second.idle, [](const auto& back) { return back->alive(); }))
    return true;
  return std::ranges::any_of(fronts_,
                             [&](const auto& each) {
                               return each.first != &but && each.second->holds_connection(upstream);
                             }) ||
         (!alone_ && upstream.has_open_socket());
}

void Proxy::give_up(const Upstream& upstream) {
  const auto all = fronts_;
  for (const auto& [key, front] : all)
    front->give_up(upstream);
}

}  // namespace billow::gateway
