// The gateway's figures: reported to the head, saved on disk and shown on its own pages.
#include <unistd.h>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/file.h"
#include "core/wire/codec.h"
#include "gateway/calls.h"
#include "gateway/gateway.h"

namespace billow::gateway {
namespace {

std::string machine_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

// Counters outlive the process, so that costs can be compared with the requests they paid for.
void Gateway::save_figures() {
  if (options_.data_dir.empty())
    return;
  Figures all;
  for (const auto& [name, endpoint] : endpoints_) {
    all.endpoints.push_back(endpoint->totals);
    all.endpoints.back().name = name;
    all.endpoints.back().first_byte = endpoint->answers;
    all.endpoints.back().first_byte_native = endpoint->native_answers;
  }
  if (std::string text = wire::to_json_text(all); text != kept_figures_) {
    disk_.replace(options_.data_dir + "/figures.json", text);
    kept_figures_ = std::move(text);
  }
}

Figures Gateway::figures() const {
  const Decision decision(*this);
  Figures out;
  for (const auto& address : proxy_->bound_addresses()) {
    const auto parsed = net::parse_address(address);
    const bool plain = plain_everywhere_ || (own_certificate_ && parsed && parsed->is_loopback());
    out.addresses.push_back((plain ? "http://" : "https://") + address);
  }
  for (const auto& [name, endpoint] : endpoints_) {
    out.endpoints.push_back(endpoint->figures());
    if (endpoint->policy().sample > 0 && !samples_)
      out.endpoints.back().notes.push_back(fmt::format(
          "--sample {:g}%: no request is kept, because no bucket is set; start the head "
          "(or gateway) with --sample-to s3://BUCKET/PREFIX",
          endpoint->policy().sample / 10.0));
  }
  out.keys = keys_.report();
  out.gateway = keys_.gateway();
  out.domains = hosts_.own();
  out.version = options_.version;
  out.host = machine_name();
  out.started_at = started_at_;
  out.loops = static_cast<std::uint32_t>(lanes_.size() + 1);
  out.connections = proxy_->open_connections();
  for (const auto& lane : lanes_)
    out.connections += lane->proxy->open_connections();
  out.leaving = proxy_->stopping();
  out.handed_over = predecessor_serves_;
  out.peer_address = options_.advertise;
  if (out.peer_address.empty() && !proxy_->bound_addresses().empty())
    out.peer_address = proxy_->bound_addresses().front();
  if (out.peer_address.empty())
    return out;
  out.peer_key = peer_pin_.empty() ? peer_key_ : peer_key_ + ":" + peer_pin_;
  return out;
}

void Gateway::tell_changes() {
  if (!link_ || !link_->connected())
    return;
  std::string now;
  for (const auto& [name, endpoint] : endpoints_) {
    const EndpointFigures f = endpoint->counts();
    append_format(now, "{} {} {} {} {} {} {} {} {}\n", name, f.serving, f.canary, f.ready,
                  f.sleeping, f.coming, f.sick, f.recovered_from,
                  fmt::join(endpoint->notes(), "; "));
  }
  if (now == told_)
    return;
  told_ = std::move(now);
  link_->say(figures());
}

// ---- the gateway's own pages

void Gateway::own_page(const std::shared_ptr<Front>& front) {
  std::string_view path = front->path();
  if (path.starts_with(own_prefix))
    path.remove_prefix(own_prefix.size());
  if (path == "/healthz" && !forgotten_why_.empty())
    return refuse(front, net::problem(503, forgotten_why_, "", front->request_id()));
  if (path == "/healthz")
    return respond(front, net::Response::json(200, R"({"ok":true})"));
  if (path.starts_with("/calls/"))
    return calls_->page(front, path.substr(7));
  if (path == "/webhook-key")
    return respond(front, net::Response::json(200, calls_->webhook_key().dump()));
  if (path == "/metrics" && front->local_user())
    return respond(front, {200, {{"Content-Type", "text/plain; version=0.0.4"}}, metrics()});
  // The host may be the domain of an endpoint.
  if (refuse_ignorant(front, false))
    return;
  refuse(front, net::problem(404, "endpoints are at /f/NAME/…", "see `billow endpoints`",
                             front->request_id()));
}

std::string Gateway::metrics() const {
  std::string out;
  const auto family = [&](const char* name, const char* type, const char* help, auto value) {
    append_format(out, "# HELP billow_endpoint_{} {}\n# TYPE billow_endpoint_{} {}\n", name, help,
                  name, type);
    for (const auto& [endpoint_name, endpoint] : endpoints_)
      append_format(out, "billow_endpoint_{}{{endpoint=\"{}\"}} {}\n", name, endpoint_name,
                    value(*endpoint));
  };
  family("requests_total", "counter", "Requests received.",
         [](const LiveEndpoint& e) { return e.totals.requests; });
  family("failed_total", "counter", "Requests that failed, timed out, or were answered with 5xx.",
         [](const LiveEndpoint& e) { return e.totals.failed; });
  family("refused_total", "counter", "Requests refused because the queue was full.",
         [](const LiveEndpoint& e) { return e.totals.refused; });
  family("cancelled_total", "counter", "Requests whose client disconnected.",
         [](const LiveEndpoint& e) { return e.totals.cancelled; });
  family("limited_total", "counter", "Requests refused because of a limit of their key.",
         [](const LiveEndpoint& e) { return e.totals.limited; });
  family("retried_total", "counter", "Requests retried on another replica.",
         [](const LiveEndpoint& e) { return e.totals.retried; });
  family("held", "gauge", "Requests waiting for a replica.",
         [](const LiveEndpoint& e) { return e.router.held(); });
  family("in_flight", "gauge", "Requests being served.",
         [](const LiveEndpoint& e) { return e.router.in_flight(); });
  family("replicas_ready", "gauge", "Replicas that are awake.",
         [](const LiveEndpoint& e) { return e.figures().ready; });
  family("replicas_sleeping", "gauge", "Replicas that are suspended.",
         [](const LiveEndpoint& e) { return e.figures().sleeping; });
  family("cold_starts_total", "counter", "Replicas started from nothing.",
         [](const LiveEndpoint& e) { return e.totals.cold_starts; });
  family("left_out_total", "counter", "Unhealthy replicas taken out of service.",
         [](const LiveEndpoint& e) { return e.totals.left_out; });
  family("wakes_total", "counter", "Replicas resumed from suspension.",
         [](const LiveEndpoint& e) { return e.totals.wakes; });
  family("wake_seconds_p50", "gauge", "Median time to resume a replica, in seconds.",
         [](const LiveEndpoint& e) { return e.wake_time.quantile(0.5).seconds(); });
  family("first_byte_seconds_sum", "counter", "Sum of the times to the first byte, in seconds.",
         [](const LiveEndpoint& e) { return e.first_byte.sum_s(); });
  family("first_byte_seconds_count", "counter", "Answers whose first byte was sent.",
         [](const LiveEndpoint& e) { return e.first_byte.count(); });
  family("first_byte_seconds_p99", "gauge",
         "99th percentile of the time to the first byte since start, in seconds.",
         [](const LiveEndpoint& e) { return e.first_byte.quantile(0.99).seconds(); });
  family("tokens_in_total", "counter", "Prompt tokens, as far as answers report them.",
         [](const LiveEndpoint& e) { return e.totals.tokens_in; });
  family("tokens_out_total", "counter", "Generated tokens, as far as answers report them.",
         [](const LiveEndpoint& e) { return e.totals.tokens_out; });
  if (samples_)
    append_format(out,
                  "# HELP billow_gateway_samples_sent_total Samples of requests stored in the "
                  "bucket.\n# TYPE billow_gateway_samples_sent_total counter\n"
                  "billow_gateway_samples_sent_total {}\n"
                  "# HELP billow_gateway_samples_dropped_total Samples that did not fit into the "
                  "queue.\n# TYPE billow_gateway_samples_dropped_total counter\n"
                  "billow_gateway_samples_dropped_total {}\n",
                  samples_->sent(), samples_->dropped());
  if (spans_)
    append_format(out,
                  "# HELP billow_gateway_spans_exported_total Spans accepted by the collector of "
                  "traces.\n# TYPE billow_gateway_spans_exported_total counter\n"
                  "billow_gateway_spans_exported_total {}\n"
                  "# HELP billow_gateway_spans_dropped_total Spans that were not accepted, or did "
                  "not fit into the queue.\n# TYPE billow_gateway_spans_dropped_total counter\n"
                  "billow_gateway_spans_dropped_total {}\n",
                  spans_->exported(), spans_->dropped());
  return out;
}

}  // namespace billow::gateway
