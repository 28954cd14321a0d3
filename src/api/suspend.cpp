// The routes that suspend and resume a job, or restart a part of it. The first two answer with the
// job as it is then: a suspend is under way until the job's node has saved its memory, and a resume
// until its GPUs are free again.
#include <fmt/format.h>

#include "api/call.h"
#include "base/formats/utc.h"
#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/ledger/focus.h"

namespace billow::api::jobs {
namespace {

std::string_view how_it_ended(std::string_view state) {
  return state == "lost" || state == "stopped" ? (state == "lost" ? "was lost" : "was stopped")
                                               : state;
}

// The job's number, where the caller may act on it; else the call has been answered.
std::optional<JobId> job_to_act_on(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref) {
    call->fail(ref.error());
    return std::nullopt;
  }
  const auto owner = owner_of(call->host.state(), ref->id);
  if (!owner) {  // it ended, and the answer says when and how; or it never was
    with_job_document(call, ref->id, [call](Json document) {
      const std::string_view state = document["state"].str_or("");
      const std::string exit(document.at("exit", "text").str_or("")),
          label(document["label"].str_or("?"));
      const auto ended = parse_utc(document["ended_at"].str_or(""));
      call->fail(
          {Code::conflict,
           fmt::format("job {} has ended: it {}{}{}", label, how_it_ended(state),
                       ended ? " " + relative_time(*ended, call->host.now(), Zone::utc) : "",
                       exit.empty() || exit == "done" || exit == state ? "" : ": " + exit),
           fmt::format("only running jobs can be suspended, and only suspended jobs resumed; see "
                       "`billow describe {}`",
                       label)});
    });
    return std::nullopt;
  }
  if (const Status ok = may_act_on(*call, ref->id, *owner); !ok) {
    call->fail(ok.error());
    return std::nullopt;
  }
  return ref->id;
}

void order(CallPtr call, JobId id, const Command& command) {
  call->host.execute(command, call->cause(), [call, id](Result<std::vector<Event>> events) {
    if (!events)
      return call->fail(events.error());
    with_job_document(call, id, [call](Json document) { call->reply(200, document); });
  });
}

struct SuspendBody {
  std::string reason;
  SuspendMode mode = SuspendMode::warm;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reason", s.reason);
    v("mode", s.mode);
  }
};
struct ResumeBody {
  bool on_demand = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("on_demand", s.on_demand);
  }
};
struct RestartBody {
  std::string role;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("role", s.role);
  }
};

}  // namespace

void suspend(CallPtr call) {
  const auto body = read_body<SuspendBody>(call);
  if (!body)
    return;
  const auto id = job_to_act_on(call);
  if (!id)
    return;
  std::string reason(utf8_prefix(body->reason, limits::reason_bytes_max));
  if (reason.empty())
    reason = "suspended by " + call->caller();
  order(call, *id, SuspendJob{*id, std::move(reason), SuspendCause::request, body->mode});
}

void resume(CallPtr call) {
  const auto body = read_body<ResumeBody>(call);
  if (!body)
    return;
  const auto id = job_to_act_on(call);
  if (id)
    order(call, *id, ResumeJob{*id, body->on_demand});
}

// Members of a group start again; the others continue.
void restart(CallPtr call) {
  const auto body = read_body<RestartBody>(call);
  if (!body)
    return;
  if (body->role.empty())
    return call->fail({Code::invalid, "role is missing: the role to restart",
                       "example: {\"role\": \"rollout\"}, or \"rollout.2\" for one member"});
  const auto id = job_to_act_on(call);
  if (id)
    order(call, *id, RestartRole{*id, body->role, "restarted by " + call->caller()});
}

}  // namespace billow::api::jobs
