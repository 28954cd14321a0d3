#include "net/http/blocking_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/json.h"
#include "net/http/http_parser.h"
#include "net/http/http_request.h"
#include "net/http/proxy.h"
#include "net/http/ws_frame.h"
#include "net/transport.h"

namespace billow::net {
namespace {

constexpr Duration write_timeout = seconds(60);

SteadyTime now() {
  return system_clock().steady();
}

struct Ready {
  bool connection = false;
  bool watched = false;
};

// Waits for the connection (events) or the other descriptor. Neither: the timeout has passed.
Ready wait_for(int fd, short events, int other_fd, SteadyTime deadline) {
  for (;;) {
    const auto left = deadline - now();
    if (left.ns <= 0)
      return {};
    pollfd fds[2] = {{fd, events, 0}, {other_fd, POLLIN, 0}};
    const int timeout_ms = static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 60'000));
    const int rc = ::poll(fds, other_fd >= 0 ? 2 : 1, timeout_ms);
    if (rc > 0)
      return {fds[0].revents != 0, other_fd >= 0 && fds[1].revents != 0};
    if (rc < 0 && errno != EINTR)
      return {};
  }
}

Status pass_proxy(int fd, const Address& proxy, const Endpoint& to, SteadyTime deadline) {
  const std::string asked = connect_request(to);
  if (::send(fd, asked.data(), asked.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(asked.size()))
    return fail(Code::unavailable, fmt::format("the proxy {} does not listen", proxy.text()));
  for (;;) {
    if (!wait_for(fd, POLLIN, -1, deadline).connection)
      return fail(Code::timed_out, fmt::format("the proxy {} did not answer", proxy.text()));
    if (BILLOW_TRY(take_connect_answer(fd, proxy)))
      return {};
  }
}

// A connected transport with blocking calls.
struct Link {
  Transport transport;
  std::string name;  // for errors

  static Result<Link> open(const BlockingClient::Options& options) {
    const Endpoint& endpoint = options.endpoint;
    const std::string name = endpoint.text();
    const auto deadline = now() + options.connect_timeout;
    const auto proxy = options.addresses.empty() ? proxy_for(endpoint) : std::nullopt;
    const auto addresses = options.addresses.empty()
                               ? BILLOW_TRY(resolve(proxy ? *proxy : endpoint.address))
                               : options.addresses;
    std::string why = "the host has no address";
    for (const auto& address : addresses) {
      auto fd = start_connect(address);
      if (!fd) {
        why = fd.error().message;
        continue;
      }
      if (!wait_for(fd->get(), POLLOUT, -1, deadline).connection)
        return fail(Code::timed_out, fmt::format("cannot connect to {}: no answer", name),
                    "check the address and whether the host is up");
      if (const int error = connect_error(fd->get()); error != 0) {
        why = ::strerror(error);
        continue;
      }
      if (proxy)
        BILLOW_TRY_VOID(pass_proxy(fd->get(), *proxy, endpoint, deadline));
      if (!endpoint.tls)
        return Link{Transport(std::move(*fd)), name};
      auto context = BILLOW_TRY(TlsContext::client(options.tls));
      Link link{BILLOW_TRY(Transport::with_tls(std::move(*fd), context, endpoint.address.host)),
                name};
      BILLOW_TRY_VOID(link.handshake(deadline));
      return link;
    }
    return fail(Code::unavailable, fmt::format("cannot connect to {}: {}", name, why),
                "check that it is running; `billow up` starts a head");
  }

  Status handshake(SteadyTime deadline) {
    for (;;) {
      const auto result = transport.handshake();
      if (result.state == Io::done)
        return {};
      if (result.state == Io::closed || result.state == Io::failed)
        return fail(Code::unavailable, fmt::format("{}: TLS: {}", name, transport.error()),
                    transport.cut() ? "check that the server runs; a tunnel that leads to it "
                                      "(ssh, kubectl port-forward) may have to be started again"
                                    : "check the certificate authority or fingerprint");
      if (!wait_for(transport.fd(), result.state == Io::want_read ? POLLIN : POLLOUT, -1, deadline)
               .connection)
        return fail(Code::timed_out, fmt::format("{} did not finish the TLS handshake", name));
    }
  }

  bool closed_by_peer() const {
    char byte;
    return ::recv(transport.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  // Writes everything. If the peer sends instead of reading, `on_readable` is called; it returns
  // true to stop the writing.
  Status write(std::string_view data, const std::function<bool()>& on_readable) {
    auto deadline = now() + write_timeout;
    while (!data.empty()) {
      const iovec piece{const_cast<char*>(data.data()), data.size()};
      const auto result = transport.write(&piece, 1);
      switch (result.state) {
        case Io::done:
          data.remove_prefix(result.bytes);
          deadline = now() + write_timeout;
          continue;
        case Io::closed:
        case Io::failed:
          return fail(Code::unavailable,
                      fmt::format("{}: the connection broke: {}", name, transport.error()));
        case Io::want_read:
        case Io::want_write:
          break;
      }
      // Under TLS a readable socket may carry session tickets instead of an answer while a large
      // body is being sent. A server that rejects the body closes, and then its answer is read.
      const bool may_stop = on_readable && !transport.tls();
      const short events = result.state == Io::want_read ? POLLIN
                           : may_stop                    ? static_cast<short>(POLLOUT | POLLIN)
                                                         : static_cast<short>(POLLOUT);
      if (!wait_for(transport.fd(), events, -1, deadline).connection)
        return fail(Code::timed_out, fmt::format("{} does not accept more data", name));
      pollfd readable{transport.fd(), POLLIN, 0};
      if (may_stop && ::poll(&readable, 1, 0) > 0 && (readable.revents & POLLIN) && on_readable())
        return {};
    }
    return {};
  }
};

}  // namespace

struct BlockingClient::Impl {
  Options options;
  std::optional<Link> link;

  // The result of one attempt on one connection.
  struct Attempt {
    Result<Response> result;
    bool answer_began = false;
  };

  Status connect() {
    link.reset();
    link.emplace(BILLOW_TRY(Link::open(options)));
    return {};
  }

  Status send(const Call& call, const std::string& head) {
    // A server may answer before it has read everything (413); then sending stops and the answer is
    // read.
    const auto stop_early = [] {
      return true;
    };
    if (!call.body_source) {
      if (call.body.size() <= (16u << 10))
        return link->write(head + call.body, stop_early);
      BILLOW_TRY_VOID(link->write(head, stop_early));
      return link->write(call.body, stop_early);
    }
    bool answered = false;
    const auto note_answer = [&] {
      return answered = true;
    };
    BILLOW_TRY_VOID(link->write(head, note_answer));
    while (!answered) {
      const std::string piece = BILLOW_TRY(call.body_source());
      BILLOW_TRY_VOID(
          link->write(fmt::format("{:x}\r\n", piece.size()) + piece + "\r\n", note_answer));
      if (piece.empty())
        break;
    }
    return {};
  }

  Attempt attempt(const Call& call, const std::string& head) {
    // Even if writing failed, the server's answer may already have arrived.
    const auto sent = send(call, head);
    if (!sent && sent.error().code != Code::unavailable)
      return {pass(sent.error())};
    Attempt out = receive(call);
    if (!sent && !out.result && !out.answer_began)
      out.result = pass(sent.error());
    return out;
  }

  Attempt receive(const Call& call) {
    Attempt out{Response{}};
    auto parser = std::make_unique<HttpParser>(HttpParser::Kind::response);
    if (call.method == Method::head)
      parser->expect_no_body();
    std::string pending;
    std::vector<char> buffer(64 << 10);
    bool head_seen = false;
    bool ended = false;
    auto deadline = now() + call.timeout;
    for (;;) {
      const auto got = link->transport.read(buffer.data(), buffer.size());
      if (got.state == Io::done) {
        out.answer_began = true;
        if (call.on_chunk && head_seen)
          deadline = now() + call.timeout;
        pending.append(buffer.data(), got.bytes);
        if (auto taken = take(call, *parser, pending, head_seen, ended, *out.result); !taken)
          return {pass(taken.error()), true};
        if (ended) {
          link.reset();
          return out;
        }
        if (head_seen && parser->done()) {
          if (!parser->head().keep_alive || !pending.empty())
            link.reset();
          return out;
        }
        continue;
      }
      if (got.state == Io::closed || got.state == Io::failed) {
        const bool complete = head_seen && got.state == Io::closed && parser->finish();
        std::string why = got.state == Io::failed
                              ? link->transport.error()
                              : "the server closed the connection before its answer was complete";
        const std::string name = link->name;
        link.reset();
        if (complete)
          return out;
        return {fail(Code::unavailable, fmt::format("{}: {}", name, why),
                     "try again; if it keeps failing, see the head's log"),
                out.answer_began};
      }
      const auto ready =
          wait_for(link->transport.fd(), got.state == Io::want_read ? POLLIN : POLLOUT,
                   call.watch_fd, deadline);
      if (ready.watched && call.on_watch && !call.on_watch()) {
        link.reset();
        return out;
      }
      if (!ready.connection && !ready.watched) {
        const std::string name = link->name;
        link.reset();
        return {fail(Code::timed_out,
                     fmt::format("{} did not answer within {} s", name, call.timeout.seconds())),
                true};
      }
    }
  }

  Status take(const Call& call,
              HttpParser& parser,
              std::string& pending,
              bool& head_seen,
              bool& ended,
              Response& response) {
    std::size_t used = 0;
    while (used < pending.size() && !ended) {
      const auto step = parser.feed(std::string_view(pending).substr(used));
      if (!step) {
        const std::string name = link->name;
        link.reset();
        return fail(Code::unavailable,
                    fmt::format("{} sent an invalid HTTP response: {}", name, step.error().message),
                    "check that this is a Billow head");
      }
      used += step->consumed;
      if (!head_seen && parser.head_done()) {
        if (parser.head().status < 200) {
          parser = HttpParser(HttpParser::Kind::response);
          if (call.method == Method::head)
            parser.expect_no_body();
          continue;
        }
        head_seen = true;
        response.status = parser.head().status;
        response.headers = std::move(parser.head().headers);
      }
      if (!step->body.empty()) {
        if (call.on_chunk && response.status < 400) {
          ended = !call.on_chunk(step->body);
        } else if (response.body.size() + step->body.size() > call.body_bytes_max) {
          const std::string name = link->name;
          link.reset();
          return fail(Code::too_large, fmt::format("the answer of {} is larger than {} bytes", name,
                                                   call.body_bytes_max));
        } else {
          response.body.append(step->body);
        }
      }
      if (parser.done() || step->consumed == 0)
        break;
    }
    pending.erase(0, used);
    return {};
  }
};

BlockingClient::BlockingClient(Options options)
    : impl_(std::make_unique<Impl>(Impl{std::move(options), std::nullopt})) {}
BlockingClient::BlockingClient(BlockingClient&&) noexcept = default;
BlockingClient& BlockingClient::operator=(BlockingClient&&) noexcept = default;
BlockingClient::~BlockingClient() = default;
const Endpoint& BlockingClient::endpoint() const {
  return impl_->options.endpoint;
}

Result<Response> BlockingClient::request(const Call& call) {
  auto headers = call.headers;
  std::optional<std::uint64_t> length = call.body.size();
  if (call.body_source)
    length.reset();
  std::string head =
      BILLOW_TRY(request_head(impl_->options.endpoint, call.method, call.target, headers, length));
  if (call.body_source)
    head.insert(head.size() - 2, "Transfer-Encoding: chunked\r\n");
  const bool reused = impl_->link && !impl_->link->closed_by_peer();
  if (!reused)
    BILLOW_TRY_VOID(impl_->connect());
  auto attempt = impl_->attempt(call, head);
  const bool again = !attempt.result && !attempt.answer_began && reused &&
                     repeatable(call.method) && !call.body_source;
  if (!again)
    return std::move(attempt.result);
  BILLOW_TRY_VOID(impl_->connect());
  return impl_->attempt(call, head).result;
}

struct BlockingWebSocket::Impl {
  Link link;
  WsReader reader{WsReader::Role::client, limits::ws_message_bytes_max};
  bool closed = false;

  // Reads what is available; false if the connection has ended.
  bool pull() {
    char buffer[16 << 10];
    for (;;) {
      const auto got = link.transport.read(buffer, sizeof buffer);
      if (got.state == Io::want_read || got.state == Io::want_write)
        return true;
      if (got.state != Io::done)
        return false;
      reader.feed({buffer, got.bytes});
    }
  }
  Status send(WsOp op, std::string_view data) {
    if (closed)
      return fail(Code::unavailable, "the WebSocket is closed");
    // Both sides may be writing at once: incoming data is kept, so that neither blocks the other.
    return link.write(ws_frame(op, data, true), [this] {
      pull();
      return false;
    });
  }
};

BlockingWebSocket::BlockingWebSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockingWebSocket::BlockingWebSocket(BlockingWebSocket&&) noexcept = default;
BlockingWebSocket::~BlockingWebSocket() {
  if (impl_)
    close();
}

static constexpr std::size_t ws_refusal_bytes_max = 64 << 10;

// Why a server opens no WebSocket, if its answer is a problem document.
static std::optional<Error> ws_refusal(int status, std::string_view body) {
  const auto problem = parse_json(body);
  if (status < 400 || !problem || !problem->is_object() || (*problem)["detail"].str_or("").empty())
    return std::nullopt;
  return Error{code_of_status(status), std::string((*problem)["detail"].str_or("")),
               std::string((*problem)["hint"].str_or(""))};
}

Result<BlockingWebSocket> BlockingClient::websocket(const std::string& target,
                                                    const Headers& headers,
                                                    const std::string& subprotocol) {
  const auto& options = impl_->options;
  auto hello = ws_hello(subprotocol);
  for (const auto& [name, value] : headers)
    hello.headers.add(name, value);
  const std::string head =
      BILLOW_TRY(request_head(options.endpoint, Method::get, target, hello.headers, std::nullopt));
  auto socket = std::make_unique<BlockingWebSocket::Impl>(BILLOW_TRY(Link::open(options)));
  BILLOW_TRY_VOID(socket->link.write(head, nullptr));
  HttpParser parser(HttpParser::Kind::response);
  std::string pending;
  char buffer[4096];
  const auto deadline = now() + options.connect_timeout;
  std::string refusal;  // the body of an answer that opens no WebSocket
  const auto refused = [&] {
    return parser.head_done() && parser.head().status != 101;
  };
  while (!parser.head_done() || (refused() && !parser.done())) {
    const auto got = socket->link.transport.read(buffer, sizeof buffer);
    if (got.state == Io::closed || got.state == Io::failed) {
      if (refused())
        break;
      return fail(Code::unavailable,
                  fmt::format("{} closed the connection instead of opening a WebSocket",
                              socket->link.name));
    }
    if (got.state != Io::done) {
      if (!wait_for(socket->link.transport.fd(), got.state == Io::want_read ? POLLIN : POLLOUT, -1,
                    deadline)
               .connection) {
        if (refused())
          break;
        return fail(Code::timed_out,
                    fmt::format("{} did not open the WebSocket in time", socket->link.name));
      }
      continue;
    }
    pending.append(buffer, got.bytes);
    while (!pending.empty()) {
      const auto step = BILLOW_TRY(parser.feed(pending));
      if (refused() && refusal.size() + step.body.size() <= ws_refusal_bytes_max)
        refusal.append(step.body);
      pending.erase(0, step.consumed);
      if (step.consumed == 0 || (parser.head_done() && !refused()))
        break;
    }
  }
  if (refused())
    if (auto reason = ws_refusal(parser.head().status, refusal))
      return pass(std::move(*reason));
  BILLOW_TRY_VOID(check_ws_answer(parser.head().status, parser.head().headers, hello.key));
  socket->reader.feed(pending);
  return BlockingWebSocket(std::move(socket));
}

int BlockingWebSocket::fd() const {
  return impl_->link.transport.fd();
}

Result<std::optional<BlockingWebSocket::Message>> BlockingWebSocket::read() {
  if (impl_->closed)
    return std::optional<Message>{};
  const bool connected = impl_->pull();
  for (;;) {
    auto next = impl_->reader.next();
    if (!next) {
      close(impl_->reader.close_code(), next.error().message);
      return pass(next.error());
    }
    if (!*next)
      break;
    auto& message = **next;
    switch (message.op) {
      case WsOp::text:
        return std::optional(Message{Message::Kind::text, std::move(message.payload)});
      case WsOp::binary:
        return std::optional(Message{Message::Kind::binary, std::move(message.payload)});
      case WsOp::ping:
        BILLOW_TRY_VOID(impl_->send(WsOp::pong, message.payload));
        continue;
      case WsOp::close: {
        const auto said = parse_ws_close(message.payload).value_or(WsClose{1002, ""});
        close(said.code == 1005 ? 1000 : said.code);
        return std::optional(Message{Message::Kind::closed, said.reason, said.code});
      }
      case WsOp::pong:
      case WsOp::continuation:
        continue;
    }
  }
  if (connected)
    return std::optional<Message>{};
  impl_->closed = true;
  return std::optional(
      Message{Message::Kind::closed, "the connection was closed unexpectedly", 1006});
}

Result<std::optional<BlockingWebSocket::Message>> BlockingWebSocket::wait(Duration at_most) {
  const auto deadline = now() + at_most;
  for (;;) {
    auto message = BILLOW_TRY(read());
    if (message || impl_->closed)
      return message;
    if (!wait_for(fd(), POLLIN, -1, deadline).connection)
      return std::optional<Message>{};
  }
}

Status BlockingWebSocket::send_text(std::string_view text) {
  return impl_->send(WsOp::text, text);
}
Status BlockingWebSocket::send_binary(std::string_view data) {
  return impl_->send(WsOp::binary, data);
}

void BlockingWebSocket::close(int code, std::string_view reason) {
  if (std::exchange(impl_->closed, true))
    return;
  // One attempt: the close frame is a courtesy, and the command is about to end.
  const std::string frame = ws_close_frame(code, reason, true);
  const iovec piece{const_cast<char*>(frame.data()), frame.size()};
  impl_->link.transport.write(&piece, 1);
  impl_->link.transport.end_writing();
}

}  // namespace billow::net
