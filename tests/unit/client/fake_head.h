// A head of cardboard on a Unix socket: it answers what a test tells it to. Its loop runs on a
// thread of its own; everything a test touches goes through the mutex.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "net/http/http_server.h"

namespace billow::client::testing {

class FakeHead {
 public:
  using Answer = std::function<net::Response(const net::Request&)>;
  using OnAttach = std::function<void(std::shared_ptr<net::WebSocket>, const net::Request&)>;
  using OnFrame = std::function<void(net::WebSocket&, std::string_view data, bool binary)>;

  explicit FakeHead(std::string socket_path) : path_(std::move(socket_path)) {}
  ~FakeHead() { stop(); }

  void start() {
    ::unlink(path_.c_str());
    loop_ = std::make_unique<net::Loop>();
    auto server = net::HttpServer::create(
        *loop_, {.listen = {"unix:" + path_}},
        [this](std::shared_ptr<net::Exchange> exchange) { handle(std::move(exchange)); });
    if (!server)
      throw std::runtime_error(server.error().message);
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_->run(); });
  }
  void stop() {
    if (!loop_)
      return;
    loop_->post([this] {
      for (auto& socket : sockets_)
        socket->close(1001, "going away");
      sockets_.clear();
      server_.reset();
      loop_->stop();
    });
    thread_.join();
    loop_.reset();
    ::unlink(path_.c_str());
  }
  void post(std::function<void()> fn) { loop_->post(std::move(fn)); }

  std::string url() const { return "unix:" + path_; }
  std::vector<std::string> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }
  std::string last_body(const std::string& request) {
    std::lock_guard lock(mutex_);
    std::string body;
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i].starts_with(request))
        body = bodies_[i];
    return body;
  }

  // Set before start(); called on the loop's thread.
  Answer answer = [](const net::Request&) {
    return net::problem(404, "no such thing");
  };
  OnAttach on_attach;
  OnFrame on_frame;

 private:
  void handle(std::shared_ptr<net::Exchange> exchange) {
    const net::Request& request = exchange->request();
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(std::string(net::method_name(request.method)) + " " + request.target);
      bodies_.push_back(request.body);
    }
    if (request.headers.get("Authorization") != "Bearer secret")
      return exchange->respond(net::problem(401, "who are you?", "set BILLOW_TOKEN"));
    if (request.path.ends_with("/attach") && on_attach) {
      auto socket = exchange->upgrade_websocket({});
      if (!socket)
        return exchange->respond(net::problem(400, socket.error().message));
      sockets_.push_back(*socket);
      (*socket)->on_message([this, raw = socket->get()](std::string_view data, bool binary) {
        if (on_frame)
          on_frame(*raw, data, binary);
      });
      return on_attach(*socket, request);
    }
    exchange->respond(answer(request));
  }

  std::string path_;
  std::unique_ptr<net::Loop> loop_;
  std::unique_ptr<net::HttpServer> server_;
  std::vector<std::shared_ptr<net::WebSocket>> sockets_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> requests_, bodies_;
};

}  // namespace billow::client::testing
