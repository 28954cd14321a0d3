// What Azure Resource Manager answers: machines, operations, sizes, and errors as refusals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "pool/oauth/api_client.h"

namespace billow::pool {

struct AzureMachine {
  std::string machine;  // its name here
  std::string name;     // of the virtual machine
  std::string installation, pool;
  std::string state;  // "Creating", "Succeeded", "Failed", "Deleting" …
};
AzureMachine read_azure_machine(const Json& json);

struct AzureMachinePage {
  std::vector<AzureMachine> machines;
  std::string next;  // URL of the next page; empty: this is the last
};
AzureMachinePage read_azure_page(const Json& json);

struct AzureOperation {
  bool done = false;
  std::optional<Refusal> refusal;  // why it failed
};
AzureOperation read_azure_operation(const Json& json, bool spot);

// What a machine in the state Failed says about itself. Empty: it runs all the same; only a later
// change to it has failed.
std::optional<Refusal> read_azure_failure(const Json& machine_with_view);

// An error answer to a request.
Refusal azure_refusal(const ApiAnswer& answer, bool spot);
std::string azure_error_text(const ApiAnswer& answer);
std::string_view azure_error_code(const Json& body);

// A size of machine in one region.
struct AzureSize {
  std::string name;
  std::vector<std::string> zones;  // "1", "2", "3" that this subscription may use
  bool regional = false;           // also without a zone
  bool spot = false;
  bool infiniband = false;  // between machines of one scale set
  std::int32_t gpus = 0;
  std::int32_t cpus = 0;
  std::int64_t memory_mib = 0;
};
struct AzureSizePage {
  std::vector<AzureSize> sizes;  // with GPUs
  std::string next;
};
AzureSizePage read_azure_sizes(const Json& json, const std::string& region);

// Whether a role's actions ("*", "Microsoft.Compute/*/read") cover one.
bool azure_action_granted(const Json& permissions, const std::string& action);

}  // namespace billow::pool
