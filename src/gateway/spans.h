// Exports spans of sampled requests over OTLP/HTTP (JSON). Requests never wait for it: spans go to
// a bounded queue, one batch is on its way at a time, and what does not fit or is not accepted is
// dropped and counted.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "gateway/proxy.h"
#include "net/http/http_client.h"

namespace billow::gateway {

class Spans {
 public:
  // `url`: of the collector, as http://HOST:4318/v1/traces.
  static Result<std::unique_ptr<Spans>> create(net::Loop& loop, const std::string& url);
  void add(const Front& front, std::string_view endpoint, End end, SteadyTime now);
  std::uint64_t exported() const { return exported_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  Spans(net::Loop& loop, net::Url url) : loop_(loop), url_(std::move(url)) {}
  void push(std::string span);
  void send();
  void sent(std::size_t spans, const Result<net::Response>& answer);

  net::Loop& loop_;
  net::Url url_;
  std::unique_ptr<net::HttpClient> client_;
  std::deque<std::string> queue_;  // each a span in JSON
  std::uint64_t exported_ = 0, dropped_ = 0;
  bool sending_ = false, complained_ = false;
  net::Timer timer_;
};

}  // namespace billow::gateway
