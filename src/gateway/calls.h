// Asynchronous calls: `Prefer: respond-async` is answered with 202 once the call is in the journal, and an address where its answer will
// be. The gateway carries calls out by calling itself, so that holding, scaling and retries are the same for both kinds.
//
// What holds: a call that was accepted is carried out at least once. It is carried out again only when its answer could not be recorded
// (a gateway that died between the two), so it should be harmless to repeat, or bring an Idempotency-Key that the application knows.
// A failure of ours (no replica in time, a replica that died) is tried again until the call is a day old; an answer of the
// application, also one of status 500, is the answer.
#pragma once

#include <map>
#include <memory>

#include "gateway/gateway.h"

namespace billow::gateway {

class Calls {
 public:
  explicit Calls(Gateway& gateway) : gateway_(gateway) {}
  void accept(const std::shared_ptr<Front>& front, LiveEndpoint& endpoint);
  void page(const std::shared_ptr<Front>& front, std::string_view id);  // GET: how it stands or its answer; DELETE: cancel
  void take(std::vector<AsyncCall> waiting);  // all that the head knows to be waiting
  void tick(SteadyTime now);

 private:
  struct Running {
    AsyncCall call;
    std::shared_ptr<net::HttpClient::Call> fetch;
    bool over = false;         // answered; being recorded
    bool recording = false;
    std::uint32_t tries = 0;
    SteadyTime again_at;
  };
  void begin(Running& running);
  void answered(const std::string& id, Result<net::Response> answer);
  void record(Running& running);
  void tell_webhook(const AsyncCall& call, std::uint32_t tries);

  Gateway& gateway_;
  std::map<std::string, Running> calls_;
  std::size_t under_way_ = 0;
  std::vector<net::Timer> timers_;
};

}  // namespace billow::gateway
