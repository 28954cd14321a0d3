// HTTP for programs that do one thing at a time, such as the command line. Plain sockets and
// poll(2), no loop, no threads, and TLS only for https, so that a command starts in a millisecond.
// One connection, kept between requests.
//
// Not thread-safe. Name look-ups block; everything else keeps to its timeouts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "net/address.h"
#include "net/http/http.h"
#include "net/tls.h"

namespace billow::net {

class BlockingWebSocket;

class BlockingClient {
 public:
  struct Options {
    Endpoint endpoint;
    TlsClientOptions tls;
    Duration connect_timeout = seconds(5);
    std::vector<RawAddress> addresses = {};  // of the endpoint, if already resolved; the name is
                                             // not looked up again
  };
  struct Call {
    Method method = Method::get;
    std::string target = "/";
    Headers headers;
    std::string body;
    // Instead of `body`: called for the next piece until it returns an empty one. Sent chunked,
    // never held in memory as a whole.
    std::function<Result<std::string>()> body_source;
    Duration timeout =
        seconds(30);  // for the whole answer; if streamed: until its head, then between pieces
    std::size_t body_bytes_max = limits::client_body_bytes_max;
    // For a streamed answer with status < 400: called with each piece; false ends the call. Error
    // answers are returned whole.
    std::function<bool(std::string_view)> on_chunk;
    // Watched together with the connection (a signalfd, stdin): called when readable; false ends
    // the call.
    int watch_fd = -1;
    std::function<bool()> on_watch;
  };

  explicit BlockingClient(Options options);
  BlockingClient(BlockingClient&&) noexcept;
  BlockingClient& operator=(BlockingClient&&) noexcept;
  ~BlockingClient();

  // A call that on_chunk or on_watch ended returns what had arrived, and closes the connection.
  Result<Response> request(const Call& call);
  Result<Response> get(std::string target) { return request({.target = std::move(target)}); }
  // Opens a WebSocket on a separate connection.
  Result<BlockingWebSocket> websocket(const std::string& target,
                                      const Headers& headers = {},
                                      const std::string& subprotocol = {});
  const Endpoint& endpoint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A WebSocket for terminals: poll fd() together with stdin, and when it is readable take messages
// until none is left.
class BlockingWebSocket {
 public:
  struct Message {
    enum class Kind { text, binary, closed } kind = Kind::text;
    std::string data;  // of closed: the reason
    int close_code = 0;
  };
  BlockingWebSocket(BlockingWebSocket&&) noexcept;
  ~BlockingWebSocket();

  int fd() const;
  Result<std::optional<Message>> read();                  // never waits; answers pings itself
  Result<std::optional<Message>> wait(Duration at_most);  // waits for one
  Status send_text(std::string_view text);                // waits until it is written
  Status send_binary(std::string_view data);
  void close(int code = 1000, std::string_view reason = {});

 private:
  friend class BlockingClient;
  struct Impl;
  explicit BlockingWebSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace billow::net
