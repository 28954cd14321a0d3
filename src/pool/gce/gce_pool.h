// Machines of Google Compute Engine.
//
// An order is accepted at once and may fail seconds later, in the operation that Google returned.
// The pool remembers these operations and looks at them when a machine is missing in the list; a
// failed one is listed as a refused order. Whatever is forgotten by a restart is found again: the
// same order has the same request id, and Google answers it with the old operation.
#pragma once

#include <atomic>
#include <map>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/gce/gce_answer.h"
#include "pool/gce/gce_request.h"
#include "pool/oauth/api_client.h"
#include "pool/pending_orders.h"
#include "pool/pool.h"

namespace billow::pool {

class GcePool final : public Pool {
 public:
  GcePool(billow::Pool settings, Options options, const Clock& clock);
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  Status attach(const MachineSighting& machine, const MachineSighting& disk) override;
  Result<std::vector<MachineOffer>> offers() override;
  Result<Account> account() override;

 private:
  Result<std::string> project();
  Result<GceOrder> describe(const Order& order);
  Ordered insert(const GceOrder& order);
  Ordered send(const GceOrder& order);
  Status end(const std::string& project, const std::string& place, const std::string& name);
  Ordered already_there(const GceOrder& order);
  Result<std::vector<GceInstance>> list();
  Result<GceOperation> operation(const std::string& zone, const std::string& name);
  void look_at_missing(const std::set<std::string>& listed, std::vector<MachineSighting>& out);
  bool counts(const std::string& zone) const;
  bool counts_region(const std::string& region) const;
  // gce_gang.cpp
  struct Seen {
    MachineSighting sighting;
    std::size_t instances = 0, running = 0;
  };
  std::map<std::string, Seen> machines_in(const std::vector<GceInstance>& instances);
  Ordered make_policy(const GceOrder& order);
  Status drop_policy(const std::string& region, const std::string& name);
  Result<std::vector<GcePolicy>> policies();
  bool is_left_over(const GcePolicy& policy);
  // gce_disks.cpp
  static constexpr std::string_view disk_mark = "disk:";  // before the name of one
  Ordered want_disk(const Machine& machine);
  Status list_disks(std::vector<MachineSighting>& out);
  Status drop_disk(const std::string& project, const std::string& zone, const std::string& name);
  void add_attached(std::vector<MachineOffer>& out);
  Status check_rights(const std::string& project, Account& account);
  Status check_quotas(const std::string& project, Account& account);

  billow::Pool pool_;
  Options options_;
  const Clock& clock_;
  Result<GceSettings> settings_;
  Web web_;
  LoginCache logins_;
  ApiClient api_;
  ApiClient rights_api_;
  PendingOrders pending_;  // place: the zone; operation: its name
  // An earlier head may have left some.
  std::atomic<bool> has_policies_ = true;
  std::atomic<std::uint64_t> gang_orders_ = 0;
  Sync<std::set<std::string>> ending_;  // gangs whose policy is to be deleted
};

}  // namespace billow::pool
