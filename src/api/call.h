// One API call on its way through a route: the exchange, who asks, and the answers every route
// gives in the same way.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/host.h"
#include "api/rights.h"
#include "api/session.h"
#include "base/json.h"
#include "core/wire/codec.h"
#include "net/http/http_server.h"

namespace billow::api {

struct Call {
  Host& host;
  std::shared_ptr<net::Exchange> exchange;
  control::Principal principal;    // of a route that needs a token
  Need need = Need::nothing;       // what the route asked of it
  std::vector<std::string> parts;  // what stood for the pattern's {names}, in order
  SignInCodes* codes = nullptr;

  const net::Request& request() const { return exchange->request(); }
  // An admin of the whole installation, with a token that may act as one.
  bool as_admin() const {
    return principal.role == Role::admin && principal.scope == TokenScope::full;
  }
  // Looks at the token again: an error when it was revoked, has expired or may less than the route
  // needs. For what stays open.
  Status still_allowed();
  control::Cause cause() const { return {"user:" + principal.name, request().request_id}; }
  void reply(int status, const Json& body) const;
  void fail(const Error& error) const;
  // Replies when everything seen so far is durable.
  void reply_durable(int status, Json body) const;
  // Runs a command and answers with what `answer` makes of its events.
  void execute(Command command,
               int status,
               std::function<Json(const std::vector<Event>&)> answer) const;
  // The body as JSON; an empty body is an empty object.
  Result<Json> body() const;
};
using CallPtr = std::shared_ptr<Call>;

// The body as T, nothing unknown in it; otherwise the call has been answered.
template <class T>
std::optional<T> read_body(const CallPtr& call) {
  auto json = call->body();
  if (!json)
    return call->fail(json.error()), std::nullopt;
  auto body = wire::from_json<T>(*json, true);
  if (!body)
    return call->fail(body.error()), std::nullopt;
  return std::move(*body);
}

// A job as a URL names it: "12", or "12.3" for the element of array 12 with index 3.
struct JobRef {
  JobId id;
};
Result<JobRef> parse_job_ref(const Call& call, std::string_view text);
// A number in the query; `fallback` where it is not given.
Result<std::uint64_t> number_param(const net::Request& request,
                                   std::string_view name,
                                   std::uint64_t fallback);
// The answer for a job that is not there, and for one that the caller may not see.
Error no_job(JobId id);

// Finds a job or array, live or finished, checks that the caller may see it, and hands over its
// document. A finished one comes from the store, by way of a worker.
void add_start_note(Json& document, const Host& host, const Job& job);
// The task of the path, for a node that runs it: a node speaks for its own tasks alone. The local
// agent's credential names no node: it is the head's own.
Result<const Task*> task_of_caller(const Call& call);
void with_job_document(CallPtr call, JobId id, std::function<void(Json document)> fn);
// The document of a job that has not ended.
Json live_document(const Host& host, const Job& job);
// Adds `ran_s` and `suspended_s` to the documents that lack them. A worker reads the store if it
// must be asked.
void with_times(CallPtr call,
                std::vector<Json> documents,
                std::function<void(std::vector<Json>)> fn);
// Whether the caller may see (viewer), or act on (member: its own; admin: anyone's) jobs of a
// project.
Status may_see(const Call& call, ProjectId project);
Status may_act(const Call& call, ProjectId project, UserId owner);
// A project by name, as far as the caller can see: one that is not there and one that is others'
// get the same answer.
Result<const Project*> visible_project(const Call& call, std::string_view name);
std::vector<ProjectId> visible_projects(const Call& call);
bool may_see_budget(const Call& call, const BudgetKey& key);
// The project that a submission or schedule goes to, by name: a submit token's own, or the one
// asked for if the caller may submit there. Empty where none was asked for: then the core takes the
// user's first.
Result<std::string> project_to_submit_to(const Call& call, const std::string& asked);
// The project of a live job or array; zero where there is none.
struct Owner {
  ProjectId project;
  UserId user;
};
std::optional<Owner> owner_of(const control::State& state, JobId id);
// The same for one that the caller may act on. One that is others' is as little there as one that
// never was.
Status may_act_on(const Call& call, JobId id, const Owner& owner);

// What has a number and a project's name for it (a reservation, a schedule), among what the caller
// may see. No name is a number. Two projects may have the same name for one of theirs: then it
// takes the number.
template <class Map>
Result<const typename Map::mapped_type*> one_named(const Call& call,
                                                   const Map& all,
                                                   const std::string& text,
                                                   std::string_view kind,
                                                   std::string_view command) {
  const typename Map::mapped_type* found = nullptr;
  for (const auto& [id, one] : all) {
    if ((one.name.empty() || one.name != text) && std::to_string(id.value) != text)
      continue;
    if (!control::role_in(call.host.state(), call.principal, one.project))
      continue;
    if (std::to_string(id.value) == text)
      return &one;
    if (found)
      return fail(
          Code::conflict, "there are several of the name \"" + text + "\", in different projects",
          "name it by its number: " + std::string(command) + " " + std::to_string(found->id.value));
    found = &one;
  }
  if (found)
    return found;
  return fail(Code::not_found, "there is no " + std::string(kind) + " \"" + text + "\"",
              "see `" + std::string(command.substr(0, command.rfind(' '))) + " list`");
}

// Routes, by family.
namespace jobs {
void submit(CallPtr call);
void list(CallPtr call);
void get(CallPtr call);
void wait(CallPtr call);
void stop(CallPtr call);
void suspend(CallPtr call);
void resume(CallPtr call);
void signal(CallPtr call);
void explain(CallPtr call);
void rerun(CallPtr call);
void set_image(CallPtr call);
}  // namespace jobs
namespace environments {
void list(CallPtr call);
void get(CallPtr call);
void save(CallPtr call);
void remove(CallPtr call);
}  // namespace environments
namespace advice {
void advise(CallPtr call);
}  // namespace advice
namespace reservations {
void make(CallPtr call);
void list(CallPtr call);
void cancel(CallPtr call);
}  // namespace reservations
namespace streams {
void logs(CallPtr call);
void attach(CallPtr call);
void tunnel(CallPtr call);
void events(CallPtr call);
void live(CallPtr call);
}  // namespace streams
namespace history {
void fleet(CallPtr call);
void gpu(CallPtr call);
void job(CallPtr call);
void drain_gpu(CallPtr call);
void undrain_gpu(CallPtr call);
}  // namespace history
namespace endpoints {
void deploy(CallPtr call);
void list(CallPtr call);
void get(CallPtr call);
void explain(CallPtr call);
void scale(CallPtr call);
void rollback(CallPtr call);
void remove(CallPtr call);
void add_key(CallPtr call);
void remove_key(CallPtr call);
void gateway(CallPtr call);
}  // namespace endpoints
namespace session {
void create(CallPtr call);
void end(CallPtr call);
void code(CallPtr call);
}  // namespace session
namespace secrets {
void list(CallPtr call);
void set(CallPtr call);
void remove(CallPtr call);
}  // namespace secrets
namespace fabric {
void check(CallPtr call);
}  // namespace fabric
namespace volumes {
void list(CallPtr call);
void add(CallPtr call);
void remove(CallPtr call);
}  // namespace volumes
namespace fleet {
void join(CallPtr call);
void pools(CallPtr call);
void add_pool(CallPtr call);
void remove_pool(CallPtr call);
void release_machine(CallPtr call);
}  // namespace fleet
namespace admin {
void status(CallPtr call);
void nodes(CallPtr call);
void node(CallPtr call);
void drain(CallPtr call);
void undrain(CallPtr call);
void remove_node(CallPtr call);
void projects(CallPtr call);
void add_project(CallPtr call);
void set_member(CallPtr call);
void remove_member(CallPtr call);
void set_project(CallPtr call);
void users(CallPtr call);
void add_user(CallPtr call);
void tokens(CallPtr call);
void create_token(CallPtr call);
void revoke_token(CallPtr call);
void schedules(CallPtr call);
void add_schedule(CallPtr call);
void remove_schedule(CallPtr call);
void shutdown(CallPtr call);
void openapi(CallPtr call);
void metrics(CallPtr call);
}  // namespace admin
namespace money {
void rates(CallPtr call);
void budgets(CallPtr call);
void set_budget(CallPtr call);
void remove_budget(CallPtr call);
void prices(CallPtr call);
void set_price(CallPtr call);
void remove_price(CallPtr call);
void idle(CallPtr call);
void set_idle(CallPtr call);
void keep_alive(CallPtr call);
void webhooks(CallPtr call);
void add_webhook(CallPtr call);
void remove_webhook(CallPtr call);
void test_webhook(CallPtr call);
void commitments(CallPtr call);
void set_commitment(CallPtr call);
void remove_commitment(CallPtr call);
void tag_project(CallPtr call);
void cost(CallPtr call);
void job_cost(CallPtr call);
void waste(CallPtr call);
void invoice(CallPtr call);
void anomalies(CallPtr call);
void import_bill(CallPtr call);
void months(CallPtr call);
void close_month(CallPtr call);
void entries(CallPtr call);
}  // namespace money

}  // namespace billow::api
