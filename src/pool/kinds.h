// The kinds of pools that exist. This is the only place that lists them: the API checks new pools
// against it, and the head makes pools from it. README.md says how to add a kind.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pool/pool.h"

namespace billow::pool {

// An option of a kind, given as `billow pool add KIND NAME --option KEY=VALUE` and stored in
// Pool::options.
struct KindOption {
  std::string_view name;
  std::string_view help;
  bool required = false;
  // It reads files or runs programs of the head, or gives rights that the head has: only for the
  // user who started the head.
  bool heads_rights = false;
};

struct Kind {
  std::string_view name;
  PoolCapabilities capabilities;  // journaled with each new pool of this kind
  std::vector<KindOption> options;
  bool checks_options = false;  // `check` knows further options, which depend on their values
  // How long a machine's join token is valid: until it has started, at the latest.
  Duration token_life;
  bool fetches_program = false;  // its machines fetch the program from the head
  // What the general checks cannot know: whether the options fit together.
  Status (*check)(const billow::Pool& settings);
  std::unique_ptr<Pool> (*make)(const billow::Pool& settings, const Options& options);
  // What the capabilities owe to the options; null: nothing.
  void (*adjust)(const billow::Pool& settings, PoolCapabilities& capabilities) = nullptr;
};

extern const Kind azure_kind;       // azure/azure_pool.cpp
extern const Kind command_kind;     // command_pool.cpp
extern const Kind ec2_kind;         // ec2/ec2_pool.cpp
extern const Kind gce_kind;         // gce/gce_pool.cpp
extern const Kind kubernetes_kind;  // kubernetes/kubernetes_pool.cpp
extern const Kind rest_kind;        // rest/rest_pool.cpp
extern const Kind slurm_kind;       // slurm_pool.cpp

std::span<const Kind* const> kinds();
const Kind* find_kind(std::string_view name);
// How long the join tokens of machines of this kind are valid.
Duration token_life(std::string_view kind);
bool fetches_program(std::string_view kind);

// Checks the kind and its options, and gives the pool the capabilities of its kind.
Status complete_new_pool(billow::Pool& settings);

// Whether the pool has commands or options that act with the head's rights.
bool uses_heads_rights(const billow::Pool& settings);

Result<std::unique_ptr<Pool>> make_pool(const billow::Pool& settings, const Options& options);

}  // namespace billow::pool
