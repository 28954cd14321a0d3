// Asynchronous calls: `Prefer: respond-async` is answered with 202 once the call is in the journal,
// and an address where its answer will be. The gateway carries calls out by calling itself, so that
// holding, scaling and retries are the same for both kinds.
//
// What holds: a call that was accepted is carried out at least once. It is carried out again only
// when its answer could not be recorded (a gateway that died between the two), so it should be
// harmless to repeat, or bring an Idempotency-Key that the application knows. A failure of ours (no
// replica in time, a replica that died) is tried again until the call is a day old; an answer of
// the application, also one of status 500, is the answer.
//
// Bodies and answers share one line to the head with the tables that everybody's endpoints live by.
// How much of them is on it at once has a limit for each way they take (core/model/call_limits.h):
// what is beyond it is refused, or waits here for its turn.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "gateway/gateway.h"

namespace billow::gateway {

class Calls {
 public:
  explicit Calls(Gateway& gateway) : gateway_(gateway) {}
  void accept(const std::shared_ptr<Front>& front, LiveEndpoint& endpoint);
  void page(const std::shared_ptr<Front>& front,
            std::string_view id);  // GET: how it stands or its answer; DELETE: cancel
  void take(const std::vector<WaitingCall>&
                waiting);  // of each endpoint the oldest that the head knows to be waiting
  void tick(SteadyTime now);

 private:
  struct Running {
    AsyncCall call;
    bool here = false;    // all of it; else only its name and its endpoint's are known
    bool taking = false;  // the head is asked for it
    std::shared_ptr<net::HttpClient::Call> fetch;
    bool over = false;  // answered; being recorded
    bool recording = false;
    std::uint32_t tries = 0;
    SteadyTime again_at;
    bool under_way() const { return taking || fetch; }
  };
  struct OnTheLine {
    std::size_t all = 0;
    std::map<std::string, std::size_t> of_endpoint;
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
  void ask(const std::shared_ptr<Front>& front, const std::string& id);
  void answer_page(const std::shared_ptr<Front>& front, Result<Reply> reply);
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
  std::map<std::string, Running> calls_;
  std::map<std::string, std::size_t> under_way_;  // by endpoint
  std::size_t under_way_all_ = 0, taking_ = 0;
  std::shared_ptr<OnTheLine> accepting_ = std::make_shared<OnTheLine>();
  std::map<std::string, Full> full_;  // endpoints that the head takes no more calls for
  std::size_t recording_bytes_ = 0;
  std::size_t asked_ = 0;
  std::deque<std::function<void()>> asking_;  // clients whose turn to ask has not come
  std::vector<net::Timer> timers_;
};

}  // namespace billow::gateway
