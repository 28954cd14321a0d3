// Pools: where machines come from that are not there yet, and the machines asked of them. A pool is
// a promise ("up to sixteen nodes of eight H100 out of this Slurm partition"); a machine is one
// order of it, written down before anything is rented, so that whatever exists out there under our
// name and is not written down here is a stray.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"
#include "base/money.h"

namespace billow {

enum class PoolKind {
  slurm,    // allocations of a Slurm cluster, in which agents start
  command,  // three commands of the administrator: create, list, delete
};
BILLOW_ENUM_NAMES(PoolKind, {PoolKind::slurm, "slurm"}, {PoolKind::command, "command"});

struct Pool {
  PoolId id;
  std::string name;
  PoolKind kind = PoolKind::command;
  std::uint32_t machines_min = 0;  // kept even when nobody needs them
  std::uint32_t machines_max = 1;
  Duration idle = minutes(5);  // without work for this long, a machine is given back
  Duration patience =
      minutes(2);  // a machine that is not here after this long: the next pool is asked as well
  std::int32_t order = 0;  // lower first; then the cheaper, then the older pool
  std::string gpu_type;    // "H100"; empty: machines without GPUs
  std::int32_t gpus = 0;   // of one machine
  Rate price;              // of one machine; zero: not known
  bool spot = false;       // its machines may be taken away
  std::string head_url;    // what its machines dial; empty: the head's own address
  std::map<std::string, std::string> labels;  // given to its nodes
  std::string sim;                            // its agents simulate their GPUs
  // ---- Slurm
  std::string partition;
  std::string gres;  // "gpu:h100", without the count
  Duration time;     // of an allocation; zero: the partition's default
  std::vector<std::string> sbatch_args;
  // ---- command
  std::string create_command, list_command, delete_command;
  // ---- what became of the last orders
  WallTime denied_until;  // not asked again before
  std::string denied;     // why

  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("kind", kind);
    v("machines_min", machines_min);
    v("machines_max", machines_max);
    v("idle_ns", idle);
    v("patience_ns", patience);
    v("order", order);
    v("gpu_type", gpu_type);
    v("gpus", gpus);
    v("price_nano_usd_per_s", price.nano_usd_per_s);
    v("spot", spot);
    v("head_url", head_url);
    v("labels", labels);
    v("sim", sim);
    v("partition", partition);
    v("gres", gres);
    v("time_ns", time);
    v("sbatch_args", sbatch_args);
    v("create_command", create_command);
    v("list_command", list_command);
    v("delete_command", delete_command);
    v("denied_until_ns", denied_until);
    v("denied", denied);
  }
};

enum class MachineState {
  wanted,     // written down; the pool is asked for it
  here,       // an agent of it has said hello
  releasing,  // it is given back, until the pool no longer lists it
};
BILLOW_ENUM_NAMES(MachineState,
                  {MachineState::wanted, "wanted"},
                  {MachineState::here, "here"},
                  {MachineState::releasing, "releasing"});

// One order: a rented machine, or an allocation of several nodes for a gang.
struct Machine {
  std::string name;  // unique; nodes of it are NAME, or NAME.0, NAME.1 … when there are several
  PoolId pool;
  std::uint32_t nodes = 1;
  std::int32_t gpus = 0;  // of each node
  MachineState state = MachineState::wanted;
  WallTime wanted_at;
  WallTime here_at;
  WallTime idle_since;   // none of its nodes has work since; zero: some has, or it is not here
  WallTime ends_at;      // the engine ends it then; zero: not known
  std::string external;  // the engine's name for it: a Slurm job number, an instance id
  std::string note;      // what the engine says of it: "PENDING (Resources)"
  std::string reason;    // why it is released

  template <class V>
  void fields(V& v) {
    v("name", name);
    v("pool", pool);
    v("nodes", nodes);
    v("gpus", gpus);
    v("state", state);
    v("wanted_at_ns", wanted_at);
    v("here_at_ns", here_at);
    v("idle_since_ns", idle_since);
    v("ends_at_ns", ends_at);
    v("external", external);
    v("note", note);
    v("reason", reason);
  }
};

// What a look into the engine tells of one machine.
struct MachineSighting {
  std::string name;
  std::string external;
  std::string note;
  WallTime ends_at;
  bool operator==(const MachineSighting&) const = default;
};

}  // namespace billow
