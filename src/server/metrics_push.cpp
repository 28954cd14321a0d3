#include "server/metrics_push.h"

#include "base/log.h"

namespace billow::server {

Result<std::unique_ptr<MetricsPush>> MetricsPush::create(head::Head& head, api::Api& api) {
  const head::HeadOptions& options = head.options();
  if (options.otlp_metrics.empty())
    return std::unique_ptr<MetricsPush>();
  auto out = std::unique_ptr<MetricsPush>(new MetricsPush(head, api));
  out->began_ = head.clock().wall();
  out->sender_ =
      BILLOW_TRY(gateway::OtlpSender::create(head.loop(), {.kind = gateway::OtlpKind::metrics,
                                                           .url = options.otlp_metrics,
                                                           .option = "--otlp-metrics",
                                                           .service = "billow"}));
  out->timer_ = head.loop().every(options.otlp_every, [at = out.get()] { at->push(); });
  return out;
}

void MetricsPush::push() {
  if (collecting_)
    return;
  collecting_ = true;
  api_.with_metrics([this](const Result<std::string>& text) {
    collecting_ = false;
    if (!text)
      return log_warn("the metrics could not be pushed: {}", text.error().message);
    for (std::string& item : gateway::otlp_metrics(*text, began_, head_.clock().wall()))
      sender_->push(std::move(item));
  });
}

}  // namespace billow::server
