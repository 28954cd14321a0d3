// The terms on which the agent fetches a job's inputs. They are noted when the task starts and kept
// with it, because the agent fetches as root and in the node's network: what a job says later must
// not decide where the agent connects to, or what it sends there.
#pragma once

#include <string>
#include <vector>

#include "core/wire/agent_v1.h"
#include "s3/sign.h"

namespace billow::agent {

struct InputTerms {
  bool noted = false;         // false: an earlier version started the task
  bool node_network = false;  // the job itself reaches what its node reaches
  // Otherwise: private networks (AddressBlock) that it reaches besides public addresses.
  std::vector<std::string> allow;
  std::string salt, keys;  // the digest of the credentials in the order, not the credentials
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("noted", s.noted);
    v("node_network", s.node_network);
    v("allow", s.allow);
    v("salt", s.salt);
    v("keys", s.keys);
  }
};

// Empty for a job without inputs.
InputTerms input_terms(const wire::agent_v1::Start& start);
// From the notes of a task (TaskRecord::meta).
InputTerms input_terms_in(const std::string& meta);
// Whether these are the credentials of the order.
bool are_submitted_keys(const InputTerms& terms, const s3::Access& offered);

// Which inputs a task has got. When it has all of them its command starts, and nothing more is
// fetched for it. Kept in a file, so that a restarted agent knows it too.
class BroughtInputs {
 public:
  // `wishes`: all inputs of the task, a "URL<tab>path" each.
  BroughtInputs(std::string file, std::vector<std::string> wishes)
      : file_(std::move(file)), wishes_(std::move(wishes)) {}
  bool all() const;
  Status add(const std::string& wish) const;

 private:
  std::string file_;
  std::vector<std::string> wishes_;
};

}  // namespace billow::agent
