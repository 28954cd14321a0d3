// Asks a replica that speaks HTTP/2 for its health, over a connection of its own.
#pragma once

#include <functional>

#include "gateway/proxy.h"
#include "net/http2/http2_session.h"

namespace billow::gateway {

class Http2Probe final : public net::StreamOwner,
                         public net::Http2Session::Owner,
                         public std::enable_shared_from_this<Http2Probe> {
 public:
  struct Options {
    std::string path;   // of a health check; of gRPC: "/" and the service
    bool grpc = false;  // asks by grpc.health.v1
    Duration timeout = seconds(5);
  };
  // `done` is called once, later: with a status of HTTP, or why there is none.
  using Done = std::function<void(Result<int>)>;
  static std::shared_ptr<Http2Probe> start(net::Loop& loop,
                                           const Upstream& upstream,
                                           Options options,
                                           Done done);
  Http2Probe(net::Loop& loop, Options options, Done done);
  ~Http2Probe() override;
  bool over() const { return done_ == nullptr; }

  void stream_data(std::string_view data) override;
  void stream_eof() override {
    finish(fail(Code::unavailable, "the replica closed the connection"));
  }
  void stream_failed(std::string reason) override { finish(fail(Code::unavailable, reason)); }
  void stream_drained() override {}

  using Id = net::Http2Session::StreamId;
  void stream_head(Id id, net::HttpParser::Head& head, bool end) override;
  void stream_refused(Id, int, const std::string&) override {}
  void stream_body(Id id, std::string_view data) override;
  void stream_end(Id id, const net::Headers& trailers) override;
  void stream_closed(Id id, net::Http2Error error) override;
  void stream_relieved(Id) override {}

 private:
  void ask(const Upstream& upstream);
  void flush();
  void finish(Result<int> result);

  net::Loop& loop_;
  Options options_;
  Done done_;
  std::shared_ptr<net::Stream> stream_;
  net::Http2Session session_;
  net::Timer timer_;
  int status_ = 0;
  std::string grpc_status_, body_;
};

}  // namespace billow::gateway
