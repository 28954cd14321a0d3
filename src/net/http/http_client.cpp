#include "net/http/http_client.h"

#include <sys/socket.h>

#include "base/log.h"
#include "net/http/http_parser.h"
#include "net/http/http_request.h"
#include "net/http/proxy.h"
#include "net/http/ws_socket.h"
#include "net/stream.h"
#include "net/workers.h"

namespace billow::net {

namespace {
// An idle connection. It is removed if the server closes it or sends unexpected data.
struct IdleConnection final : StreamOwner {
  std::shared_ptr<Stream> stream;
  SteadyTime since;
  bool usable = true;
  void stream_data(std::string_view) override { usable = false; }
  void stream_eof() override { usable = false; }
  void stream_failed(std::string) override { usable = false; }
  void stream_drained() override {}
};
}  // namespace

struct HttpClient::Impl {
  Impl(Loop& l, Options o) : loop(l), options(std::move(o)) {
    sweep = loop.every(std::clamp(options.idle_timeout / 4, milliseconds(5), seconds(2)),
                       [this] { drop_old(); });
  }
  ~Impl() {
    auto gone = std::exchange(calls, {});
    for (const auto& [key, call] : gone)
      call->cancel();
    for (auto& [key, list] : idle)
      for (auto& each : list)
        each->stream->close();
  }

  std::shared_ptr<Stream> take_idle(const std::string& key) {
    const auto found = idle.find(key);
    if (found == idle.end())
      return nullptr;
    auto& list = found->second;
    while (!list.empty()) {
      auto last = std::move(list.back());
      list.pop_back();
      if (last->usable && !last->stream->peer_has_closed())
        return last->stream;
      last->stream->close();
    }
    idle.erase(found);
    return nullptr;
  }
  void keep(const std::string& key, std::shared_ptr<Stream> stream) {
    auto& list = idle[key];
    if (list.size() >= limits::client_idle_per_endpoint_max)
      return stream->close();
    auto item = std::make_unique<IdleConnection>();
    stream->set_owner(item.get());
    stream->resume_reading();
    item->stream = std::move(stream);
    item->since = loop.steady();
    list.push_back(std::move(item));
  }
  void drop_old() {
    const auto now = loop.steady();
    for (auto at = idle.begin(); at != idle.end();) {
      std::erase_if(at->second, [&](const auto& item) {
        const bool old = !item->usable || now - item->since > options.idle_timeout;
        if (old)
          item->stream->close();
        return old;
      });
      at = at->second.empty() ? idle.erase(at) : std::next(at);
    }
  }
  Workers& resolver() {
    if (!workers)
      workers = std::make_unique<Workers>(loop, Workers::Options{.threads = 1, .queue_max = 256});
    return *workers;
  }

  Loop& loop;
  Options options;
  std::shared_ptr<TlsContext> tls;
  std::unordered_map<std::string, std::vector<std::unique_ptr<IdleConnection>>> idle;
  std::unordered_map<Call*, std::shared_ptr<Call>> calls;
  std::shared_ptr<std::size_t> live = std::make_shared<std::size_t>(0);
  std::unique_ptr<Workers> workers;
  Timer sweep;
};

namespace {

class ClientCall final : public HttpClient::Call,
                         public StreamOwner,
                         public std::enable_shared_from_this<ClientCall> {
 public:
  using Owner = HttpClient::Impl;
  using WsDone = std::function<void(Result<std::shared_ptr<WebSocket>>)>;

  ClientCall(Owner& owner, ClientRequest request, HttpClient::Done done)
      : owner_(&owner),
        loop_(owner.loop),
        request_(std::move(request)),
        done_(std::move(done)),
        key_(request_.endpoint.text()) {}
  ~ClientCall() override {
    if (stream_)
      stream_->close();
  }

  void ask_for_websocket(WebSocket::Options options, WsDone done) {
    hello_ = ws_hello(options.subprotocol);
    for (const auto& [name, value] : hello_->headers)
      request_.headers.set(name, value);
    ws_options_ = std::move(options);
    ws_done_ = std::move(done);
  }

  void begin() {
    if (!owner_)
      return;
    arm_timeout();
    auto head = request_head(request_.endpoint, request_.method, request_.target, request_.headers,
                             request_.body.size());
    if (!head)
      return finish(pass(head.error()));
    head_ = std::move(*head);
    if (!hello_)
      stream_ = owner_->take_idle(key_);
    reused_ = stream_ != nullptr;
    if (!reused_)
      return connect();
    stream_->set_owner(this);
    send_request();
  }

  void cancel() override {
    const auto keep = shared_from_this();
    done_ = nullptr;
    ws_done_ = nullptr;
    finish(fail(Code::unavailable, "cancelled"));
  }
  void pause() override {
    if (stream_)
      stream_->pause_reading();
    paused_ = true;
  }
  void resume() override {
    paused_ = false;
    extend_deadline();
    if (stream_)
      stream_->resume_reading();
  }

  void stream_data(std::string_view data) override {
    const auto keep = shared_from_this();
    answer_began_ = true;
    if (request_.on_chunk)
      extend_deadline();
    pending_.append(data);
    std::size_t used = 0;
    while (owner_ && used < pending_.size()) {
      const auto step = parser_->feed(std::string_view(pending_).substr(used));
      if (!step)
        return finish(fail(Code::unavailable, fmt::format("the answer of {} is not valid HTTP: {}",
                                                          key_, step.error().message)));
      used += step->consumed;
      if (!head_seen_ && parser_->head_done()) {
        if (hello_)
          return open_websocket(pending_.substr(used));
        take_head();
      }
      if (!step->body.empty())
        take_body(step->body);
      if (owner_ && head_seen_ && parser_->done())
        return complete(used == pending_.size());
      if (step->consumed == 0)
        break;
    }
    pending_.erase(0, used);
  }

  void stream_eof() override {
    const auto keep = shared_from_this();
    if (parser_ && head_seen_ && parser_->finish())
      return complete(false);
    lost("the server closed the connection before it answered");
  }
  void stream_failed(std::string reason) override {
    const auto keep = shared_from_this();
    lost(std::move(reason));
  }
  void stream_drained() override {}

 private:
  void arm_timeout() {
    deadline_ = loop_.steady() + request_.timeout;
    timer_ = loop_.after(request_.timeout, [this] { timer_fired(); });
  }
  void extend_deadline() { deadline_ = loop_.steady() + request_.timeout; }
  void timer_fired() {
    const auto keep = shared_from_this();
    const auto now = loop_.steady();
    if (paused_)
      extend_deadline();
    if (now < deadline_) {
      timer_ = loop_.after(deadline_ - now, [this] { timer_fired(); });
      return;
    }
    finish(fail(Code::timed_out,
                fmt::format("{} did not answer within {} s", key_, request_.timeout.seconds()),
                "it may be overloaded, or the network slow"));
  }

  void connect() {
    if (*owner_->live >= owner_->options.connections_max)
      return finish(fail(Code::exhausted,
                         fmt::format("{} connections are already open", *owner_->live),
                         "try again shortly"));
    connect_timer_ = loop_.after(owner_->options.connect_timeout, [this] {
      const auto keep = shared_from_this();
      finish(fail(Code::timed_out, fmt::format("cannot connect to {}: no answer", key_),
                  "check the address and whether the host is up"));
    });
    // Checked addresses are those of the servers themselves, which a proxy would hide.
    proxy_ = owner_->options.check_address ? std::nullopt : proxy_for(request_.endpoint);
    const Address first = proxy_ ? *proxy_ : request_.endpoint.address;
    if (auto numeric = resolve(first, true))
      return connect_to(std::move(*numeric), 0);
    const auto queued =
        owner_->resolver().submit([address = first] { return resolve(address); },
                                  [weak = weak_from_this()](Result<std::vector<RawAddress>> found) {
                                    const auto self = weak.lock();
                                    if (!self || !self->owner_)
                                      return;
                                    if (!found)
                                      self->finish(pass(found.error()));
                                    else
                                      self->connect_to(std::move(*found), 0);
                                  });
    if (!queued)
      finish(pass(queued.error()));
  }

  void connect_to(std::vector<RawAddress> addresses,
                  std::size_t index,
                  std::string why = "the host has no address") {
    for (; index < addresses.size(); ++index) {
      if (owner_->options.check_address)
        if (const Status may =
                owner_->options.check_address(addresses[index], request_.endpoint.address);
            !may)
          return finish(pass(may.error()));
      auto fd = start_connect(addresses[index]);
      if (!fd) {
        why = fd.error().message;
        continue;
      }
      connecting_ = std::move(*fd);
      connect_watch_ = loop_.on_writable(
          connecting_.get(), [this, addresses = std::move(addresses), index]() mutable {
            const auto keep = shared_from_this();
            const int error = connect_error(connecting_.get());
            auto rest = std::move(addresses);
            connect_watch_.cancel();
            if (error == 0)
              proxy_ ? ask_proxy() : connected();
            else
              connect_to(std::move(rest), index + 1, ::strerror(error));
          });
      return;
    }
    finish(fail(Code::unavailable, fmt::format("cannot connect to {}: {}", key_, why),
                "check that it is running"));
  }

  void ask_proxy() {
    const std::string asked = connect_request(request_.endpoint);
    if (::send(connecting_.get(), asked.data(), asked.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(asked.size()))
      return finish(
          fail(Code::unavailable, fmt::format("the proxy {} does not listen", proxy_->text())));
    connect_watch_ = loop_.on_readable(connecting_.get(), [this] {
      const auto keep = shared_from_this();
      const auto through = take_connect_answer(connecting_.get(), *proxy_);
      if (through && !*through)
        return;
      connect_watch_.cancel();
      through ? connected() : finish(pass(through.error()));
    });
  }

  void connected() {
    connect_timer_.cancel();
    auto open = [&]() -> Result<Transport> {
      if (!request_.endpoint.tls)
        return Transport(std::move(connecting_));
      if (!owner_->tls)
        owner_->tls = BILLOW_TRY(TlsContext::client(owner_->options.tls));
      return Transport::with_tls(std::move(connecting_), owner_->tls,
                                 request_.endpoint.address.host);
    };
    auto transport = open();
    if (!transport)
      return finish(pass(transport.error()));
    stream_ = std::make_shared<Stream>(loop_, std::move(*transport), this);
    ++*owner_->live;
    stream_->token = std::shared_ptr<void>(nullptr, [count = owner_->live](void*) { --*count; });
    stream_->start();
    send_request();
  }

  void send_request() {
    new_parser();
    // The request is kept as long as it may have to be sent again.
    const bool again = reused_ && repeatable(request_.method);
    stream_->send(again ? head_ : std::move(head_),
                  again ? request_.body : std::move(request_.body));
    if (paused_)
      stream_->pause_reading();
  }

  void new_parser() {
    parser_.emplace(HttpParser::Kind::response);
    if (request_.method == Method::head)
      parser_->expect_no_body();
  }

  void take_head() {
    auto& head = parser_->head();
    if (head.status < 200)
      return new_parser();  // interim; the answer itself follows
    head_seen_ = true;
    response_.status = head.status;
    response_.headers = std::move(head.headers);
    if (request_.on_head)
      request_.on_head(response_);
  }

  void take_body(std::string_view body) {
    if (!owner_)
      return;
    if (request_.on_chunk)
      return request_.on_chunk(body);
    if (response_.body.size() + body.size() > request_.body_bytes_max)
      return finish(fail(Code::too_large, fmt::format("the answer of {} is larger than {} bytes",
                                                      key_, request_.body_bytes_max)));
    response_.body.append(body);
  }

  void open_websocket(std::string rest) {
    auto& head = parser_->head();
    if (const auto fits = check_ws_answer(head.status, head.headers, hello_->key); !fits)
      return finish(pass(fits.error()));
    auto done = std::exchange(ws_done_, nullptr);
    auto socket = make_websocket(std::exchange(stream_, nullptr), WsReader::Role::client,
                                 std::move(ws_options_), std::move(rest));
    leave();
    if (done)
      done(std::move(socket));
  }

  void complete(bool nothing_left) {
    if (parser_->head().keep_alive && nothing_left && stream_->open() && stream_->queued() == 0)
      owner_->keep(key_, std::exchange(stream_, nullptr));
    finish(std::move(response_));
  }

  void lost(std::string reason) {
    if (!owner_)
      return;
    if (reused_ && !answer_began_ && repeatable(request_.method)) {
      reused_ = false;
      stream_->close();
      stream_ = nullptr;
      return connect();
    }
    finish(fail(Code::unavailable, fmt::format("{}: {}", key_, reason)));
  }

  // Removes the call from the client; no callback follows.
  void leave() {
    timer_.cancel();
    connect_timer_.cancel();
    connect_watch_.cancel();
    if (stream_)
      stream_->close();
    if (auto* owner = std::exchange(owner_, nullptr))
      owner->calls.erase(this);
  }

  void finish(Result<Response> result) {
    if (!owner_)
      return;
    const auto keep = shared_from_this();
    leave();
    auto done = std::exchange(done_, nullptr);
    auto ws_done = std::exchange(ws_done_, nullptr);
    // The request's callbacks may own this call. They are destroyed later, because one of them may
    // be running now.
    loop_.post([self = keep] { self->request_ = {}; });
    if (ws_done)
      ws_done(result ? Result<std::shared_ptr<WebSocket>>(fail(Code::internal, "no WebSocket"))
                     : pass(result.error()));
    else if (done)
      done(std::move(result));
  }

  Owner* owner_;
  Loop& loop_;
  ClientRequest request_;
  HttpClient::Done done_;
  std::string key_;
  std::string head_;
  std::shared_ptr<Stream> stream_;
  std::optional<HttpParser> parser_;
  Response response_;
  std::string pending_;  // received but not yet parsed: at most a line
  bool reused_ = false;
  bool answer_began_ = false;
  bool head_seen_ = false;
  bool paused_ = false;
  SteadyTime deadline_;
  Timer timer_;
  Timer connect_timer_;
  Watch connect_watch_;
  std::optional<Address> proxy_;
  Fd connecting_;
  std::optional<WsHello> hello_;
  WebSocket::Options ws_options_;
  WsDone ws_done_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(Loop& loop, Options options) {
  return std::unique_ptr<HttpClient>(
      new HttpClient(std::make_shared<Impl>(loop, std::move(options))));
}

HttpClient::~HttpClient() = default;

std::shared_ptr<HttpClient::Call> HttpClient::fetch(ClientRequest request, Done done) {
  auto call = std::make_shared<ClientCall>(*impl_, std::move(request), std::move(done));
  impl_->calls.emplace(call.get(), call);
  impl_->loop.post([call] { call->begin(); });
  return call;
}

std::shared_ptr<HttpClient::Call> HttpClient::connect_websocket(
    ClientRequest request,
    WebSocket::Options options,
    std::function<void(Result<std::shared_ptr<WebSocket>>)> done) {
  auto call = std::make_shared<ClientCall>(*impl_, std::move(request), Done{});
  call->ask_for_websocket(std::move(options), std::move(done));
  impl_->calls.emplace(call.get(), call);
  impl_->loop.post([call] { call->begin(); });
  return call;
}

}  // namespace billow::net
