// The replica's side of the proxy, and the listeners.
#include <fcntl.h>
#include <sys/socket.h>

#include <ctime>

#include "base/log.h"
#include "gateway/http2.h"

namespace billow::gateway {
namespace {
constexpr int accepts_per_wakeup_max = 64;
constexpr Duration accept_pause = milliseconds(100);

// Callers of endpoints are strangers to the gateway. One address may be a proxy with many clients
// behind it, so it may have most of the connections, but never all of them.
net::ServerLimits limits_of(const Proxy::Options& options) {
  net::ServerLimits limits;
  limits.connections_max = limits.strangers_max = options.connections_max;
  limits.unix_reserve = limits.nodes_reserve = 0;
  limits.per_peer.connections_max = std::max<std::size_t>(1, options.connections_max / 4 * 3);
  return limits;
}

void refuse_connection(int fd) {
  static constexpr std::string_view busy =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: "
      "1\r\nContent-Length: 0\r\n\r\n";
  [[maybe_unused]] const auto sent =
      ::send(fd, busy.data(), busy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}
}  // namespace

Back::Back(Proxy& proxy, net::Transport transport, std::shared_ptr<Upstream> counted)
    : counted_(std::move(counted)) {
  stream_ = std::make_shared<net::Stream>(proxy.loop(), std::move(transport), this);
  connecting_since = proxy.loop().steady();
  if (counted_)
    counted_->opened(counted_fd_ = stream_->fd());
}

Back::~Back() {
  leave_upstream();
  if (stream_)
    stream_->close();
}

void Back::leave_upstream() {
  if (const auto upstream = std::exchange(counted_, nullptr))
    upstream->left(counted_fd_);
}

void Back::close() {
  front_ = nullptr;
  leave_upstream();
  stream_->close();
}

void Back::serve(Front* front, bool head_only, bool upgrade) {
  front_ = front;
  head_only_ = head_only;
  upgrade_ = upgrade;
  head_seen_ = false;
  written_before_ = stream_->bytes_written();
  parser_.emplace(net::HttpParser::Kind::response);
  if (head_only_)
    parser_->expect_no_body();
}

void Back::send_request(std::string_view body, bool end) {
  static thread_local std::string head;
  head.clear();
  write_request_head(head, *front_);
  send_pieces(head, body, end);
}

void Back::send_body(std::string_view data, bool end) {
  send_pieces({}, data, end);
}

void Back::send_pieces(std::string_view head, std::string_view data, bool end) {
  if (!front_->head().chunked)
    return stream_->send_views({head, data});
  char size[24];
  const auto start = data.empty() ? std::string_view() : chunk_start(data.size(), size);
  stream_->send_views({head, start, data, data.empty() ? "" : "\r\n", end ? "0\r\n\r\n" : ""});
}

void Back::set_paused(bool paused) {
  if (paused == paused_)
    return;
  paused_ = paused;
  if (paused)
    stream_->pause_reading();
  else
    stream_->resume_reading();
}

void Back::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  if (!front_)
    return close();  // unsolicited data: the connection is not safe for another request
  const auto front = front_->shared_from_this();
  if (tunnel_)
    return front->tunnel_data(data);
  std::string joined;
  if (!pending_.empty()) {
    joined = std::exchange(pending_, {});
    joined.append(data);
    data = joined;
  }
  std::size_t used = 0;
  while (front_ && used < data.size()) {
    const auto step = parser_->feed(data.substr(used));
    if (!step)
      return lost(fmt::format("its answer is not valid HTTP: {}", step.error().message));
    used += step->consumed;
    if (!head_seen_ && parser_->head_done()) {
      auto& head = parser_->head();
      if (head.status == 101 && upgrade_) {
        tunnel_ = true;
        front->tunnel_open(head);
        if (used < data.size() && front_)
          front->tunnel_data(data.substr(used));
        return;
      }
      if (head.status == 101)
        return lost("it switched protocols without a request");
      if (head.status < 200) {  // interim; the final answer follows
        parser_.emplace(net::HttpParser::Kind::response);
        if (head_only_)
          parser_->expect_no_body();
        continue;
      }
      head_seen_ = true;
      front->answer_head(head, parser_->body_until_close());
    }
    if (!step->body.empty())
      front->answer_body(step->body);
    if (front_ && head_seen_ && parser_->done()) {
      const bool reusable = parser_->head().keep_alive && used == data.size() && stream_->open() &&
                            stream_->queued() == 0;
      return front->answer_done(reusable);
    }
    if (step->consumed == 0)
      break;
  }
  if (!front_)
    return;
  if (used < data.size())
    pending_.assign(data.substr(used));
  front->back_drained();
}

void Back::stream_eof() {
  const auto keep = shared_from_this();
  if (!front_)
    return close();
  const auto front = front_->shared_from_this();
  if (head_seen_ && parser_->finish())
    return front->answer_done(false);
  lost(tunnel_ ? "" : "it closed the connection before it answered");
}

void Back::stream_failed(std::string reason) {
  const auto keep = shared_from_this();
  if (front_)
    lost(reason);
}

void Back::lost(const std::string& why) {
  if (!front_)
    return;
  front_->shared_from_this()->back_failed(why, stream_->bytes_written() > written_before_);
}

void Back::stream_drained() {
  if (!front_)
    return;
  const auto front = front_->shared_from_this();
  front->body_drained();
}

// ---- the proxy

struct Proxy::Listening {
  std::string asked;
  net::Listener listener;
  net::Watch watch;
};

Proxy::Proxy(net::Loop& loop, Options options, ProxyHost& host)
    : loop_(loop), options_(std::move(options)), host_(host), alone_(options_.threads <= 1) {}

Result<std::unique_ptr<Proxy>> Proxy::create(net::Loop& loop, Options options, ProxyHost& host) {
  auto out = std::unique_ptr<Proxy>(new Proxy(loop, std::move(options), host));
  out->admission_ = std::make_shared<net::Admission>(
      limits_of(out->options_),
      out->alone_ ? net::Admission::Threads::one : net::Admission::Threads::several);
  BILLOW_TRY_VOID(out->listen());
  out->begin_sweeps();
  return out;
}

std::unique_ptr<Proxy> Proxy::beside(net::Loop& loop, Proxy& first) {
  auto out = std::unique_ptr<Proxy>(new Proxy(loop, first.options_, first.host_));
  out->admission_ = first.admission_;
  out->tls_ = first.tls_;
  out->begin_sweeps();
  if (first.dealt_to_.empty())
    first.dealt_to_.push_back(&first);
  first.dealt_to_.push_back(out.get());
  return out;
}

Proxy::~Proxy() {
  alive_.reset();
  listening_.clear();
  undecided_.clear();
  const auto all = fronts_;
  for (const auto& [key, front] : all)
    front->close();
  const auto connections = http2_;
  for (const auto& [key, connection] : connections)
    connection->close();
  for (auto& [serial, pool] : pools_)
    pool.close();
}

void Proxy::run_here(std::function<void()> fn) {
  if (on_own_thread())
    return fn();
  loop_.post([alive = std::weak_ptr(alive_), fn = std::move(fn)] {
    if (!alive.expired())
      fn();
  });
}

Status Proxy::listen() {
  options_.tls.http2 = true;
  if (!options_.tls.cert_path.empty())
    tls_ = BILLOW_TRY(net::TlsContext::server(options_.tls));
  for (const auto& text : options_.listen) {
    auto item = std::make_unique<Listening>();
    const auto handed = std::ranges::find_if(options_.handed, [&](const HandedListener& each) {
      return each.asked == text || each.bound == text;
    });
    if (handed != options_.handed.end())
      item->listener = {std::move(*handed->fd), BILLOW_TRY(net::parse_address(handed->bound))};
    else
      item->listener = BILLOW_TRY(net::listen_on(BILLOW_TRY(net::parse_address(text))));
    item->asked = text;
    item->watch =
        loop_.on_readable(item->listener.fd.get(), [this, at = item.get()] { accept_some(*at); });
    listening_.push_back(std::move(item));
  }
  options_.handed.clear();
  return {};
}

void Proxy::begin_sweeps() {
  const auto shortest =
      std::min({options_.idle_timeout, options_.header_timeout, options_.body_idle_timeout,
                options_.write_stall_timeout, options_.connect_timeout});
  sweep_timer_ = loop_.every(std::clamp(shortest / 4, milliseconds(5), milliseconds(500)),
                             [this] { sweep(); });
}

void Proxy::accept_some(Listening& listening) {
  for (int i = 0; i < accepts_per_wakeup_max; ++i) {
    Fd fd(::accept4(listening.listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        log_error("cannot accept connections: {}; raise the limit of open files",
                  ::strerror(errno));
        listening.watch.cancel();
        accept_again_ = loop_.after(accept_pause, [this] {
          for (auto& each : listening_)
            if (!each->watch)
              each->watch = loop_.on_readable(each->listener.fd.get(),
                                              [this, at = each.get()] { accept_some(*at); });
        });
      }
      return;
    }
    const Place place = admission_->enter(net::peer_at(fd.get()), loop_.steady());
    if (!place)
      refuse_connection(fd.get());
    else
      deal({std::move(fd), place},
           listening.listener.bound.is_unix() || (!tls_ && options_.trusted.empty()));
  }
}

// `sorted`: it comes without TLS and without the word of a proxy.
void Proxy::deal(Accepted accepted, bool sorted) {
  if (dealt_to_.empty())
    return take(std::move(accepted), sorted);
  Proxy* to = dealt_to_[next_dealt_++ % dealt_to_.size()];
  if (to == this)
    return take(std::move(accepted), sorted);
  ++to->coming_;
  to->loop_.post([to, sorted, dealt = std::make_shared<Accepted>(std::move(accepted))] {
    to->take(std::move(*dealt), sorted);
    --to->coming_;
  });
}

void Proxy::take(Accepted accepted, bool sorted) {
  if (sorted)
    serve(std::move(accepted), nullptr);
  else
    sort_out(std::move(accepted));
}

void Proxy::count() {
  held_ = fronts_.size() + http2_.size() + undecided_.size();
}

// The first byte decides: a TLS handshake begins with 22, a request with a letter. It has usually
// arrived with the connection.
void Proxy::sort_out(Accepted accepted) {
  if (sort(accepted))
    return;
  const int number = accepted.fd.get();
  accepted.place->wait_with([this, number, place = std::weak_ptr(accepted.place)] {
    run_here([this, number, place] {
      // The number may be another connection's by now.
      const auto found = undecided_.find(number);
      if (found != undecided_.end() && found->second.accepted.place == place.lock())
        undecided_.erase(found);
      count();
    });
  });
  auto& waiting = undecided_[number];
  waiting = {std::move(accepted), loop_.steady(), {}};
  count();
  waiting.watch = loop_.on_readable(number, [this, number] {
    auto node = undecided_.extract(number);
    if (node.empty())
      return;
    node.mapped().watch.cancel();
    node.mapped().accepted.place->detach();
    sort_out(std::move(node.mapped().accepted));
    count();
  });
}

// A trusted proxy may name its client before the first byte (PROXY protocol). It sends this header
// in one piece.
bool Proxy::take_proxy_header(Accepted& accepted) {
  std::optional<unsigned> uid;
  if (!options_.trusted.contains(address_of_peer(net::peer_of(accepted.fd.get(), uid))))
    return false;
  char bytes[proxy_header_bytes_max];
  const auto got = ::recv(accepted.fd.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  const auto header =
      read_proxy_header({bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
  if (!header)
    return false;
  accepted.peer = header->peer;
  return ::recv(accepted.fd.get(), bytes, header->bytes, MSG_DONTWAIT) ==
         static_cast<ssize_t>(header->bytes);
}

// False: nothing has arrived.
bool Proxy::sort(Accepted& accepted) {
  unsigned char first = 0;
  const auto peek = [&] {
    return ::recv(accepted.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
           (errno != EAGAIN && errno != EWOULDBLOCK);
  };
  if (!peek())
    return false;
  // Of several headers, the first one counts; the parser refuses the others.
  const bool may_be_header = first == proxy_signature.front() || first == proxy_word.front();
  if (may_be_header && accepted.peer.empty() && take_proxy_header(accepted)) {
    first = 0;
    if (!peek())
      return false;
  }
  serve(std::move(accepted), first == 22 ? tls_ : nullptr);
  return true;
}

void Proxy::serve(Accepted accepted, const std::shared_ptr<net::TlsContext>& tls) {
  const Place place = accepted.place;
  auto open = [&]() -> Result<net::Transport> {
    if (tls)
      return net::Transport::with_tls(std::move(accepted.fd), tls);
    return net::Transport(std::move(accepted.fd));
  };
  auto transport = open();
  if (!transport)
    return log_error("{}", transport.error().message);
  auto front =
      std::make_shared<Front>(*this, std::move(*transport), place, std::move(accepted.peer));
  remember(front);
  place->wait_with([this, weak = std::weak_ptr(front)] {
    run_here([weak] {
      if (const auto dropped = weak.lock())
        dropped->drop();
    });
  });
  front->start();
}

void Proxy::remember(const std::shared_ptr<Front>& front) {
  fronts_.emplace(front.get(), front);
  count();
}

void Proxy::forget(Front& front) {
  fronts_.erase(&front);
  count();
}

void Proxy::forget(Http2Front& connection) {
  http2_.erase(&connection);
  count();
}

void Proxy::remember(const std::shared_ptr<Http2Front>& connection) {
  http2_.emplace(connection.get(), connection);
  count();
}

void Proxy::sweep() {
  const auto now = loop_.steady();
  std::vector<std::shared_ptr<Front>> all;
  all.reserve(fronts_.size());
  for (const auto& [key, front] : fronts_)
    all.push_back(front);
  for (const auto& front : all)
    front->check_deadlines(now);
  const auto connections = http2_;
  for (const auto& [key, connection] : connections)
    connection->check_deadlines(now);
  std::erase_if(undecided_, [&](const auto& each) {
    return now - each.second.since > options_.header_timeout;
  });
  count();
  admission_->report(now);
  sweep_pools(now);
}

std::string_view Proxy::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    char text[40];
    date_text_.assign(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
  }
  return date_text_;
}

std::vector<std::string> Proxy::bound_addresses() const {
  std::vector<std::string> out;
  for (const auto& item : listening_)
    out.push_back(item->listener.bound.text());
  return out;
}

std::vector<HandedListener> Proxy::listeners() const {
  std::vector<HandedListener> out;
  for (const auto& item : listening_)
    out.push_back({item->asked, item->listener.bound.text(),
                   std::make_shared<Fd>(::fcntl(item->listener.fd.get(), F_DUPFD_CLOEXEC, 3))});
  return out;
}

void Proxy::hand_over(Duration idle_patience) {
  stopping_ = true;
  listening_.clear();
  const SteadyTime until = loop_.steady() + idle_patience;
  for (const auto& [key, front] : fronts_)
    front->close_after(until);
  const auto connections = http2_;
  for (const auto& [key, connection] : connections)
    connection->close_when_idle();
}

void Proxy::stop_listening() {
  stopping_ = true;
  listening_.clear();
  undecided_.clear();
  count();
  const auto all = fronts_;
  for (const auto& [key, front] : all)
    front->close_when_idle();
  const auto connections = http2_;
  for (const auto& [key, connection] : connections)
    connection->close_when_idle();
}

}  // namespace billow::gateway
