// Machines of Amazon EC2. One order is one RunInstances call: a machine, or all nodes of a gang,
// which then come all or none. The client token is made from the installation, the machine and the
// subnet, so a repeated order creates no second machine. The tags are part of that call.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "pool/ec2/wire.h"
#include "pool/pool.h"

namespace billow::pool::ec2 {

inline constexpr std::size_t user_data_bytes_max = 16 << 10;

// What every machine of a region shares.
struct Place {
  std::map<std::string, std::string> subnets;  // by zone
  std::string vpc;
  std::string group;  // security group; no connection from outside is allowed
};
struct Image {
  std::string id;
  std::string root_device;
};

// What an instance type has besides its GPUs.
struct TypeFacts {
  std::int64_t local_disk_gb = 0;
  std::int64_t network_cards = 1;
  std::int64_t efa_adapters = 0;  // 0: none, or not known
};
TypeFacts read_type_facts(const net::XmlElement& type);

// One machine or gang as a RunInstances request.
struct Launch {
  const Order* order = nullptr;
  std::string installation, pool;
  std::string subnet, group, user_data;
  Image image;
  std::string instance_profile;
  std::int64_t volume_gib = 200;
  bool public_address = true;
  std::string placement_group;  // cluster placement group of a gang; empty: none
  TypeFacts facts;
};
void add_adapters(Parameters& out, const Launch& launch);
Parameters run_instances(const Launch& launch);
std::string client_token(const std::string& installation,
                         const std::string& machine,
                         const std::string& subnet);

// A cache disk as a CreateVolume request.
struct DiskOrder {
  std::string name, installation, pool, zone, token;
  std::int64_t gib = 0;
};
Parameters create_volume(const DiskOrder& order);
// Two disks of one name: an order was repeated, and its token was not known any more. One keeps the
// name; the others get names that nobody ordered, so that they are listed and ended as strays.
void name_surplus(std::vector<MachineSighting>& disks);

// One page of DescribeInstances: adds to what was seen of each machine.
struct SeenInstance {
  std::string id, state, reason, region;
  WallTime launched, ended;
};
using SeenMachines = std::map<std::string, std::vector<SeenInstance>>;
void read_instances(const net::XmlElement& page, const std::string& region, SeenMachines& out);
MachineSighting sighting_of(const std::string& machine, const std::vector<SeenInstance>& instances);

class Ec2Pool final : public Pool {
 public:
  Ec2Pool(billow::Pool settings, pool::Options options, Variables variable);
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  Status attach(const MachineSighting& machine, const MachineSighting& disk) override;
  Result<std::vector<MachineOffer>> offers() override;
  Result<Account> account() override;

 private:
  std::string option(const char* name) const;
  std::vector<std::string> regions();
  Answer<Launch> prepare(const Order& order);
  Answer<Place> place(const std::string& region);
  Answer<Place> find_place(const std::string& region);
  Answer<std::string> security_group(const std::string& region, const std::string& vpc);
  Answer<std::string> find_or_make_group(const std::string& region, const std::string& vpc);
  Answer<Image> image(const std::string& region, const std::string& instance);
  Answer<std::string> placement_group(const std::string& region, const std::string& zone);
  // ec2_disks.cpp
  Ordered want_disk(const Machine& disk);
  Answer<void> list_disks(const std::string& region, std::vector<MachineSighting>& out);
  Status release_disk(const MachineSighting& disk);
  // ec2_types.cpp
  TypeFacts type_facts(const std::string& region, const std::string& instance);
  // ec2_offers.cpp
  Answer<std::map<std::string, std::vector<std::string>>> zones_of(
      const std::string& region, const std::vector<std::string>& instances);
  void set_spot_prices(const std::string& region,
                       const std::vector<std::string>& instances,
                       std::vector<MachineOffer>& offers);
  void add_reservations(const std::string& region, std::vector<MachineOffer>& offers);
  // ec2_account.cpp
  void check_region(const std::string& region, std::vector<std::string>& problems);
  void check_quotas(const std::string& region, std::vector<std::string>& problems);

  billow::Pool settings_;
  pool::Options options_;
  Wire wire_;
  std::mutex mutex_;  // of the four below: orders run on several threads
  std::map<std::string, Place> places_;
  std::map<std::string, Image> images_;
  std::set<std::string> groups_;  // placement groups that exist
  std::map<std::string, TypeFacts> types_;
};

}  // namespace billow::pool::ec2
