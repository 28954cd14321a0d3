// The documents of `billow install kubernetes`: a head in a cluster with the least rights. The Helm
// chart has the same documents with its values in place of ours.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace billow::pool {

struct InstallSettings {
  std::string name_space = "billow";
  std::string image;             // contains the program `billow`
  bool pool_only = false;        // only the account and role of a head that runs elsewhere
  std::string storage = "20Gi";  // of the head's volume
  bool postgres = false;         // state in the database of the secret billow-store; two heads
  // With postgres: storage class of a volume that both heads write, for uploaded files and the key
  // of secrets; empty: none.
  std::string files_class;
  std::string host;          // of an Ingress; empty: none
  bool pod_monitor = false;  // for the Prometheus operator
  bool daemon_set = false;   // every node with GPUs becomes a Billow node
};

std::vector<Json> install_manifests(const InstallSettings& settings);
// The table of rights for the documentation.
std::string rights_table();

}  // namespace billow::pool
