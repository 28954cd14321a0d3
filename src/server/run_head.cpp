#include "server/run_head.h"

#include <signal.h>

#include "api/api.h"
#include "api/session.h"
#include "gateway/proxy.h"
#include "head/head.h"
#include "server/head_host.h"
#include "server/metrics_push.h"

namespace billow::server {

// Gateways remove the dashboard's cookie from requests to replicas, so they must know its name.
static_assert(std::string_view(gateway::session_cookie) == api::session_cookie);

Status run_head(head::HeadOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  // The head is declared last, so it is destroyed first: its open requests refer to the other two.
  // Timers of the API are on the head's loop, so they end before it, however this function ends.
  struct Composition {
    explicit Composition(head::HeadOptions options) : head(std::move(options)) {}
    ~Composition() { api.leave_loop(); }
    HeadHost host{head};
    api::Api api{host};
    head::Head head;
  };
  Composition parts(std::move(options));
  if (const Status started = parts.head.start(); !started)
    return parts.head.was_told_to_end() ? Status{} : started;
  parts.api.begin(parts.host.now());
  BILLOW_TRY_VOID(parts.head.serve(
      {.handler =
           [&](std::shared_ptr<net::Exchange> exchange) { parts.api.handle(std::move(exchange)); },
       .body_policy = [&](const net::Request& head) { return parts.api.body_policy(head); },
       .identify =
           [&](const net::Request& head) {
             return parts.api.identify(head);
           }}));
  const auto push = BILLOW_TRY(MetricsPush::create(parts.head, parts.api));
  const Status ended = parts.head.run();
  parts.api.end();
  return ended;
}

}  // namespace billow::server
