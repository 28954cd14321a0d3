// Pushes the metrics of /metrics to a collector (OTLP), if the head was started with
// --otlp-metrics.
#pragma once

#include <memory>

#include "api/api.h"
#include "gateway/record/otlp.h"
#include "head/head.h"

namespace billow::server {

class MetricsPush {
 public:
  // Null: nothing is to be pushed.
  static Result<std::unique_ptr<MetricsPush>> create(head::Head& head, api::Api& api);

 private:
  MetricsPush(head::Head& head, api::Api& api) : head_(head), api_(api) {}
  void push();

  head::Head& head_;
  api::Api& api_;
  WallTime began_;
  bool collecting_ = false;
  std::unique_ptr<gateway::OtlpSender> sender_;
  net::Timer timer_;
};

}  // namespace billow::server
