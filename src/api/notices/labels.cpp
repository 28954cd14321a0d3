// Labels of a job or array, live or ended.
#include <fmt/format.h>

#include "api/call.h"
#include "base/limits.h"
#include "view/rows.h"
#include "view/stored.h"

namespace billow::api::jobs {
namespace {

struct LabelBody {
  std::map<std::string, std::string> set;
  std::vector<std::string> remove;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("set", s.set);
    v("remove", s.remove);
  }
};

Json answer(const std::vector<Event>&) {
  return Json::object({{"ok", true}});
}

// An ended job: its row is read, changed, and written together with the event.
void label_ended(const CallPtr& call, JobId id, LabelBody body, Result<std::optional<JobRow>> row) {
  if (!row)
    return call->fail(row.error());
  if (!*row)
    return call->fail(no_job(id));
  JobRow changed = std::move(**row);
  if (!may_see(*call, changed.project))
    return call->fail(no_job(id));
  const auto document = view::stored_document(changed.doc);
  const TokenId agent(document ? (*document)["agent_token"].uint_or(0) : 0);
  if (const Status ok = may_act(*call, {changed.project, changed.user, agent}); !ok)
    return call->fail(ok.error());
  LabelJobs command{.jobs = {}, .ended = {id}, .set = std::move(body.set), .remove = body.remove};
  if (const Status ok =
          view::relabel(changed, {.jobs = {id}, .set = command.set, .remove = command.remove});
      !ok)
    return call->fail(ok.error());
  if (changed.labels.size() > limits::labels_max)
    return call->fail(
        {Code::invalid,
         fmt::format("job {} would have more than {} labels", id.value, limits::labels_max),
         "remove some of them"});
  call->host.execute_with_rows(std::move(command), call->cause(), {std::move(changed)},
                               [call](Result<std::vector<Event>> events) {
                                 if (!events)
                                   return call->fail(events.error());
                                 call->reply(200, answer(*events));
                               });
}

}  // namespace

void set_labels(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  auto body = read_body<LabelBody>(call);
  if (!body)
    return;
  const JobId id = ref->id;
  if (const auto owner = owner_of(call->host.state(), id)) {
    if (const Status ok = may_act_on(*call, id, *owner); !ok)
      return call->fail(ok.error());
    return call->execute(
        LabelJobs{.jobs = {id}, .ended = {}, .set = std::move(body->set), .remove = body->remove},
        200, answer);
  }
  // The row of a job that has just ended is written when the end is durable.
  call->host.when_durable([call, id, body = std::move(*body)] {
    const Status queued = call->host.workers().submit(
        [&queries = call->host.queries(), id] { return queries.get_job(id); },
        [call, id, body](Result<std::optional<JobRow>> row) {
          label_ended(call, id, body, std::move(row));
        });
    if (!queued)
      call->fail(queued.error());
  });
}

}  // namespace billow::api::jobs
