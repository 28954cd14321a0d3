// A loop, a server and raw client sockets for tests: everything on loopback or a socket pair,
// nothing sleeps.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/crypto.h"
#include "base/file.h"
#include "net/address.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"

namespace billow::net {

inline constexpr Duration patience =
    seconds(20);  // generous: the machine may be busy; reaching it is a failure

class TempDir {
 public:
  TempDir()
      : path_(
            (std::filesystem::temp_directory_path() / ("billow-net-" + random_token(6))).string()) {
    std::filesystem::create_directories(path_);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

struct ServerFixture {
  Loop loop;
  std::unique_ptr<HttpServer> server;

  explicit ServerFixture(Handler handler, HttpServer::Options options = {}) {
    if (options.listen.empty())
      options.listen = {"127.0.0.1:0"};
    auto made = HttpServer::create(loop, std::move(options), std::move(handler));
    if (!made)
      ADD_FAILURE() << made.error().message;
    else
      server = std::move(*made);
  }
  Endpoint endpoint() const { return *parse_endpoint(server->bound_addresses().at(0)); }
  bool run_until(const std::function<bool()>& condition) {
    return loop.run_until(condition, patience);
  }
};

// A server on a thread of its own, for clients that block.
class ThreadedServer {
 public:
  explicit ThreadedServer(Handler handler, HttpServer::Options options = {})
      : fixture_(std::move(handler), std::move(options)), endpoint_(fixture_.endpoint()) {
    thread_ = std::thread([this] { fixture_.loop.run(); });
  }
  ~ThreadedServer() {
    fixture_.loop.stop();
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }
  Loop& loop() { return fixture_.loop; }

 private:
  ServerFixture fixture_;
  Endpoint endpoint_;
  std::thread thread_;
};

// A client socket driven by hand, non-blocking, so that one thread runs both sides.
class RawClient {
 public:
  explicit RawClient(const ServerFixture& fixture) {
    const auto addresses = resolve(fixture.endpoint().address);
    fd_ = *start_connect(addresses->front());
    pollfd p{fd_.get(), POLLOUT, 0};
    ::poll(&p, 1, 5000);
  }
  explicit RawClient(Fd fd) : fd_(std::move(fd)) {}
  void send(std::string_view data) {
    while (!data.empty()) {
      const auto n = ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0)
        return;
      data.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // Reads what is there; true when the other side has closed.
  bool pull() {
    char buffer[65536];
    for (;;) {
      const auto n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) {
        received.append(buffer, static_cast<std::size_t>(n));
        continue;
      }
      if (n == 0 || errno != EAGAIN)
        closed = true;
      return closed;
    }
  }
  bool has(std::string_view text) {
    pull();
    return received.find(text) != std::string::npos;
  }
  void end_writing() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }
  void hang_up(bool abrupt) {  // abrupt: by a reset
    const linger hard{1, 0};
    if (abrupt)
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  int fd() const { return fd_.get(); }
  std::string received;
  bool closed = false;

 private:
  Fd fd_;
};

inline std::size_t occurrences(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size()))
    ++n;
  return n;
}

// One call of the asynchronous client, run to its end.
inline Result<Response> fetch(ServerFixture& fixture, HttpClient& client, ClientRequest request) {
  std::optional<Result<Response>> out;
  client.fetch(std::move(request), [&](Result<Response> r) { out = std::move(r); });
  if (!fixture.run_until([&] { return out.has_value(); }))
    return fail(Code::timed_out, "the test's patience ran out");
  return std::move(*out);
}

}  // namespace billow::net
