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

std::vector<std::vector<TaskPlace>> places_by_attempt(const control::State& state,
                                                      const std::vector<LeaseRow>& leases,
                                                      std::uint64_t nodes) {
  struct Held {
    NodeId node;
    WallTime from, to;
  };
  std::map<TaskId, Held> tasks;  // a suspended one has several leases
  for (const LeaseRow& row : leases) {
    const Node* on = state.node_by_name(row.node_name);
    const WallTime to = row.open ? WallTime{INT64_MAX} : row.to;
    const auto [at, fresh] = tasks.try_emplace(row.task, Held{{}, row.from, to});
    at->second.node = on ? on->id : NodeId{};  // none: the head may have a copy
    at->second.from = std::min(at->second.from, row.from);
    at->second.to = std::max(at->second.to, to);
  }
  std::vector<std::vector<TaskPlace>> attempts;
  WallTime ended;
  for (const auto& [task, held] : tasks) {
    if (attempts.empty() || (attempts.back().size() >= nodes && held.from >= ended)) {
      attempts.emplace_back();
      ended = {};
    }
    attempts.back().push_back({task, held.node});
    ended = std::max(ended, held.to);
  }
  return attempts;
}

void with_place(CallPtr call,
                WantedLog wanted,
                const Json& document,
                std::function<void(std::optional<TaskPlace>)> then) {
  const std::uint64_t newest = document["attempt"].uint_or(0);
  if (wanted.attempt > newest)
    return call->fail(
        {Code::not_found,
         fmt::format("job {} has had {} attempt{}, and no attempt {}",
                     document["label"].str_or("?"), newest, newest == 1 ? "" : "s", wanted.attempt),
         newest ? fmt::format("use --attempt 1{}", newest > 1 ? fmt::format(" to {}", newest) : "")
                : "it has not started yet"});
  const bool placed = !document["tasks"].items().empty();
  if (placed && (wanted.attempt == 0 || wanted.attempt == newest))
    return then(place_of(document, wanted.rank));
  // Between two attempts, the newest that has ended.
  if (wanted.attempt == 0)
    wanted.attempt = newest;
  if (wanted.attempt == 0)
    return then(std::nullopt);
  Host& host = call->host;
  const Status queued = host.workers().submit(
      [&queries = host.queries(), job = wanted.job] {
        return queries.leases(
            {.project = {}, .job = job, .from = {}, .before = {}, .after = {}, .limit = 10'000});
      },
      [call, wanted, then = std::move(then),
       nodes = std::max<std::uint64_t>(1, document["members"].uint_or(document["nodes"].uint_or(
                                              1)))](const Result<std::vector<LeaseRow>>& rows) {
        if (!rows)
          return call->fail(rows.error());
        const auto attempts = places_by_attempt(call->host.state(), *rows, nodes);
        const auto rank = static_cast<std::size_t>(wanted.rank);
        if (wanted.attempt <= attempts.size() && rank < attempts[wanted.attempt - 1].size())
          return then(attempts[wanted.attempt - 1][rank]);
        call->fail({Code::not_found, fmt::format("attempt {} has no task with rank {}",
                                                 wanted.attempt, wanted.rank)});
      });
  if (!queued)
    call->fail(queued.error());
}

std::optional<TerminalWindows::Size> TerminalWindows::set(TaskId terminal,
                                                          const void* window,
                                                          Size size) {
  const auto at = terminals_.try_emplace(terminal).first;
  at->second.windows[window] = size;
  return fit(at);
}

std::optional<TerminalWindows::Size> TerminalWindows::remove(TaskId terminal, const void* window) {
  const auto at = terminals_.find(terminal);
  if (at == terminals_.end() || at->second.windows.erase(window) == 0)
    return std::nullopt;
  return fit(at);
}

void TerminalWindows::missed(TaskId terminal) {
  if (const auto at = terminals_.find(terminal); at != terminals_.end())
    at->second.size = {};
}

std::optional<TerminalWindows::Size> TerminalWindows::fit(
    std::map<TaskId, Terminal>::iterator terminal) {
  Terminal& t = terminal->second;
  if (t.windows.empty()) {  // it keeps its size until somebody attaches
    terminals_.erase(terminal);
    return std::nullopt;
  }
  Size smallest = t.windows.begin()->second;
  for (const auto& [window, size] : t.windows) {
    smallest.rows = std::min(smallest.rows, size.rows);
    smallest.cols = std::min(smallest.cols, size.cols);
  }
  if (std::exchange(t.size, smallest) == smallest)
    return std::nullopt;
  return smallest;
}

}  // namespace billow::api::streams
