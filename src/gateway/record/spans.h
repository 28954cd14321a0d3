// Spans of sampled requests, for a collector (gateway/record/otlp.h).
#pragma once

#include <memory>
#include <string>

#include "gateway/proxy.h"
#include "gateway/record/otlp.h"

namespace billow::gateway {

class Spans {
 public:
  // `url`: of the collector, as http://HOST:4318/v1/traces.
  static Result<std::unique_ptr<Spans>> create(net::Loop& loop, const std::string& url);
  void add(const Front& front, std::string_view endpoint, End end, SteadyTime now);
  std::uint64_t exported() const { return sender_->exported(); }
  std::uint64_t dropped() const { return sender_->dropped(); }

 private:
  explicit Spans(std::unique_ptr<OtlpSender> sender) : sender_(std::move(sender)) {}
  std::unique_ptr<OtlpSender> sender_;
};

}  // namespace billow::gateway
