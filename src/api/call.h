// One API call on its way through a route: the exchange, who asks, and the answers every route gives in the same way.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/host.h"
#include "api/session.h"
#include "base/json.h"
#include "net/http_server.h"
#include "wire/codec.h"

namespace billow::api {

struct Call {
  Host& host;
  std::shared_ptr<net::Exchange> exchange;
  control::Principal principal;           // of a route that needs a token
  std::vector<std::string> parts;         // what stood for the pattern's {names}, in order
  SignInCodes* codes = nullptr;

  const net::Request& request() const { return exchange->request(); }
  control::Cause cause() const { return {"user:" + principal.name, request().request_id}; }
  void reply(int status, const Json& body) const;
  void fail(const Error& error) const;
  // Replies when everything seen so far is durable.
  void reply_durable(int status, Json body) const;
  // Runs a command and answers with what `answer` makes of its events.
  void execute(Command command, int status, std::function<Json(const std::vector<Event>&)> answer) const;
  // The body as JSON; an empty body is an empty object.
  Result<Json> body() const;
};
using CallPtr = std::shared_ptr<Call>;

// The body as T, nothing unknown in it; otherwise the call has been answered.
template <class T>
std::optional<T> read_body(const CallPtr& call) {
  auto json = call->body();
  if (!json) return call->fail(json.error()), std::nullopt;
  auto body = wire::from_json<T>(*json, true);
  if (!body) return call->fail(body.error()), std::nullopt;
  return std::move(*body);
}

// A job as a URL names it: "12", or "12.3" for the element of array 12 with index 3.
struct JobRef {
  JobId id;
};
Result<JobRef> parse_job_ref(const Host& host, std::string_view text);

// Finds a job or array, live or finished, checks that the caller may see it, and hands over its document. A finished one comes
// from the store, by way of a worker.
void add_start_note(Json& document, const Host& host, const Job& job);
// The task of the path, for a node that runs it: a node speaks for its own tasks alone. The local agent's credential names no node: it
// is the head's own.
Result<const Task*> task_of_caller(const Call& call);
void with_job_document(CallPtr call, JobId id, std::function<void(Json document)> fn);
// Whether the caller may see (viewer), or act on (member: its own; admin: anyone's) jobs of a project.
Status may_see(const Call& call, ProjectId project);
Status may_act(const Call& call, ProjectId project, UserId owner);
// The project that a submission or schedule goes to, by name: a submit token's own, or the one asked for if the caller may submit
// there. Empty where none was asked for: then the core takes the user's first.
Result<std::string> project_to_submit_to(const Call& call, const std::string& asked);
// The project of a live job or array; zero where there is none.
struct Owner {
  ProjectId project;
  UserId user;
};
std::optional<Owner> owner_of(const control::State& state, JobId id);

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
