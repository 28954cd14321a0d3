// The agent process: one per node. It dials the head, does what the pure core (core.h) says, and
// connects the core to the real things: supervisors, task directories, control groups, GPUs, logs.
// It may die at any moment: everything it knows is in the task directories and a small memory file,
// and what it starts does not depend on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "net/tls.h"

namespace billow::agent {

struct NodeOptions {
  std::string
      head;  // "unix:/…/head.sock", "http://…", "https://…"; several heads of one store with commas
  std::string token_file;
  std::string data_dir;
  std::string sim;        // simulated GPUs: "8xH100"
  std::string node_name;  // empty: the host's name
  std::string version;
  std::int64_t arena_bytes =
      -1;  // of host memory for the GPU memory of suspended tasks; -1: by the machine; 0: none
  net::TlsClientOptions tls;  // whom to trust, for https
  std::map<std::string, std::string>
      labels;  // zone=a: what jobs may ask for, and where the node stands
  std::string
      only_gpus;  // "0,2" or UUIDs: what an engine gave us; "none": no GPU; empty: all there are
  bool allow_mig_changes = false;  // MIG instances are made and taken down as jobs need them
  bool in_allocation = false;  // an engine ends us: tasks end with us, and a signal means that the
                               // node is taken away
  std::uint64_t cache_bytes_max = 100ull << 30;   // of models and data from elsewhere, and again as
                                                  // much of what projects' jobs keep here
  std::uint64_t images_bytes_max = 100ull << 30;  // of container images, of each user
  Duration pull_patience = limits::room_quiet_max;  // an image or environment that makes no
                                                    // progress for so long is given up
  std::uint64_t files_bytes_max = 20ull
                                  << 30;  // of what followed jobs here, kept for the next ones
  std::string reclaim_notices;  // "auto", "aws", "gcp", "azure": this machine may be taken away,
                                // and its cloud's metadata says so first; empty: nobody looks
  std::string metadata_url;     // where that is read; empty: where clouds have it
  std::string metrics;          // address where /metrics of this node is served; empty: nowhere
  std::string pool;             // empty: it joined by itself
  bool bills =
      false;  // somebody sends a bill for every hour it exists: it is given back when nothing runs
  std::string end_command;  // how it is given back; run by /bin/sh; empty: the agent just ends
};

// Runs until told to leave or a signal. An error says why it could not start.
Status run_node(NodeOptions options);

}  // namespace billow::agent
