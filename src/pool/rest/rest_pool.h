// Machines of any provider whose HTTP API is described by a file (docs/providers.md).
//
// Most of these providers have no idempotency tokens, and names need not be unique. So a machine is
// looked for before it is created, and an order whose answer was lost is not repeated before the
// list has had time to show the machine (Provider::list_lag) and two looks agree that it is not
// there. If a provider nevertheless lists two machines of one name, one of them is ended.
//
// Thread-safe: the head orders several machines at a time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/pool.h"
#include "pool/rest/api.h"
#include "pool/rest/names.h"
#include "pool/rest/provider.h"

namespace billow::pool::rest {

class RestPool final : public Pool {
 public:
  static Result<std::unique_ptr<RestPool>> create(const billow::Pool& settings,
                                                  const Options& options,
                                                  Provider provider,
                                                  const Clock& clock = system_clock());

  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  Result<std::vector<MachineOffer>> offers() override;
  Result<Account> account() override;

 private:
  RestPool(const billow::Pool& settings,
           const Options& options,
           Provider provider,
           const Clock& clock);

  struct Found {  // one machine as the provider lists it
    std::string machine, id, state, region;
    MachinePhase phase = MachinePhase::waiting;
    std::string why;  // dead: the reason
  };
  struct Try {
    SteadyTime at;
    bool accepted = false;  // otherwise its outcome is unknown
    int absent_looks = 0;
    std::string operation;
  };
  struct Gone {
    std::string machine;
    SteadyTime at;
  };
  struct Memory {
    std::map<std::string, Try> tries;           // by machine, until a list shows it
    std::map<std::string, std::string> listed;  // machines, by id
    std::set<std::string> ordering;             // want is being carried out
    std::map<std::string, Gone> gone;           // by id: were ended, and are listed no more
    std::map<std::string, SteadyTime> ended;    // when the provider was asked to end an id
    std::vector<Found> look;
    SteadyTime looked_at;
    bool looked = false;
    SteadyTime swept_at;
    bool swept = false;
    std::map<std::string, std::pair<std::string, SteadyTime>> lookups;
  };

  // rest_pool.cpp
  Ordered create_machine(const Order& order, Values& values);
  Ordered settle_unknown(const std::string& machine, const std::string& why);
  Ordered follow_operation(const std::string& machine, const std::string& operation);
  Result<bool> exists_already(const std::string& machine);
  Status make_objects(Values& values);
  Status end_machine(const std::string& id, const std::string& machine);
  void note_try(const std::string& machine, bool accepted, const std::string& operation = {});

  // rest_look.cpp
  Result<std::vector<Found>> look();
  Found found_in(const Json& item) const;
  void remember(const std::vector<Found>& found);
  void end_dead(const std::vector<Found>& found);
  void sweep_objects(const std::vector<Found>& found);

  // rest_values.cpp
  Values pool_values() const;
  Result<Values> machine_values(const Order& order);
  Status look_up(const Call& call, Values& values);
  Result<std::string> find_value(const Lookup& lookup, Values& values);
  Result<MachineOffer> choose_offer(const Order& order);

  billow::Pool settings_;
  Options options_;
  Provider provider_;
  MachineNames names_;
  const Clock& clock_;
  WallTime began_;
  std::unique_ptr<Api> api_;
  Sync<Memory> memory_;
};

// The value of a credential that a provider file names: from the pool's own credential (the value
// itself, "ID:SECRET", or lines NAME=VALUE), else from the environment.
Result<std::string> credential_value(const Auth& auth,
                                     const std::string& credential,
                                     const std::string& name);

// Whether the pool's options and --spot admit an offer.
bool is_wanted(const billow::Pool& settings, const MachineOffer& offer);

// The options of a pool of this provider, checked against its file.
Status check_rest_options(const billow::Pool& settings, const Provider& provider);

}  // namespace billow::pool::rest
