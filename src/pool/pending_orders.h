// Orders that a cloud accepted and may still fail, and deletions it has been asked for. Only in
// memory: after a restart the cloud's own list and its idempotent requests say the same.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/pool.h"

namespace billow::pool {

struct PendingOrder {
  std::string machine;
  std::string external;   // the cloud's name for the machine
  std::string place;      // where the operation is
  std::string operation;  // the cloud's name for it
  SteadyTime since;
  bool succeeded = false;  // the operation did, but no list has shown the machine yet
};

// Thread-safe.
class PendingOrders {
 public:
  explicit PendingOrders(const Clock& clock) : clock_(clock) {}

  void accepted(PendingOrder order);
  std::optional<PendingOrder> find(const std::string& machine);
  // The machine runs, or its order has failed: nothing is pending any more.
  void settled(const std::string& machine);
  // Those that are not in the list, at most so many: the oldest first.
  std::vector<PendingOrder> missing(const std::set<std::string>& listed, std::size_t max);
  void note_success(const std::string& machine);

  // A failed order is listed as refused for a while, so that no reader of the list misses it.
  void failed(const PendingOrder& order, Refusal refusal);
  std::vector<MachineSighting> failures();

  // Whether the deletion should be asked for now: not again within half a minute.
  bool may_delete(const std::string& external);
  void delete_refused(const std::string& external);

 private:
  struct State {
    std::map<std::string, PendingOrder> pending;
    struct Failure {
      MachineSighting sighting;
      SteadyTime at;
    };
    std::map<std::string, Failure> failures;
    std::map<std::string, SteadyTime> deletions;
  };
  const Clock& clock_;
  Sync<State> state_;
};

}  // namespace billow::pool
