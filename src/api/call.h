// One API call: the exchange, the caller, and the answers that all routes give in the same way.
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
#include "net/turns.h"

namespace billow {
enum class MetricsFormat;  // base/exposition.h
}

namespace billow::api {

class SignIns;
namespace streams {
class TerminalWindows;
class LiveStreams;
}  // namespace streams

struct Call {
  Host& host;
  std::shared_ptr<net::Exchange> exchange;
  control::Principal principal;             // the caller, on routes that need a token
  Need need = Need::nothing;                // what the route asks of the caller
  control::PermissionSet permissions = {};  // one of which the route needs
  std::vector<std::string> parts;           // the values of the pattern's {names}, in order
  SignInCodes* codes = nullptr;
  net::Turns* turns = nullptr;                // for work that would hold the loop for long
  std::shared_ptr<Result<Json>> parsed = {};  // the body, if a worker has parsed it
  DeniedCalls* denied = nullptr;
  AccountTokens* accounts = nullptr;
  SignIns* sign_ins = nullptr;
  streams::TerminalWindows* windows = nullptr;
  streams::LiveStreams* live = nullptr;

  const net::Request& request() const { return exchange->request(); }
  // Whether the caller has the permission: on the installation; in a project.
  bool may(Permission permission) const {
    return control::may(host.state(), principal, permission);
  }
  bool may(Permission permission, ProjectId project) const {
    return control::may(host.state(), principal, permission, project);
  }
  // Whether the token and the role allow the route.
  Status allowed_now() const;
  // Whether a node or gateway has shown the certificate that this head asks for, and it is valid.
  Status certified() const {
    return host.check_certificate(principal, *exchange, need == Need::machine);
  }
  // Checks the token again, for streams that stay open: an error if it was revoked, has expired or
  // no longer allows the route.
  Status still_allowed();
  // As reasons name the caller: "ana", "agent helper".
  std::string caller() const {
    return principal.agent ? "agent " + principal.token_name : principal.name;
  }
  // What an agent does is recorded under its token's name.
  control::Cause cause() const {
    return {principal.agent ? "agent:" + principal.name + "/" + principal.token_name
                            : "user:" + principal.name,
            request().request_id, principal.token, peer_host(request().peer)};
  }
  void reply(int status, const Json& body) const;
  // For files that change only with the program: compressed if the client accepts that, and 304 if
  // it has the file already.
  void reply_validated(net::Response response) const;
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
// Records that a request was refused, if it is due.
void record_denied(Host& host,
                   DeniedCalls& denied,
                   const net::Request& request,
                   const std::string& user,
                   const Error& error);
// A body as JSON: an object without zero bytes. May be called by a worker.
Result<Json> parse_body(const std::string& text);

// The body as T, without unknown members. None: the call has been answered with an error.
template <class T>
std::optional<T> read_body(const CallPtr& call) {
  auto json = call->body();
  auto body = json ? wire::from_json<T>(*json, true) : Result<T>(pass(json.error()));
  if (body)
    return std::move(*body);
  call->fail(body.error());
  return std::nullopt;
}

// Explaining why a job waits walks the whole queue; behind a longer queue than this, only `explain`
// does it.
inline constexpr std::size_t reason_queue_max = 1'000;

// A job as a URL names it: "12", or "12.3" for the element of array 12 with index 3.
struct JobRef {
  JobId id;
};
Result<JobRef> parse_job_ref(const Call& call, std::string_view text);
// A number in the query; `fallback` if it is absent.
Result<std::uint64_t> number_param(const net::Request& request,
                                   std::string_view name,
                                   std::uint64_t fallback);
// The answer for a job that does not exist, and for one that the caller may not see.
Error no_job(JobId id);

// Adds what a starting job waits for.
void add_start_note(Json& document, const Host& host, const Job& job);
// The task that the path names. A node may only speak for its own tasks.
Result<const Task*> task_of_caller(const Call& call);
// Finds a job or array, live or finished, checks that the caller may see it, and passes on its
// document. A worker reads finished jobs from the store.
void with_job_document(CallPtr call, JobId id, std::function<void(Json document)> fn);
// The document of a job that has not ended.
Json live_document(const Host& host, const Job& job);
// Adds `ran_s` and `suspended_s` to the documents that lack them. A worker reads the store if it
// must be asked.
void with_times(CallPtr call,
                std::vector<Json> documents,
                std::function<void(std::vector<Json>)> fn);
// The project and user of a live job or array, and the agent token that submitted it.
struct Owner {
  ProjectId project;
  UserId user;
  TokenId agent = {};
};
// Whether the caller may see the jobs of a project (jobs.read), or act on them: on the own with
// `own`, on all with jobs.any; agent tokens on those they submitted.
Status may_see(const Call& call, ProjectId project);
Status may_act(const Call& call, const Owner& owner, Permission own = Permission::jobs_run);
// Whether the caller may enter the job (shell, terminal, port, files): its owner; and admins, if
// the project allows that and they gain no other account by it: the job's account is their own, or
// they started the head. Nobody else enters root's jobs.
Status may_enter(const Call& call, const Owner& owner);
// Records that the caller entered a job.
void record_entry(const Call& call, JobId job, std::string how);
// A project by name. One that the caller may not see answers like one that does not exist.
Result<const Project*> visible_project(const Call& call, std::string_view name);
std::vector<ProjectId> visible_projects(const Call& call);
bool may_see_budget(const Call& call, const BudgetKey& key);
// The name of the project that a submission or schedule goes to: a submit token's own, or the one
// asked for if the caller may submit there. Empty if none was asked for: the core then takes the
// user's default.
Result<std::string> project_to_submit_to(const Call& call,
                                         const std::string& asked,
                                         Permission needed = Permission::jobs_run);
// None if there is no such job.
std::optional<Owner> owner_of(const control::State& state, JobId id);
// Whether the caller may act on it. A job that it may not see answers like one that does not exist.
Status may_act_on(const Call& call, JobId id, const Owner& owner);
// Whether the caller has the permission in a project that it may see; the error names it.
Status may_in(const Call& call, Permission permission, ProjectId project);

// Finds a reservation or schedule by number or name, among those the caller may see. Names are
// never numbers. If two projects use the same name, the number is needed.
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
    if (!call.may(Permission::jobs_read, one.project))
      continue;
    if (std::to_string(id.value) == text)
      return &one;
    if (found)
      return fail(
          Code::conflict, "the name \"" + text + "\" is used in several projects",
          "use its number: " + std::string(command) + " " + std::to_string(found->id.value));
    found = &one;
  }
  if (found)
    return found;
  return fail(Code::not_found, "there is no " + std::string(kind) + " \"" + text + "\"",
              "see `" + std::string(command.substr(0, command.rfind(' '))) + " list`");
}

// ---- what agent tokens must ask for (agents/approvals.cpp)
// Runs `then` at once for people; for an agent token, if a person has approved this request.
// Otherwise a person is asked for approval, and the call is answered.
void with_approval(CallPtr call,
                   ApprovalAction action,
                   std::string text,
                   std::function<void()> then);
// Submits for the caller. What an agent's job may cost, the core decides.
void submit_for(CallPtr call,
                SubmitJob command,
                std::function<Json(const std::vector<Event>&)> answer);

// Routes, by family.
namespace approvals {
void list(CallPtr call);
void decide(CallPtr call);
}  // namespace approvals
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
void set_labels(CallPtr call);
void restart(CallPtr call);
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
// Parts of the dashboard that the browser loads when a page needs them.
namespace dashboard {
void page(CallPtr call);
void asset(CallPtr call);
void docs(CallPtr call);
void docs_file(CallPtr call);
void docs_image(CallPtr call);
void sdk_page(CallPtr call);
void sdk_file(CallPtr call);
}  // namespace dashboard
namespace quotas {
void list(CallPtr call);
void set(CallPtr call);
void remove(CallPtr call);
}  // namespace quotas
namespace streams {
void logs(CallPtr call);
void log_range(CallPtr call);
void log_search(CallPtr call);
void attach(CallPtr call);
void tunnel(CallPtr call);
void events(CallPtr call);
void live(CallPtr call);
void subscribe(CallPtr call);
}  // namespace streams
namespace history {
void fleet(CallPtr call);
void gpu(CallPtr call);
void job(CallPtr call);
void timeline(CallPtr call);
void endpoint(CallPtr call);
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
void traffic(CallPtr call);
void promote(CallPtr call);
void remove(CallPtr call);
void calls(CallPtr call);
void asynchronous_call(CallPtr call);
void cancel_call(CallPtr call);
void add_key(CallPtr call);
void remove_key(CallPtr call);
void gateway(CallPtr call);
void gateways(CallPtr call);
// Whether the caller may change the endpoint. One that it may not see answers like one that does
// not exist.
Status may_change(const CallPtr& call, const std::string& name);
}  // namespace endpoints
namespace door {
void models(CallPtr call);
void set_model(CallPtr call);
void remove_model(CallPtr call);
void domains(CallPtr call);
void set_domain(CallPtr call);
void remove_domain(CallPtr call);
void limits(CallPtr call);
void set_limits(CallPtr call);
}  // namespace door
namespace session {
void create(CallPtr call);
void end(CallPtr call);
void code(CallPtr call);
}  // namespace session
namespace people {
void users(CallPtr call);
void add_user(CallPtr call);
void set_user(CallPtr call);
void remove_user(CallPtr call);
void tokens(CallPtr call);
void create_token(CallPtr call);
void create_token_for(CallPtr call);
void revoke_token(CallPtr call);
void rotate_token(CallPtr call);
void roles(CallPtr call);
void set_role(CallPtr call);
void remove_role(CallPtr call);
void set_default_project(CallPtr call);
void sign_in_by_account(CallPtr call);
}  // namespace people
namespace sign_in {
void offered(CallPtr call);
void start(CallPtr call);
void finish(CallPtr call);
void device(CallPtr call);
void device_poll(CallPtr call);
void browser(CallPtr call);
void callback(CallPtr call);
void exchange(CallPtr call);
void providers(CallPtr call);
void set_provider(CallPtr call);
void remove_provider(CallPtr call);
void link_user(CallPtr call, const std::string& login);
}  // namespace sign_in
namespace secrets {
void list(CallPtr call);
void set(CallPtr call);
void remove(CallPtr call);
void rotate_key(CallPtr call);
void backends(CallPtr call);
void set_backend(CallPtr call);
void remove_backend(CallPtr call);
void check_backend(CallPtr call);
// Whether the project may refer to it: "BACKEND:PATH#KEY".
Status may_refer(const Call& call, const Project& project, const std::string& reference);
}  // namespace secrets
namespace certificates {
void issue(CallPtr call);
void replace_key(CallPtr call);
void authority(CallPtr call);
void rotate(CallPtr call);
}  // namespace certificates
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
void offers(CallPtr call);
void refresh_offers(CallPtr call);
void check_pool(CallPtr call);
void retry_pool(CallPtr call);
void providers(CallPtr call);
void strays(CallPtr call);
void end_strays(CallPtr call);
void program(CallPtr call);
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
void schedules(CallPtr call);
void add_schedule(CallPtr call);
void remove_schedule(CallPtr call);
void shutdown(CallPtr call);
void openapi(CallPtr call);
void routes(CallPtr call);
void metrics(CallPtr call);
// The text of /metrics, as this caller may see it.
void with_metrics(CallPtr call, MetricsFormat format, std::function<void(Result<std::string>)> fn);
}  // namespace admin
namespace notify {
void list(CallPtr call);
void add(CallPtr call);
void change(CallPtr call);
void remove(CallPtr call);
void confirm(CallPtr call);
void test(CallPtr call);
}  // namespace notify
namespace presets {
void list(CallPtr call);
void set(CallPtr call);
void remove(CallPtr call);
}  // namespace presets
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
