// Which accounts of this machine jobs may run as, and which images they may have. The machine's
// owner says so in a file that only root can write; nothing that a head sends overrides it. Without
// a file: accounts with a number from 1000 on (except nobody, 65534), the agent's own account
// unless it is root, and root for jobs of the Billow user "root", who is the user that started the
// head as root.
//
//   # /etc/billow/node.policy
//   allow 1000-59999        numbers
//   allow ana               an account
//   allow @ml               accounts in a group
//   deny  bob               stronger than allow
//   root  none              or the Billow users whose jobs may run as root
//   isolation strict        only jobs with strict isolation
//   tmp shared              plain jobs have the node's /tmp and /dev/shm; `private`: never
//   proc shared             plain jobs see all processes in /proc
//   metadata closed         no job that could reach the cloud's metadata service
//   replicas closed         no replica that others than gateways could call; `open`: all may
//   devices closed          no job that could open GPUs it does not have
//   disk 200GB              of the node's disk, for a job that asks for none; or half, none
//   images ghcr.io/acme/**  these images; `none`: no images
//   images pinned           only images that are named by their digest
//   images signed /etc/billow/cosign.pub   only images with a signature of one of these keys
//
// A file with an `allow` line allows nothing else; so does one that names images. What follows
// `images` may stand on one line or on several.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/isolate/users.h"
#include "agent/task/node_rules.h"
#include "base/result.h"
#include "core/model/surroundings.h"

namespace billow::agent {

inline constexpr char node_policy_path[] = "/etc/billow/node.policy";
inline constexpr char node_policy_variable[] = "BILLOW_NODE_POLICY";  // another path

struct AccountRule {
  enum class Kind { account, numbers, group };
  Kind kind = Kind::account;
  std::string name;
  std::uint32_t first = 0, last = 0;
};

// What an image must satisfy.
struct ImageRules {
  std::vector<std::string> names;  // patterns (PathGlob) for registry and repository; empty: all
  bool none = false;
  bool pinned = false;
  // A signature of one of these keys; none: signatures are not needed.
  std::vector<std::string> signer_files;
  std::string signers;  // the public keys in PEM, one after the other, read from the files
};

struct NodePolicy {
  std::vector<AccountRule> allow, deny;
  std::vector<std::string> root_for = {"root"};
  bool strict_only = false;  // no jobs but those with strict isolation
  NodeRules rules;
  ImageRules images;
};

Result<NodePolicy> parse_node_policy(std::string_view text);
// The policy of this machine, from the file at `path`, or from the usual place if it is empty. An
// error if others could have written it.
Result<NodePolicy> load_node_policy(const std::string& path);

// Whether a job of this Billow user may run as the account.
Status check_policy(const NodePolicy& policy, const std::string& owner, const UserRecord& account);
// The same for a job whose user's account does not exist here: a confined job, which needs none, or
// one that runs as another user instead (BILLOW_WITHOUT_ACCOUNT), whom check_policy judges.
Status check_policy_without_account(const NodePolicy& policy,
                                    const std::string& name,
                                    const UserRecord* instead);
// Whether a job may use this image or environment. Its signature is checked when it is fetched.
Status check_images(const ImageRules& rules, const Surroundings& asked);

}  // namespace billow::agent
