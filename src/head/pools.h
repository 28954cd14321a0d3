// The reconciler between the state's machines and the engines they come from. Takes no input and is
// idempotent: it looks at the state, lists what the engine has, asks for what is missing, gives
// back what is released, and ends what nobody asked for. Each pool has a thread of its own, for an
// engine's tools may take their time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "head/engine.h"
#include "net/loop.h"
#include "net/workers.h"
#include "pool/pool.h"

namespace billow::head {

class Pools {
 public:
  struct Options {
    pool::Options engine;
    std::function<std::string()> head_url;  // for pools that name none
    std::string fingerprint;                // of the head's authority; empty: none
    UserId owner;                           // whose credentials its machines get
  };
  Pools(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine, Options options);
  ~Pools();
  void look();  // on a timer
  // Something happened that may need a machine or have ended one: look now rather than with the
  // timer's next turn.
  void heard(const Event& event);

 private:
  struct Running;
  struct Round;
  void begin(PoolId id, const Pool& settings);
  void run(PoolId id, std::shared_ptr<Round> round);
  void finished(PoolId id, const Round& round);
  static void ask(pool::Pool& engine, const std::vector<pool::Order>& orders, Round& round);

  net::Loop& loop_;
  const Clock& clock_;
  std::function<Engine&()> engine_;
  Options options_;
  std::map<PoolId, std::unique_ptr<Running>> running_;
  SteadyTime planned_at_;
  Duration plan_took_;
  WallTime began_;  // orders from before are another life's, which may have carried them out
  net::Timer nudge_;
  bool nudged_ = false;
};

}  // namespace billow::head
