// Asynchronous calls: `Prefer: respond-async` is answered with 202 and the address of the future
// answer once the call is in the journal. The gateway executes calls by calling itself, so that
// holding, scaling and retries are the same for both kinds.
//
// Guarantees: an accepted call is executed at least once. It is executed again only if its answer
// could not be recorded (a gateway that died between the two), so it should be harmless to repeat,
// or carry an Idempotency-Key that the application understands. A failure of Billow's (no replica
// in time, a replica that died) is retried until the call is a day old; an answer of the
// application, even with status 500, is final.
//
// Bodies and answers share one connection to the head with the tables that all endpoints depend on.
// The amount in transit is limited for each direction (core/model/call_limits.h): more is refused,
// or waits here for its turn.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "gateway/gateway.h"

namespace billow::gateway {

class Calls {
 public:
  // `key`: the private key that signs webhooks.
  Calls(Gateway& gateway, std::string key) : gateway_(gateway), key_(std::move(key)) {}
  // These two on the request's loop, everything else on the first one; all under the gateway's
  // lock.
  void accept(const std::shared_ptr<Front>& front, LiveEndpoint& endpoint);
  void page(const std::shared_ptr<Front>& front,
            std::string_view id);  // GET: its status or answer; DELETE: cancel
  // The oldest waiting call of each endpoint, from the head.
  void take(const std::vector<WaitingCall>& waiting);
  void tick(SteadyTime now);
  Json webhook_key() const;  // the public key that webhooks are signed with

 private:
  struct Running {
    AsyncCall call;
    bool here = false;    // complete; otherwise only its name and endpoint are known
    bool taking = false;  // requested from the head
    std::shared_ptr<net::HttpClient::Call> fetch;
    bool over = false;  // answered; being recorded
    bool recording = false;
    std::uint32_t tries = 0;
    SteadyTime again_at;
    bool under_way() const { return taking || fetch; }
  };
  struct OnTheLine {
    std::mutex mutex;  // a place is returned wherever its request ends
    std::size_t all = 0;
    std::map<std::string, std::size_t> of_endpoint;
  };
  // A client that waits for an answer of the head.
  struct Asker {
    explicit Asker(const std::shared_ptr<Front>& of)
        : front(of), id(of->ticket.id), request_id(of->request_id()) {
      if (of->ticket.by_host)
        endpoint = of->ticket.host_endpoint;
    }
    // At the host name of an endpoint, only calls of that endpoint exist.
    bool may_see(std::string_view of_endpoint) const {
      return !endpoint || (!endpoint->empty() && *endpoint == of_endpoint);
    }
    std::shared_ptr<Front> front;  // to be touched on its loop only
    RequestId id;
    std::string request_id;
    std::optional<std::string> endpoint;
    bool cancels = false;
  };
  struct Full {
    SteadyTime until;
    std::string why;
  };
  std::shared_ptr<void> place_on_the_line(const LiveEndpoint& endpoint, std::size_t bytes);
  void accept_body(const std::shared_ptr<Front>& front,
                   const std::string& endpoint,
                   std::string caller,
                   std::string body,
                   std::shared_ptr<void> place);
  void refuse(const Asker& asker, net::Response response);
  void respond(const Asker& asker, net::Response response);
  void ask(const Asker& asker, const std::string& id);
  void answer_page(const Asker& asker, Result<Reply> reply);
  void cancel(const Asker& asker, const std::string& id);
  void take_whole(Running& running);
  void begin(Running& running);
  void not_under_way(const Running& running);
  void answered(const std::string& id, Result<net::Response> answer);
  void record(Running& running);
  void tell_webhook(const std::string& endpoint,
                    const std::string& id,
                    std::string told,
                    std::uint32_t tries);

  Gateway& gateway_;
  std::string key_;
  std::map<std::string, Running> calls_;
  std::map<std::string, std::size_t> under_way_;  // by endpoint
  std::size_t under_way_all_ = 0, taking_ = 0;
  std::shared_ptr<OnTheLine> accepting_ = std::make_shared<OnTheLine>();
  std::map<std::string, Full> full_;  // endpoints that the head takes no more calls for
  std::size_t recording_bytes_ = 0;
  std::size_t asked_ = 0;
  std::deque<std::function<void()>> asking_;  // clients that wait for their turn to ask
  std::vector<net::Timer> timers_;
};

}  // namespace billow::gateway
