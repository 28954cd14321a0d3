// Fetches the values of secrets that are in backends (src/secrets), for start orders. An order
// waits until its values are here, or until it is known why they are not; the values are in memory
// until the order is sent, and nowhere else.
//
// Idempotent: an order that comes again while its values are on their way waits with the first. An
// order whose task has ended meanwhile is dropped.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "core/control/decide/decide.h"
#include "head/secrets/secret_keeper.h"
#include "net/workers.h"

namespace billow::head {

class SecretFetcher {
 public:
  struct Options {
    const Clock* clock = nullptr;
    SecretKeeper* keeper = nullptr;
    std::function<const control::State&()> state;
    std::function<void(const control::Effect&)> deliver;
  };
  SecretFetcher(net::Loop& loop, Options options);

  // True: it is an order that waits, and is delivered later.
  bool holds(const control::Effect& effect);
  // On a timer: renews the credentials of backends that expire, in time.
  void renew_credentials();

 private:
  struct Renewal {
    SteadyTime at;  // when the next one is due
    bool under_way = false, never = false, complained = false;
    std::string sealed;  // the settings that this is about
  };
  void renewed(const std::string& backend, const Result<Duration>& next);
  void came(const control::Effect& effect, TaskId task, SecretKeeper::Fetched values);

  Options options_;
  std::set<TaskId> under_way_;
  std::map<std::string, Renewal> renewals_;  // by the backend's record
  net::Workers workers_;
};

}  // namespace billow::head
