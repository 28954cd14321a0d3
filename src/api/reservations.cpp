// The routes of reservations, and the documents of what projects share: quotas and reserved GPUs.
#include <fmt/format.h>
#include <algorithm>

#include "api/call.h"
#include "base/text.h"
#include "core/ledger/meter.h"
#include "core/wire/codec.h"
#include "view/fleet_documents.h"
#include "view/names.h"

namespace billow::api {

namespace reservations {
namespace {

struct Body {
  std::string name, project;
  Resources resources;
  std::uint32_t nodes = 1;
  PlaceWish place;
  std::map<std::string, std::string> node_labels;
  WallTime from, until;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("project", s.project);
    v("resources", s.resources);
    v("nodes", s.nodes);
    v("place", s.place);
    v("node_labels", s.node_labels);
    v("from_ns", s.from);
    v("until_ns", s.until);
  }
};

// A reservation takes room from everybody: it is for those who answer for the project.
Status may_reserve(const Call& call, ProjectId project) {
  const auto role = control::role_in(call.host.state(), call.principal, project);
  if (role == Role::admin)
    return {};
  return fail(Code::forbidden,
              fmt::format("only an admin of project {} may reserve for it",
                          call.host.state().projects.at(project).name),
              "ask one of its admins");
}

// Spot work on the cards that were reserved: it is asked to leave when the reservation begins, and
// whoever reserved should know. Of others' jobs only that there are some.
Json asked_to_leave(const Call& call, const Reservation& r, std::uint64_t& others) {
  const auto& state = call.host.state();
  Json out = Json::array();
  for (const auto& [id, task] : state.tasks) {
    const Job& job = state.jobs.at(task.job);
    if (!task.holds_gpus() || !job.spec->spot || task.reservation == r.id)
      continue;
    const bool there =
        std::any_of(r.places.begin(), r.places.end(), [&](const ReservedPlace& place) {
          return place.node == task.node &&
                 std::any_of(place.gpus.begin(), place.gpus.end(), [&](const GpuGrant& g) {
                   return std::any_of(task.gpus.begin(), task.gpus.end(),
                                      [&](const GpuGrant& held) { return held.gpu == g.gpu; });
                 });
        });
    if (!there)
      continue;
    if (!may_see(call, job.project))
      ++others;
    else
      out.push(Json::object(
          {{"job", view::job_label(job)},
           {"name", job.spec->name},
           {"user", state.users.contains(job.user) ? state.users.at(job.user).name : ""}}));
  }
  return out;
}

}  // namespace

void make(CallPtr call) {
  auto body = read_body<Body>(call);
  if (!body)
    return;
  const auto asked = project_to_submit_to(*call, body->project);
  if (!asked)
    return call->fail(asked.error());
  const auto& state = call->host.state();
  if (const Project* project = asked->empty() ? nullptr : state.project_by_name(*asked)) {
    if (const Status ok = may_reserve(*call, project->id); !ok)
      return call->fail(ok.error());
  } else if (asked->empty()) {  // the core takes the first one: of those it may reserve for
    for (const auto& [id, p] : state.projects)
      if (p.members.contains(call->principal.name)) {
        if (const Status ok = may_reserve(*call, id); !ok)
          return call->fail(ok.error());
        break;
      }
  }
  Reserve command{.name = body->name,
                  .project = *asked,
                  .user = call->principal.user,
                  .resources = body->resources,
                  .nodes = body->nodes,
                  .place = body->place,
                  .node_labels = body->node_labels,
                  .from = body->from ? body->from : call->host.now(),
                  .until = body->until};
  call->execute(std::move(command), 201, [call](const std::vector<Event>& events) {
    for (const Event& event : events)
      if (const auto* made = get_if<ReservationMade>(&event.body)) {
        Json document =
            view::reservation_document(call->host.state(), made->reservation, call->host.now());
        std::uint64_t others = 0;
        document.set("asked_to_leave", asked_to_leave(*call, made->reservation, others));
        document.set("others_asked_to_leave", others);
        return document;
      }
    return Json::object();
  });
}

void list(CallPtr call) {
  Json out = Json::array();
  const auto& state = call->host.state();
  for (const auto& [id, r] : state.reservations) {
    if (!control::role_in(state, call->principal, r.project))
      continue;
    out.push(view::reservation_document(state, r, call->host.now()));
  }
  call->reply_durable(200, Json::object({{"reservations", std::move(out)}}));
}

void cancel(CallPtr call) {
  const auto named = one_named(*call, call->host.state().reservations, call->parts[0],
                               "reservation", "billow reserve cancel");
  if (!named)
    return call->fail(named.error());
  const Reservation* found = *named;
  if (const Status ok = may_act(*call, found->project, found->user); !ok)
    return call->fail(ok.error());
  call->execute(
      CancelReservation{found->id, "cancelled by " + call->principal.name}, 200,
      [call, gone = found->id](const std::vector<Event>& events) {
        Json document = Json::object({{"ok", true}});
        for (const Event& event : events)
          if (const auto* ended = get_if<ReservationEnded>(&event.body)) {
            document.set("unused_nano_usd", ended->unused.value);
            document.set("unused", format_usd(ended->unused));
          }
        constexpr std::size_t waiting_named_max = 50;  // they do not start by themselves any more
        Json waiting = Json::array(), goes_on = Json::array();
        for (const Event& event : events)
          if (const auto* left = get_if<ReservationLeft>(&event.body);
              left && goes_on.items().size() < waiting_named_max)
            if (const Job* job = call->host.state().find_job(left->job))
              goes_on.push(view::job_label(*job));
        document.set("goes_on", std::move(goes_on));
        for (const auto& [id, job] : call->host.state().jobs)
          if (job.spec->reservation == gone && !job.left_reservation &&
              job.state != JobState::running && waiting.items().size() < waiting_named_max)
            waiting.push(view::job_label(job));
        document.set("waiting", std::move(waiting));
        return document;
      });
}

}  // namespace reservations
}  // namespace billow::api
