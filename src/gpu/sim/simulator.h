// The simulated node behind the NVML functions: cards, their holders, power, partitions, faults.
// One object per initialised library, behind one mutex.
//
// Nothing here runs by itself: every query first updates the model from the state directory and
// /proc, at most every `refresh_ns`. Load is the activity between two refreshes; energy and
// activity are its integral, so counters read at any two times agree with the load between them.
#pragma once

#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gpu/sim/load.h"
#include "gpu/sim/mig_table.h"
#include "gpu/sim/sim_holders.h"
#include "gpu/sim/spec.h"

namespace billow {

struct SimGpuProcess {
  std::int64_t pid = 0;
  std::int64_t mem_mib = 0;
  double util = 0;  // 0–1 of the card
  std::int64_t gpu_instance = -1;
};

struct SimMigInstance {
  unsigned id = 0;       // 1…, as drivers count
  unsigned profile = 0;  // index into the profiles of the card
  unsigned start = 0;
  bool compute = false;  // has its compute instance
};

struct SimEvent {
  unsigned gpu = 0;
  bool xid = true;  // false: a double-bit memory error
  std::int64_t value = 0;
};

struct SimCard {
  unsigned index = 0;
  SimGpu spec;
  std::string uuid;
  std::string bus_id;
  unsigned numa = 0;
  std::vector<unsigned>
      links;  // link number → index of the card at its end; switched cards: own index
  std::vector<SimMigProfile> profiles;
  std::vector<SimMigInstance> instances;
  bool lost = false;
  bool hung = false;
  bool hot = false;  // reduces its clocks
  std::int64_t link_errors = 0;
  std::int64_t ecc_uncorrected = 0;
  double load = 0;         // 0–1
  double activity_ns = 0;  // integral of SM activity
  double tensor_ns = 0;
  double dram_ns = 0;
  double energy_mj = 0;
  std::int64_t mem_used_mib = 0;
  std::vector<SimGpuProcess> processes;

  double sm_activity() const { return hung ? 0.008 : load; }
  double power_w() const;
  int util_pct() const { return hung ? 100 : static_cast<int>(std::lround(load * 100)); }
};

class Simulator {
 public:
  static Result<std::unique_ptr<Simulator>> create(SimSpec spec, std::string state_dir);

  std::mutex mutex;  // held by every caller of the functions below

  std::vector<SimCard>& cards() { return cards_; }
  const SimSpec& spec() const { return spec_; }
  void refresh();
  std::int64_t now_ns() const;
  std::int64_t refreshed_ns() const { return refreshed_ns_; }

  // The log of injected errors, in order; a reader keeps its own position.
  const std::vector<SimEvent>& events() const { return events_; }

  bool fabric(const SimCard& a, const SimCard& b) const;
  // The number of PCIe hops, as NVML's topology levels.
  unsigned pcie_level(const SimCard& a, const SimCard& b) const;

  // MIG: the number of the profile with that id on the card, or -1. Created instances are kept in
  // the state directory.
  int profile_by_id(const SimCard& card, unsigned id) const;
  std::vector<unsigned> free_starts(const SimCard& card, unsigned profile) const;
  const SimMigInstance* create_instance(SimCard& card, unsigned profile, unsigned start);
  bool destroy_instance(SimCard& card, unsigned id);
  bool set_compute(SimCard& card, unsigned id, bool present);

 private:
  struct HoldFile {
    std::int64_t mtime_ns = -1;
    std::uint64_t inode = 0;
    std::vector<SimHoldEntry> entries;
    std::uint64_t round = 0;
  };

  Simulator(SimSpec spec, std::string state_dir)
      : spec_(std::move(spec)), state_dir_(std::move(state_dir)) {}
  void lay_out();
  void read_holds();
  void read_faults(bool first);
  void apply_loads();
  void read_mig();
  void write_mig();

  SimSpec spec_;
  std::string state_dir_;
  std::vector<SimCard> cards_;
  std::map<std::string, HoldFile> holds_;
  std::uint64_t hold_round_ = 0;
  SimMeter meter_;
  std::vector<SimEvent> events_;
  std::multiset<SimFault> faults_seen_;
  std::int64_t faults_mtime_ns_ = -1;
  std::uint64_t faults_inode_ = 0;
  std::int64_t mig_mtime_ns_ = -1;
  std::uint64_t mig_inode_ = 0;
  std::int64_t refreshed_ns_ = 0;
  std::int64_t faults_looked_ns_ = 0;
};

}  // namespace billow
