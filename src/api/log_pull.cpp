#include "api/log_pull.h"

#include <fmt/format.h>

#include "base/text.h"
#include "view/waiting.h"

namespace billow::api::streams {

std::optional<TaskPlace> place_of(const Json& document, std::int64_t rank) {
  for (const Json& task : document["tasks"].items())
    if (task["rank"].int_or(-1) == rank)
      return TaskPlace{TaskId(task["id"].uint_or(0)), NodeId(task["node_id"].uint_or(0))};
  return std::nullopt;
}

LogPull::LogPull(Host& host, Options options, OnRecords fn)
    : host_(host), options_(options), fn_(std::move(fn)) {}

void LogPull::next() {
  const wire::agent_v1::LogRead request{.subscription = 0,
                                        .task = options_.place.task,
                                        .offset = options_.offset,
                                        .tail_bytes = options_.tail,
                                        .follow = options_.follow};
  request_ =
      host_.read_log(options_.place.node, request,
                     [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
                       const auto self = weak.lock();
                       if (!self)
                         return;
                       if (chunk.error.empty()) {
                         self->options_.offset = chunk.next_offset;
                         self->options_.tail = -1;
                       }
                       self->fn_(chunk, frames);
                     });
}

std::string away_words(const Host& host, NodeId id) {
  const control::State& state = host.state();
  const auto node = state.nodes.find(id);
  const Duration away =
      node == state.nodes.end() ? Duration{} : view::away_for(node->second, host.billed());
  if (away.ns == 0)
    return {};
  return fmt::format("node {} has been unreachable for {}; the job's log is kept on it",
                     node->second.offer.name, format_duration(seconds(away.ns / 1'000'000'000)));
}

Status may_still_see(Call& call, ProjectId project) {
  BILLOW_TRY_VOID(call.still_allowed());
  if (may_see(call, project))
    return {};
  return fail(Code::forbidden, "you are no longer a member of the job's project");
}

ProjectId project_of(const Call& call, const Json& document) {
  const Project* project = call.host.state().project_by_name(document["project"].str_or(""));
  return project ? project->id : ProjectId{};
}

}  // namespace billow::api::streams
