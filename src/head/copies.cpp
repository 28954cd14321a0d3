#include "head/copies.h"

namespace billow::head {

using namespace wire::agent_v1;

namespace {
constexpr Duration begin_patience = seconds(15);
}

void Copies::start(NodeId node, CopyFiles request, SteadyTime now, Done done) {
  request.request = next_++;
  waiting_[request.request] = {node, now + begin_patience, std::move(done)};
  if (!send_(node, encode_copy(request)))
    finish(request.request,
           fail(Code::unavailable, "the job's node does not answer", "try again when it is back"));
}

void Copies::finish(std::uint64_t request, Result<std::string> result) {
  const auto found = waiting_.find(request);
  if (found == waiting_.end())
    return;
  const Done done = std::move(found->second.done);
  waiting_.erase(found);
  done(std::move(result));
}

void Copies::take(NodeId from, const FilesCopied& answer) {
  const auto found = waiting_.find(answer.request);
  if (found == waiting_.end() || found->second.node != from)
    return;
  if (answer.began)
    found->second.begin_by = {};
  else if (!answer.error.empty())
    finish(answer.request, fail(Code::conflict, answer.error));
  else
    finish(answer.request, answer.tree);
}

void Copies::node_gone(NodeId node) {
  std::vector<std::uint64_t> theirs;
  for (const auto& [request, w] : waiting_)
    if (w.node == node)
      theirs.push_back(request);
  for (const std::uint64_t request : theirs)
    finish(request, fail(Code::unavailable, "the job's node no longer answers",
                         "try again when it is back"));
}

void Copies::look(SteadyTime now) {
  std::vector<std::uint64_t> late;
  for (const auto& [request, w] : waiting_)
    if (w.begin_by.ns > 0 && now > w.begin_by)
      late.push_back(request);
  for (const std::uint64_t request : late)
    finish(request,
           fail(Code::unsupported, "the agent of the job's node cannot copy files of running jobs",
                "upgrade the agent, or wait until the job has ended"));
}

}  // namespace billow::head
