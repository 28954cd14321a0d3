// The asynchronous HTTP client: http, https and Unix sockets on the loop, with reused connections.
//
// Invariants: `done` is called exactly once for every call, on the loop, never from inside fetch();
// after cancel() it is not called. A call that fails on a reused connection before any answer is
// repeated once on a new one if its method is idempotent. Redirects are not followed.
#pragma once

#include <functional>
#include <memory>

#include "base/limits.h"
#include "net/address.h"
#include "net/http/http.h"
#include "net/http/websocket.h"
#include "net/loop.h"
#include "net/tls.h"

namespace billow::net {

struct ClientRequest {
  Endpoint endpoint;
  Method method = Method::get;
  std::string target = "/";
  Headers headers;
  std::string body;
  Duration timeout = seconds(30);  // for the whole answer; if streamed: until its head, then
                                   // between pieces
  std::size_t body_bytes_max = limits::client_body_bytes_max;
  // For a streamed answer: on_head when it begins, on_chunk for each piece; the Response given to
  // `done` has no body.
  std::function<void(const Response& head)> on_head;
  std::function<void(std::string_view)> on_chunk;
};

class HttpClient {
 public:
  struct Options {
    TlsClientOptions tls;
    Duration connect_timeout = seconds(5);
    Duration idle_timeout = limits::client_idle_timeout;
    std::size_t connections_max = limits::client_connections_max;
    // Called with each resolved address just before connecting; an error rejects it. Empty: all are
    // allowed. A name is resolved once per connection, so the checked address is the one used.
    std::function<Status(const RawAddress&, const Address& named)> check_address;
  };
  using Done = std::function<void(Result<Response>)>;

  // A running call. Dropping the handle has no effect; cancel() ends the call. pause() and resume()
  // hold back a streamed answer.
  class Call {
   public:
    virtual ~Call() = default;
    virtual void cancel() = 0;
    virtual void pause() = 0;
    virtual void resume() = 0;
  };

  static Result<std::unique_ptr<HttpClient>> create(Loop& loop, Options options);
  ~HttpClient();  // cancels its calls

  std::shared_ptr<Call> fetch(ClientRequest request, Done done);
  // The WebSocket may outlive the client.
  std::shared_ptr<Call> connect_websocket(
      ClientRequest request,
      WebSocket::Options options,
      std::function<void(Result<std::shared_ptr<WebSocket>>)> done);

  struct Impl;  // opaque

 private:
  explicit HttpClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace billow::net
