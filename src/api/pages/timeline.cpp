// GET /v1/timeline: what each GPU did over time. The leases of the window are read by a worker,
// with the names of their jobs; the state adds what is held now (view/timeline.h).
#include <fmt/format.h>

#include "api/call.h"
#include "base/text.h"
#include "view/timeline.h"

namespace billow::api::history {
namespace {

// A lease may hold several cards and several leases may become one block, so more are read than
// blocks are shown.
constexpr std::size_t timeline_leases_max = 20'000;
constexpr std::size_t names_max = 5'000;

struct TimelineLeases {
  std::vector<LeaseRow> rows;
  std::map<JobId, std::string> names;
  bool truncated = false;
};

Result<TimelineLeases> read_leases(const Queries& queries, WallTime from, WallTime to) {
  TimelineLeases out;
  out.rows = BILLOW_TRY(queries.leases_between(from, to, timeline_leases_max));
  out.truncated = out.rows.size() == timeline_leases_max;
  for (const LeaseRow& row : out.rows)
    if (out.names.size() < names_max && !out.names.contains(row.job)) {
      const auto job = BILLOW_TRY(queries.get_job(row.job));
      out.names[row.job] = job ? job->name : "";
    }
  return out;
}

Result<view::TimelineQuestion> question_of(const CallPtr& call) {
  const net::Request& request = call->request();
  view::TimelineQuestion out;
  out.now = call->host.now();
  const auto moment = [&](const char* name, WallTime fallback) -> Result<WallTime> {
    if (request.param(name).empty())
      return fallback;
    const auto ms = parse_int(request.param(name), 0, INT64_MAX / 1'000'000);
    if (!ms)
      return fail(Code::invalid, fmt::format("{}: {}", name, ms.error().message),
                  "give milliseconds since 1970-01-01 UTC");
    return WallTime{*ms * 1'000'000};
  };
  out.to = BILLOW_TRY(moment("to", out.now));
  out.from = BILLOW_TRY(moment("from", out.to - hours(1)));
  if (out.from >= out.to)
    return fail(Code::invalid, "from must be before to");
  out.node = std::string(request.param("node"));
  if (!out.node.empty() && !call->host.state().node_by_name(out.node))
    return fail(Code::not_found, fmt::format("there is no node \"{}\"", out.node),
                "see `billow nodes`");
  out.visible = [call](ProjectId project) {
    return may_see(*call, project).has_value();
  };
  out.readings = [call](NodeId node) {
    return call->host.readings(node);
  };
  return out;
}

}  // namespace

void timeline(CallPtr call) {
  auto question = question_of(call);
  if (!question)
    return call->fail(question.error());
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), from = question->from, to = question->to] {
        return read_leases(queries, from, to);
      },
      [call, question = *question](Result<TimelineLeases> leases) {
        if (!leases)
          return call->fail(leases.error());
        call->reply(200, view::timeline(call->host.state(), question, leases->rows, leases->names,
                                        leases->truncated));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::history
