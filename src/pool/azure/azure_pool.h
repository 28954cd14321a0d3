// Machines of Azure: one resource group for the installation, in it one network for each region,
// and virtual machines whose disk, network card and address are deleted with them.
//
// Azure accepts an order at once and may fail minutes later. What is left then is a machine in the
// state Failed, which is listed as a refused order so that it is released. Orders that left nothing
// are found through their operations.
#pragma once

#include <atomic>
#include <mutex>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/azure/azure_answer.h"
#include "pool/azure/azure_request.h"
#include "pool/oauth/api_client.h"
#include "pool/pending_orders.h"
#include "pool/pool.h"

namespace billow::pool {

class AzurePool final : public Pool {
 public:
  AzurePool(billow::Pool settings, Options options, const Clock& clock);
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  Status attach(const MachineSighting& machine, const MachineSighting& disk) override;
  Result<std::vector<MachineOffer>> offers() override;
  Result<Account> account() override;

 private:
  Result<std::string> subscription();
  Result<AzureGroup> group();
  Result<AzureOrder> describe(const Order& order);
  // Makes the resource group and the region's network, once. An error of kind no_answer: they are
  // being made; ask again.
  Ordered prepare(const AzureGroup& group, const std::string& region);
  Ordered make_network(const AzureGroup& group, const std::string& region);
  Ordered put(const std::string& target, Json body);
  Ordered create(const AzureGroup& group, const AzureOrder& order);
  Ordered already_there(const AzureGroup& group, const AzureOrder& order);
  Result<std::vector<AzureMachine>> list();
  Result<std::vector<AzureMachine>> list(std::string target);
  MachineSighting sighting_of(const AzureGroup& group, const AzureMachine& machine);
  void look_at_missing(const std::set<std::string>& listed, std::vector<MachineSighting>& out);
  Status add_offers(const std::string& region, std::vector<MachineOffer>& out);
  void check_rights(Account& account);
  // azure_disks.cpp
  static constexpr std::string_view disk_mark = "disk:";  // before the name of one
  Ordered want_disk(const Machine& machine);
  Status list_disks(std::vector<MachineSighting>& out);
  Status drop_disk(const std::string& name);
  Status check_quotas(Account& account);

  billow::Pool pool_;
  Options options_;
  const Clock& clock_;
  Result<AzureSettings> settings_;
  Web web_;
  LoginCache logins_;
  ApiClient api_;
  PendingOrders pending_;  // place: "spot" or empty; operation: its URL
  std::string ssh_key_;
  std::mutex preparing_;               // one thread at a time prepares a region
  std::set<std::string> prepared_;     // regions; guarded by it
  std::atomic<bool> has_sets_ = true;  // scale sets; an earlier head may have left some
  std::atomic<std::uint64_t> gang_orders_ = 0;
};

}  // namespace billow::pool
