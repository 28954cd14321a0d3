#include "api/call.h"

#include <fmt/format.h>

#include "base/text.h"
#include "view/job_document.h"
#include "view/stored.h"
#include "view/times.h"
#include "view/waiting.h"

namespace billow::api {

namespace {

// The first text that contains a zero byte, e.g. "spec.labels.team"; empty: none.
std::string zero_byte_in(const Json& value, const std::string& path) {
  const auto has = [](std::string_view text) {
    return text.find('\0') != std::string_view::npos;
  };
  if (value.is_string())
    return has(value.str_or("")) ? path : "";
  for (const auto& [name, member] : value.members()) {
    const std::string at = path.empty() ? name : path + "." + name;
    if (has(name))
      return fmt::format("a name in {}", path.empty() ? "the body" : path);
    if (std::string found = zero_byte_in(member, at); !found.empty())
      return found;
  }
  for (std::size_t i = 0; i < value.items().size(); ++i)
    if (std::string found = zero_byte_in(value.items()[i], fmt::format("{}[{}]", path, i));
        !found.empty())
      return found;
  return {};
}

}  // namespace

void record_denied(Host& host,
                   DeniedCalls& denied,
                   const net::Request& request,
                   const std::string& user,
                   const Error& error) {
  for (AccessDenied& event : denied.note(request, user, error, host.loop().steady()))
    host.execute(RecordDenied{std::move(event)}, {"head", request.request_id}, {});
}

void Call::reply(int status, const Json& body) const {
  exchange->respond(net::Response::json(status, body.dump()));
}
void Call::fail(const Error& error) const {
  if (denied)
    record_denied(host, *denied, request(), principal.name, error);
  exchange->respond(net::problem(error, request().request_id));
}

void Call::reply_durable(int status, Json body) const {
  host.when_durable([exchange = exchange, status, body = std::move(body)] {
    exchange->respond(net::Response::json(status, body.dump()));
  });
}

void Call::execute(Command command,
                   int status,
                   std::function<Json(const std::vector<Event>&)> answer) const {
  host.execute(std::move(command), cause(),
               [&host = host, denied = denied, exchange = exchange, user = principal.name, status,
                answer = std::move(answer)](Result<std::vector<Event>> events) {
                 if (events)
                   return exchange->respond(net::Response::json(status, answer(*events).dump()));
                 if (denied)
                   record_denied(host, *denied, exchange->request(), user, events.error());
                 exchange->respond(net::problem(events.error(), exchange->request().request_id));
               });
}

Status Call::still_allowed() {
  auto who = control::principal_of(host.state(), principal.token, host.now());
  if (!who)
    return pass(who.error());
  principal = std::move(*who);
  return allowed_now();
}

Status Call::allowed_now() const {
  BILLOW_TRY_VOID(allowed(principal, need));
  BILLOW_TRY_VOID(certified());
  return control::permitted(host.state(), principal, permissions);
}

Result<Json> Call::body() const {
  return parsed ? std::move(*parsed) : parse_body(request().body);
}

Result<Json> parse_body(const std::string& text) {
  if (trim(text).empty())
    return Json::object();
  auto json = parse_json(text);
  if (json && !json->is_object())
    return fail(Code::invalid, fmt::format("the body must be a JSON object, not {}", json->kind()));
  // No name, path or argument can contain one, and not every store can keep it. JSON has one way to
  // write it.
  if (json && text.find("\\u0000") != std::string::npos)
    if (const std::string where = zero_byte_in(*json, ""); !where.empty())
      return fail(Code::invalid, fmt::format("{} contains a zero byte", where),
                  "encode binary data as base64 where a field accepts it");
  return json;
}

namespace {

// How the elements of an array are numbered. For an array that ended long ago, one row is read from
// the store right here, by its key.
std::optional<ArraySpec> numbering_of(const Call& call, JobId id) {
  const Host& host = call.host;
  const auto array = host.state().arrays.find(id);
  if (array != host.state().arrays.end())
    return may_see(call, array->second.project) ? array->second.spec->array : std::nullopt;
  std::optional<Json> document = host.recently_finished(id);
  if (!document) {
    const auto row = host.queries().get_job(id);
    if (auto stored = row && *row ? view::stored_document((*row)->doc) : Result<Json>(Json()))
      document = std::move(*stored);
  }
  const Project* project =
      document ? host.state().project_by_name((*document)["project"].str_or("")) : nullptr;
  if (!project || !may_see(call, project->id))
    return std::nullopt;
  const auto spec = parse_array((*document)["array_spec"].str_or(""));
  return spec ? std::optional(*spec) : std::nullopt;
}

}  // namespace

Result<std::uint64_t> number_param(const net::Request& request,
                                   std::string_view name,
                                   std::uint64_t fallback) {
  if (request.param(name).empty())
    return fallback;
  const auto n = parse_int(request.param(name), 0, INT64_MAX);
  if (!n)
    return fail(Code::invalid, fmt::format("{}: {}", name, n.error().message));
  return static_cast<std::uint64_t>(*n);
}

Error no_job(JobId id) {
  return {Code::not_found, fmt::format("there is no job {}", id.value), "see `billow ps -a`"};
}

Result<JobRef> parse_job_ref(const Call& call, std::string_view text) {
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a job number", text),
                "write 12, or 12.3 for element 3 of array 12");
  };
  const auto dot = text.find('.');
  const auto id = parse_int(text.substr(0, dot), 1, INT64_MAX);
  if (!id)
    return bad();
  if (dot == std::string_view::npos)
    return JobRef{JobId(static_cast<std::uint64_t>(*id))};
  const auto index = parse_int(text.substr(dot + 1), 0, INT64_MAX);
  if (!index)
    return bad();
  const auto spec = numbering_of(call, JobId(static_cast<std::uint64_t>(*id)));
  if (!spec)
    return fail(Code::not_found, fmt::format("there is no array {}", *id), "see `billow ps -a`");
  const auto wanted = static_cast<std::uint64_t>(*index);
  const auto position = spec->position_of(wanted);
  if (!position)
    return fail(Code::not_found, fmt::format("array {} has no element {}", *id, *index),
                fmt::format("its indices are {}", spec->text()));
  return JobRef{JobId(static_cast<std::uint64_t>(*id) + 1 + *position)};
}

std::optional<Owner> owner_of(const control::State& state, JobId id) {
  if (const Job* job = state.find_job(id))
    return Owner{job->project, job->user, job->agent};
  if (const auto array = state.arrays.find(id); array != state.arrays.end()) {
    const Job* element = nullptr;
    if (const auto first = state.jobs.upper_bound(id);
        first != state.jobs.end() && first->second.array == id)
      element = &first->second;
    return Owner{array->second.project, array->second.user, element ? element->agent : TokenId{}};
  }
  return std::nullopt;
}

Status may_see(const Call& call, ProjectId project) {
  if (call.may(Permission::jobs_read, project))
    return {};
  return fail(Code::not_found, "there is no such job",
              "see `billow ps -a`");  // the same answer as for a job that does not exist
}

Status may_in(const Call& call, Permission permission, ProjectId project) {
  if (call.may(permission, project))
    return {};
  const auto found = call.host.state().projects.find(project);
  return fail(Code::forbidden,
              fmt::format("this needs the permission {} in project {}, which your role does not "
                          "include",
                          enum_name(permission),
                          found == call.host.state().projects.end() ? "?" : found->second.name),
              "ask one of its admins: see `billow project list` and `billow role list`");
}

Result<std::string> project_to_submit_to(const Call& call,
                                         const std::string& asked,
                                         Permission needed) {
  const auto& state = call.host.state();
  std::string name = asked;
  if (call.principal.scope == TokenScope::submit || call.principal.agent) {
    const std::string& own = state.projects.at(call.principal.project).name;
    if (!name.empty() && name != own)
      return fail(Code::forbidden, fmt::format("this token can only submit to project {}", own));
    name = own;
  }
  if (name.empty() && needed != Permission::jobs_run)
    name = state.projects.at(BILLOW_TRY(control::default_project(state, call.principal.user))).name;
  if (name.empty())
    return name;
  const Project* project = BILLOW_TRY(visible_project(call, name));
  if (!call.may(needed, project->id))
    return needed == Permission::jobs_run
               ? fail(Code::forbidden, fmt::format("you may not submit to project {}", name),
                      "ask one of its admins to make you a member")
               : Result<std::string>(pass(may_in(call, needed, project->id).error()));
  return name;
}

bool may_see_budget(const Call& call, const BudgetKey& key) {
  if (call.may(Permission::money_read))
    return true;
  switch (key.scope) {
    case BudgetScope::project:
      return call.may(Permission::money_read, ProjectId(key.of));
    case BudgetScope::user:
      return UserId(key.of) == call.principal.user && !call.principal.agent;
    case BudgetScope::token: {
      const auto token = call.host.state().tokens.find(TokenId(key.of));
      return token != call.host.state().tokens.end() && token->second.user == call.principal.user &&
             (!call.principal.agent || token->first == call.principal.agent);
    }
    case BudgetScope::job: {
      const auto owner = owner_of(call.host.state(), JobId(key.of));
      return owner && call.may(Permission::money_read, owner->project);
    }
  }
  return false;
}

std::vector<ProjectId> visible_projects(const Call& call) {
  std::vector<ProjectId> out;
  for (const auto& [id, project] : call.host.state().projects)
    if (control::sees(call.host.state(), call.principal, id))
      out.push_back(id);
  return out;
}

Result<const Project*> visible_project(const Call& call, std::string_view name) {
  const auto& state = call.host.state();
  const Project* project = state.project_by_name(name);
  if (project && control::sees(state, call.principal, project->id))
    return project;
  std::vector<std::string> names;
  for (const ProjectId id : visible_projects(call))
    names.push_back(state.projects.at(id).name);
  const std::string near = nearest(name, names);
  return fail(Code::not_found, fmt::format("there is no project \"{}\"", name),
              near.empty()
                  ? call.request().method == net::Method::post && call.request().path == "/v1/jobs"
                        ? "see `billow project list`; -p is --project, and there are no "
                          "partitions: --gpu-type and --node-label choose nodes"
                        : "see `billow project list`"
                  : fmt::format("did you mean \"{}\"?", near));
}

Status may_act_on(const Call& call, JobId id, const Owner& owner) {
  if (!may_see(call, owner.project))
    return pass(no_job(id));
  return may_act(call, owner);
}

Status may_act(const Call& call, const Owner& owner, Permission own) {
  BILLOW_TRY_VOID(may_see(call, owner.project));
  if (call.principal.agent && owner.agent != call.principal.agent)
    return fail(Code::forbidden,
                fmt::format("agent token {} did not create this", call.principal.token_name),
                "a person can do this with a token of their own");
  const bool is_own = owner.user == call.principal.user;
  if (call.may(Permission::jobs_any, owner.project) || (is_own && call.may(own, owner.project)))
    return {};
  return fail(Code::forbidden,
              is_own || !call.may(own, owner.project)
                  ? fmt::format("your role in this project does not include {}", enum_name(own))
                  : "this job belongs to another user",
              "its owner or an admin of the project may do this");
}

Status may_enter(const Call& call, const Owner& of) {
  BILLOW_TRY_VOID(may_act(call, of));
  const auto& [project, owner, agent] = of;
  if (owner == call.principal.user)
    return {};
  const auto& state = call.host.state();
  if (!state.projects.at(project).admins_enter)
    return fail(
        Code::forbidden,
        "this job belongs to another user; admins can stop it and read its log, not enter it",
        fmt::format("if the project agrees, allow it: billow project set {} --enter admins",
                    state.projects.at(project).name));
  const auto other = state.users.find(owner);
  const User& self = state.users.at(call.principal.user);
  const std::string account = other == state.users.end() ? "" : other->second.unix_name;
  const bool root = other == state.users.end() || control::runs_as_root(other->second);
  if (account == self.unix_name || (self.starts_heads && !root))
    return {};
  return fail(
      Code::forbidden,
      fmt::format("this job runs as {}, and you run jobs as {}",
                  account.empty() ? "a user who was removed" : account, self.unix_name),
      "the job's user can enter it; so can the user who started the head, unless it runs as "
      "root");
}

void record_entry(const Call& call, JobId job, std::string how) {
  call.host.execute(
      RecordEntry{{job, call.principal.user, std::move(how), peer_host(call.request().peer)}},
      call.cause(), {});
}

// What a placed job that has not started waits for, such as its image; why a replica that runs does
// not serve.
void add_start_note(Json& document, const Host& host, const Job& job) {
  if (job.state != JobState::running)
    return;
  for (const TaskId id : job.tasks)
    if (std::string text = host.waits_for(id); !text.empty()) {
      if (const Task* task = host.state().find_task(id); task && !task->started_at)
        document.set("waits_for", text);
      return document.set("reason", std::move(text));
    }
}

Result<const Task*> task_of_caller(const Call& call) {
  const auto number = BILLOW_TRY(parse_int(call.parts[0], 1, INT64_MAX));
  const auto& state = call.host.state();
  const Task* task = state.find_task(TaskId(static_cast<std::uint64_t>(number)));
  if (!task)
    return fail(Code::not_found, fmt::format("task {} no longer exists", number));
  const auto node = state.nodes.find(task->node);
  const auto token = state.tokens.find(call.principal.token);
  if (node == state.nodes.end() || token == state.tokens.end() ||
      !control::speaks_for(state, token->second, node->second.offer.name))
    return fail(Code::forbidden, fmt::format("task {} does not run on this node", number));
  return task;
}

namespace {

constexpr std::size_t leases_max = 10'000;  // of one job

void set_times(Json& document, const view::JobTimes& times) {
  document.set("ran_s", times.ran.ns / 1'000'000'000);
  document.set("suspended_s", times.suspended.ns / 1'000'000'000);
}

}  // namespace

void with_times(CallPtr call,
                std::vector<Json> documents,
                std::function<void(std::vector<Json>)> fn) {
  struct Wanted {
    JobId job;
    std::uint32_t nodes;
  };
  std::vector<Wanted> wanted;
  for (const Json& document : documents)
    if (document["started_at"].is_string() && !document["ran_s"].is_number() &&
        document["leases"].uint_or(0) > 1)
      wanted.push_back({JobId(document["id"].uint_or(0)),
                        static_cast<std::uint32_t>(document["nodes"].uint_or(1))});
  if (wanted.empty())
    return fn(std::move(documents));
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), wanted]() -> Result<std::map<JobId, view::JobTimes>> {
        std::map<JobId, view::JobTimes> found;
        for (const Wanted& w : wanted)
          found[w.job] = view::times_of(BILLOW_TRY(queries.leases({.project = {},
                                                                   .job = w.job,
                                                                   .from = {},
                                                                   .before = {},
                                                                   .after = {},
                                                                   .limit = leases_max})),
                                        w.nodes);
        return found;
      },
      [call, documents = std::move(documents),
       fn](Result<std::map<JobId, view::JobTimes>> found) mutable {
        if (!found)
          return call->fail(found.error());
        const auto& state = call->host.state();
        for (Json& document : documents) {
          const auto at = found->find(JobId(document["id"].uint_or(0)));
          if (at == found->end())
            continue;
          const Job* job = document["final"].bool_or(false) ? nullptr : state.find_job(at->first);
          set_times(document, job ? view::times_now(state, *job, at->second, call->host.billed())
                                  : at->second);
        }
        fn(std::move(documents));
      });
  if (!queued)
    call->fail(queued.error());
}

Json live_document(const Host& host, const Job& job) {
  return view::live_job_document(host.state(), job, host.moment(),
                                 [&](NodeId node) { return host.readings(node); });
}

void with_job_document(CallPtr call, JobId id, std::function<void(Json)> fn) {
  Host& host = call->host;
  const auto missing = [call, id] {
    call->fail(no_job(id));
  };
  const auto checked = [call, missing, fn](Json document) {
    const Project* project = call->host.state().project_by_name(document["project"].str_or(""));
    if (!project || !may_see(*call, project->id))
      return missing();
    with_times(call, {std::move(document)},
               [fn](std::vector<Json> documents) { fn(std::move(documents.front())); });
  };
  const auto& state = host.state();
  if (const Job* job = state.find_job(id)) {
    Json document = live_document(host, *job);
    view::add_waiting_reason(document, state, *job, host.now());
    add_start_note(document, host, *job);
    return host.when_durable([checked, document = std::move(document)] { checked(document); });
  }
  if (const auto array = state.arrays.find(id); array != state.arrays.end()) {
    return host.when_durable([checked, document = view::live_array_document(state, array->second)] {
      checked(document);
    });
  }
  if (std::optional<Json> document = host.recently_finished(id))
    return host.when_durable([checked, document = std::move(*document)] { checked(document); });
  const Status queued =
      host.workers().submit([&queries = host.queries(), id] { return queries.get_job(id); },
                            [call, checked, missing](Result<std::optional<JobRow>> row) {
                              if (!row)
                                return call->fail(row.error());
                              if (!*row)
                                return missing();
                              auto document = view::stored_document((*row)->doc);
                              if (!document)
                                return call->fail(document.error());
                              checked(std::move(*document));
                            });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api
