// Copies into and out of running jobs that are under way: matches agents' answers to requests.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/wire/copy.h"

namespace billow::head {

class Copies {
 public:
  using Send = std::function<bool(NodeId, const std::string& frame)>;
  using Done = std::function<void(Result<std::string> tree)>;
  explicit Copies(Send send) : send_(std::move(send)) {}

  void start(NodeId node, wire::agent_v1::CopyFiles request, SteadyTime now, Done done);
  void take(NodeId from, const wire::agent_v1::FilesCopied& answer);
  void node_gone(NodeId node);
  void look(
      SteadyTime now);  // on a timer: an agent that does not say it began is too old for copies

 private:
  struct Waiting {
    NodeId node;
    SteadyTime begin_by;  // zero: it has begun
    Done done;
  };
  void finish(std::uint64_t request, Result<std::string> result);

  Send send_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Waiting> waiting_;
};

}  // namespace billow::head
