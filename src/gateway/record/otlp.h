// Sends spans and metrics to a collector over OTLP/HTTP (JSON). Nobody waits for it: items go to a
// bounded queue, one request is on its way at a time, and what does not fit or is not accepted is
// dropped and counted.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/address.h"
#include "net/http/http_client.h"

namespace billow::gateway {

enum class OtlpKind { spans, metrics };

class OtlpSender {
 public:
  struct Options {
    OtlpKind kind = OtlpKind::spans;
    std::string url;      // of the collector, as http://HOST:4318/v1/traces
    std::string option;   // that named it, for errors
    std::string service;  // "billow-gateway"
    std::size_t queue_max = 8192;
    std::size_t batch_max = 512;
  };
  static Result<std::unique_ptr<OtlpSender>> create(net::Loop& loop, Options options);
  void push(std::string item);  // a span or a metric in JSON
  // From any thread.
  std::uint64_t exported() const { return exported_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  OtlpSender(Options options, net::Url url) : options_(std::move(options)), url_(std::move(url)) {}
  void send();
  void sent(std::size_t items, const Result<net::Response>& answer);

  Options options_;
  net::Url url_;
  std::unique_ptr<net::HttpClient> client_;
  std::deque<std::string> queue_;
  std::atomic<std::uint64_t> exported_ = 0, dropped_ = 0;
  bool sending_ = false, complained_ = false;
  net::Timer timer_;
};

// The families of an exposition (base/exposition.h) as metrics of OTLP, with the same names and
// labels: gauges, cumulative sums and histograms. A family with many series becomes several items.
std::vector<std::string> otlp_metrics(std::string_view exposition, WallTime began, WallTime now);

}  // namespace billow::gateway
