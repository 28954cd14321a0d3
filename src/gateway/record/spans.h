// Spans of sampled requests, for a collector (gateway/record/otlp.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/proxy.h"
#include "gateway/record/otlp.h"

namespace billow::gateway {

class Spans {
 public:
  // `url`: of the collector, as http://HOST:4318/v1/traces.
  static Result<std::unique_ptr<Spans>> create(net::Loop& loop, const std::string& url);
  // Those of a request that has ended, on the thread of its loop.
  static std::vector<std::string> of(const Front& front,
                                     std::string_view endpoint,
                                     End end,
                                     SteadyTime now);
  void add(const std::vector<std::string>& spans);  // on the loop
  std::uint64_t exported() const { return sender_->exported(); }
  std::uint64_t dropped() const { return sender_->dropped(); }

 private:
  explicit Spans(std::unique_ptr<OtlpSender> sender) : sender_(std::move(sender)) {}
  std::unique_ptr<OtlpSender> sender_;
};

}  // namespace billow::gateway
