// The routes of reservations, and of quotas: how much of the head users and projects may hold.
#include <fmt/format.h>
#include <algorithm>

#include "api/call.h"
#include "base/text.h"
#include "core/control/quotas.h"
#include "core/ledger/meter.h"
#include "core/wire/codec.h"
#include "view/fleet_documents.h"
#include "view/names.h"

namespace billow::api {

namespace reservations {
namespace {

struct NewReservation {
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

// Spot jobs on the reserved GPUs are preempted when the reservation begins; the user who reserved
// should know. Jobs of others are only counted.
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
  auto body = read_body<NewReservation>(call);
  if (!body)
    return;
  // A reservation takes capacity from everybody: it is for those who answer for the project.
  const auto asked = project_to_submit_to(*call, body->project, Permission::reservations_make);
  if (!asked)
    return call->fail(asked.error());
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
    if (!call->may(Permission::jobs_read, r.project))
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
  if (const Status ok =
          may_act(*call, {found->project, found->user}, Permission::reservations_make);
      !ok)
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

namespace quotas {
namespace {

constexpr QuotaKind all_kinds[] = {
    QuotaKind::queued_jobs, QuotaKind::spec_bytes,     QuotaKind::file_bytes,
    QuotaKind::connections, QuotaKind::requests_per_s, QuotaKind::objects,
    QuotaKind::priority,    QuotaKind::task_log_bytes, QuotaKind::kept_log_bytes};

struct QuotaBody {
  QuotaScope scope = QuotaScope::user;
  std::string of;  // a name; empty: the default of all users or projects
  QuotaKind kind = QuotaKind::queued_jobs;
  std::int64_t limit = -1;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("scope", s.scope);
    v("of", s.of);
    v("kind", s.kind);
    v("limit", s.limit);
  }
};

Result<QuotaKey> quota_key(const Call& call,
                           QuotaScope scope,
                           const std::string& of,
                           QuotaKind kind) {
  if (of.empty())
    return QuotaKey{scope, 0, kind};
  if (scope == QuotaScope::project)
    return QuotaKey{scope, BILLOW_TRY(visible_project(call, of))->id.value, kind};
  const User* user = call.host.state().user_by_name(of);
  if (!user)
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", of),
                "see `billow user list`");
  return QuotaKey{scope, user->id.value, kind};
}

Json used_of(const Call& call,
             QuotaScope scope,
             std::uint64_t of,
             const control::Holding& held,
             QuotaKind kind) {
  switch (kind) {
    case QuotaKind::queued_jobs:
      return Json(held.jobs);
    case QuotaKind::spec_bytes:
      return Json(held.spec_bytes);
    case QuotaKind::file_bytes:
      if (scope == QuotaScope::user)
        return Json(call.host.files().bytes_of(fmt::format("user:{}", of)));
      break;
    case QuotaKind::objects:
      return Json(control::objects_of(call.host.state(), scope, of, call.host.now()));
    case QuotaKind::connections:
    case QuotaKind::requests_per_s:
    case QuotaKind::priority:
    case QuotaKind::task_log_bytes:
      break;
    case QuotaKind::kept_log_bytes:
      return Json(call.host.kept_log_bytes(ProjectId(of)));
  }
  return Json();
}

void add_owner(Json& list,
               const Call& call,
               QuotaScope scope,
               std::uint64_t of,
               const std::string& name,
               const control::Holding& held) {
  for (const QuotaKind kind : all_kinds) {
    if (!control::has_scope(kind, scope))
      continue;
    const control::QuotaLimit quota = control::quota_of(call.host.state(), scope, of, kind);
    list.push(Json::object({{"scope", enum_name(scope)},
                            {"of", name},
                            {"kind", enum_name(kind)},
                            {"limit", quota.limit < 0 ? Json() : Json(quota.limit)},
                            {"used", used_of(call, scope, of, held, kind)},
                            {"set", quota.set_by_admin}}));
  }
}

template <class Map, class Id>
control::Holding held_by(const Map& map, Id id) {
  const auto found = map.find(id);
  return found == map.end() ? control::Holding{} : found->second;
}

Json quota_document(const Call& call) {
  const auto& state = call.host.state();
  const bool everybody = call.may(Permission::users_read);
  Json list = Json::array();
  for (const auto& [id, user] : state.users)
    if (everybody || id == call.principal.user)
      add_owner(list, call, QuotaScope::user, id.value, user.name, held_by(state.held_by_user, id));
  for (const ProjectId id : visible_projects(call))
    add_owner(list, call, QuotaScope::project, id.value, state.projects.at(id).name,
              held_by(state.held_by_project, id));
  return Json::object({{"quotas", std::move(list)}});
}

void answer_with_all(const CallPtr& call, Command command) {
  call->execute(std::move(command), 200,
                [call](const std::vector<Event>&) { return quota_document(*call); });
}

}  // namespace

void list(CallPtr call) {
  call->reply_durable(200, quota_document(*call));
}

void set(CallPtr call) {
  const auto body = read_body<QuotaBody>(call);
  if (!body)
    return;
  const auto key = quota_key(*call, body->scope, body->of, body->kind);
  if (!key)
    return call->fail(key.error());
  answer_with_all(call, SetQuota{{*key, body->limit}});
}

void remove(CallPtr call) {
  const auto scope = enum_value<QuotaScope>(call->parts[0]);
  const auto kind = enum_value<QuotaKind>(call->parts[2]);
  if (!scope || !kind)
    return call->fail({Code::invalid,
                       fmt::format("no quota is called {} {}", call->parts[0], call->parts[2]),
                       "see `billow quota list`"});
  const std::string of = call->parts[1] == "*" ? "" : call->parts[1];
  const auto key = quota_key(*call, *scope, of, *kind);
  if (!key)
    return call->fail(key.error());
  answer_with_all(call, RemoveQuota{*key});
}

}  // namespace quotas
}  // namespace billow::api
