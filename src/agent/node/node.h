// The agent process: one per node. It dials the head, carries out the effects of the pure core
// (core/agent), and connects the core to supervisors, task directories, control groups, GPUs and
// logs. It may die at any moment: everything it knows is in the task directories and a small memory
// file, and the tasks it started do not depend on it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/users.h"
#include "base/limits.h"
#include "base/result.h"
#include "net/http/certificate_keeper.h"
#include "net/tls.h"

namespace billow::agent {

struct NodeOptions {
  // "unix:/…/head.sock", "http://…", "https://…"; several heads of one store, separated by commas.
  std::string head;
  std::string token_file;
  std::string data_dir;
  std::string sim;        // simulated GPUs: "8xH100"
  std::string node_name;  // empty: the host's name
  std::string version;
  // Host memory for the GPU memory of suspended tasks; -1: chosen by the machine's size; 0: none.
  std::int64_t arena_bytes = -1;
  // That memory with what is not pinned, and disk space below it; -1: chosen.
  std::int64_t sleep_memory_bytes = -1, sleep_disk_bytes = -1;
  net::CertificatePlace certificate;          // that it shows the head, and how to trust that
  std::map<std::string, std::string> labels;  // zone=a: what jobs may ask for
  std::string only_gpus;           // "0,2" or UUIDs, if an engine gave us some; "none"; empty: all
  bool allow_mig_changes = false;  // MIG instances are created and removed as jobs need them
  // An engine owns the node: tasks end with the agent, and a signal means that the engine reclaims
  // the node.
  bool in_allocation = false;
  // After that signal the agent leaves, even if its tasks have not: just before the engine would
  // kill it. (Slurm does so after 30 s.)
  Duration leave_within = seconds(20);
  bool jobs_as_agent = false;                 // every job runs as the agent's own user
  std::optional<UserRecord> without_account;  // see Tasks::Options
  // Limit for models and data from outside, and separately for projects' cache directories.
  std::uint64_t cache_bytes_max = 100ull << 30;
  std::uint64_t images_bytes_max = 100ull << 30;         // container images, per user
  Duration pull_patience = limits::container_quiet_max;  // cancel a fetch without progress
  std::uint64_t files_bytes_max = 20ull << 30;           // cached files of jobs
  // "auto", "aws", "gcp", "azure": watch the cloud's metadata for a reclaim notice; empty: do not.
  std::string reclaim_notices;
  std::string metadata_url;       // of the cloud's metadata service; empty: the usual address
  std::string metrics;            // address that serves this node's /metrics; empty: none
  bool allow_metadata = false;    // jobs may use the cloud's metadata service
  bool metadata_closed = false;   // as in NodeRules, if the policy does not say it
  bool allow_namespaces = false;  // jobs may create user namespaces
  std::string pool;               // empty: the node joined by itself
  bool bills = false;             // the node costs money while it exists: it is released when idle
  std::string end_command;        // releases the node; run by /bin/sh; empty: the agent just ends
  // Working directories of jobs are below it; empty: /var/tmp.
  std::string work_under;
  // Files, images and caches of jobs are there, and may be from an earlier node; empty: in the data
  // and working directories. Only the agent's user can write it.
  std::string cache_dir;
  // The socket of the node's root helper (agent/task/rights), for an agent that is not root
  // and whose jobs run as the accounts of their users; empty: none.
  std::string root_helper;
  std::string policy_file;  // node_policy.h; empty: BILLOW_NODE_POLICY, or the usual place
};

// Runs until the head or a signal ends it. An error says why it could not start.
Status run_node(NodeOptions options);

}  // namespace billow::agent
