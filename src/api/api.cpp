#include "api/api.h"

#include <fmt/format.h>
#include <span>

#include "api/files.h"
#include "api/log_pull.h"
#include "api/notices/webhook_keys.h"
#include "api/pages/live_logs.h"
#include "api/sign_in/sign_ins.h"
#include "base/crypto.h"
#include "base/exposition.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/quotas.h"
#include "net/address.h"
#include "net/http/node_credential.h"

namespace billow::api {
namespace {

using control::PermissionSet;
using net::Method;
using enum Permission;

constexpr char exchange_path[] = "/v1/auth/exchange";
constexpr std::size_t exchange_bytes_max = 20 << 10;  // the longest ID token, and some JSON

struct Route {
  RouteInfo info;
  void (*run)(CallPtr);
};

void health(CallPtr call) {
  call->reply(200, Json::object({{"ok", true}}));
}

// Whether the node of a rented machine is not connected: the machine runs, and its agent does not.
bool is_silent(const control::State& state, TokenId credential) {
  const auto token = state.tokens.find(credential);
  if (token == state.tokens.end() || !token->second.pool)
    return false;
  const Node* node = state.node_by_name(token->second.node);
  return node && !node->reachable;
}

// Whether the node's machine was released. It may still run because its provider does not end it.
bool is_given_back(const control::State& state, TokenId credential) {
  const auto token = state.tokens.find(credential);
  if (token == state.tokens.end())
    return false;
  for (const auto& [name, machine] : state.machines)
    if (machine.state == MachineState::releasing && machine.pool == token->second.pool &&
        (token->second.node == name || token->second.node.starts_with(name + ".")))
      return true;
  return false;
}

void agent(CallPtr call) {
  // `billow join --check`: a machine to which this is said for some minutes ends itself.
  const control::State& state = call->host.state();
  const bool checks = call->request().headers.get("Upgrade").empty();
  if (checks &&
      (is_given_back(state, call->principal.token) || is_silent(state, call->principal.token))) {
    net::Response gone;
    gone.status = 410;
    gone.body = "{\"error\":\"this machine was released, or its agent is not connected\"}\n";
    return call->exchange->respond(std::move(gone));
  }
  auto socket =
      call->exchange->upgrade_websocket({.subprotocol = "",
                                         .message_bytes_max = limits::agent_frame_bytes_max,
                                         .queue_bytes_max = 64 << 20});
  if (!socket)
    return call->fail(socket.error());
  call->host.adopt_agent(std::move(*socket), call->request().peer, call->principal.token,
                         [call] { return call->certified().has_value(); });
}

// The dashboard, the state of the head, streams and history of the whole installation.
const Route head_routes[] = {
    {{Method::get, "/", Need::nothing, {}}, dashboard::page},
    {{Method::get, "/assets/{name}", Need::nothing, {}}, dashboard::asset},
    {{Method::get, "/docs", Need::nothing, {}}, dashboard::docs},
    {{Method::get, "/docs/", Need::nothing, {}}, dashboard::docs_file},
    {{Method::get, "/docs/{name}", Need::nothing, {}}, dashboard::docs_file},
    {{Method::get, "/docs/images/{name}", Need::nothing, {}}, dashboard::docs_image},
    {{Method::get, "/sdk/", Need::nothing, {}}, dashboard::sdk_page},
    {{Method::get, "/sdk/billow/", Need::nothing, {}}, dashboard::sdk_page},
    {{Method::get, "/sdk/{name}", Need::nothing, {}}, dashboard::sdk_file},
    {{Method::get, "/healthz", Need::nothing, {}}, health},
    {{Method::get, "/v1/openapi.json", Need::nothing, {}}, admin::openapi},
    {{Method::get, "/v1/routes", Need::nothing, {}}, admin::routes},
    {{Method::get, "/metrics", Need::look, {}}, admin::metrics},
    {{Method::get, "/v1/status", Need::look, {}}, admin::status},
    {{Method::get, "/v1/events", Need::look, audit_read}, streams::events},
    {{Method::get, "/v1/live", Need::look, {}}, streams::live},
    {{Method::post, "/v1/live/{stream}/subscriptions", Need::look, {}}, streams::subscribe},
    {{Method::get, "/v1/history/fleet", Need::look, {}}, history::fleet},
    {{Method::get, "/v1/timeline", Need::look, {}}, history::timeline},
    {{Method::post, "/v1/advise", Need::look, {}}, advice::advise},
    {{Method::post, "/v1/shutdown", Need::full, head_control}, admin::shutdown},
};

// Sign-in, projects, users, tokens and secrets.
const Route people_routes[] = {
    {{Method::post, "/v1/session", Need::nothing, {}, Adds::work}, session::create},
    {{Method::del, "/v1/session", Need::look, {}}, session::end},
    {{Method::post, "/v1/session/codes", Need::full, {}}, session::code},
    {{Method::post, "/v1/session/account", Need::nothing, {}, Adds::work},
     people::sign_in_by_account},
    {{Method::get, "/v1/auth", Need::nothing, {}}, sign_in::offered},
    {{Method::post, "/v1/auth/start", Need::nothing, {}, Adds::work}, sign_in::start},
    {{Method::post, "/v1/auth/finish", Need::nothing, {}, Adds::work}, sign_in::finish},
    {{Method::post, "/v1/auth/device", Need::nothing, {}, Adds::work}, sign_in::device},
    {{Method::post, "/v1/auth/device/poll", Need::nothing, {}, Adds::work}, sign_in::device_poll},
    {{Method::get, "/v1/auth/login", Need::nothing, {}, Adds::work}, sign_in::browser},
    {{Method::get, "/v1/auth/callback", Need::nothing, {}, Adds::work}, sign_in::callback},
    {{Method::post, exchange_path, Need::nothing, {}, Adds::work}, sign_in::exchange},
    {{Method::get, "/v1/auth/providers", Need::look, users_read}, sign_in::providers},
    {{Method::put, "/v1/auth/providers/{name}", Need::full, logins_change, Adds::work},
     sign_in::set_provider},
    {{Method::del, "/v1/auth/providers/{name}", Need::full, logins_change},
     sign_in::remove_provider},
    {{Method::get, "/v1/projects", Need::look, {}}, admin::projects},
    {{Method::post, "/v1/projects", Need::full, projects_change, Adds::work}, admin::add_project},
    {{Method::put, "/v1/projects/{project}", Need::full, projects_change}, admin::set_project},
    {{Method::put, "/v1/projects/{project}/members/{user}", Need::full, members_change, Adds::work},
     admin::set_member},
    {{Method::del, "/v1/projects/{project}/members/{user}", Need::full, members_change},
     admin::remove_member},
    {{Method::put, "/v1/default-project", Need::full, {}}, people::set_default_project},
    {{Method::get, "/v1/roles", Need::look, {}}, people::roles},
    {{Method::put, "/v1/roles/{role}", Need::full, users_change, Adds::work}, people::set_role},
    {{Method::del, "/v1/roles/{role}", Need::full, users_change}, people::remove_role},
    {{Method::get, "/v1/users", Need::look, {}}, people::users},
    {{Method::post, "/v1/users", Need::full, users_change, Adds::work}, people::add_user},
    {{Method::put, "/v1/users/{user}", Need::full, users_change}, people::set_user},
    {{Method::del, "/v1/users/{user}", Need::full, users_change}, people::remove_user},
    {{Method::post, "/v1/users/{user}/tokens", Need::full, users_change, Adds::work},
     people::create_token_for},
    {{Method::get, "/v1/approvals", Need::look, {}}, approvals::list},
    {{Method::post, "/v1/approvals/{id}", Need::full, {}}, approvals::decide},
    {{Method::get, "/v1/secrets", Need::look, secrets_read}, secrets::list},
    {{Method::put, "/v1/secrets/{name}", Need::full, secrets_set, Adds::work}, secrets::set},
    {{Method::del, "/v1/secrets/{name}", Need::full, secrets_set}, secrets::remove},
    {{Method::post, "/v1/secret-key/rotate", Need::full, backends_change}, secrets::rotate_key},
    {{Method::get, "/v1/secret-backends", Need::look, PermissionSet{backends_change, users_read}},
     secrets::backends},
    {{Method::put, "/v1/secret-backends/{name}", Need::full, backends_change, Adds::work},
     secrets::set_backend},
    {{Method::del, "/v1/secret-backends/{name}", Need::full, backends_change},
     secrets::remove_backend},
    {{Method::post, "/v1/secret-backends/{name}/check", Need::full, backends_change},
     secrets::check_backend},
    {{Method::get, "/v1/notify", Need::look, {}}, notify::list},
    {{Method::post, "/v1/notify", Need::full, {}, Adds::work}, notify::add},
    {{Method::put, "/v1/notify/{id}", Need::full, {}}, notify::change},
    {{Method::del, "/v1/notify/{id}", Need::full, {}}, notify::remove},
    {{Method::post, "/v1/notify/{id}/confirm", Need::full, {}}, notify::confirm},
    {{Method::post, "/v1/notify/{id}/test", Need::full, {}}, notify::test},
    {{Method::get, "/v1/tokens", Need::look, {}}, people::tokens},
    {{Method::post, "/v1/tokens", Need::full, {}, Adds::work}, people::create_token},
    {{Method::del, "/v1/tokens/{id}", Need::full, {}}, people::revoke_token},
    {{Method::post, "/v1/tokens/{id}/rotate", Need::full, {}}, people::rotate_token},
};

constexpr PermissionSet brings{jobs_run, endpoints_deploy};  // files
// Jobs, their files and surroundings.
const Route job_routes[] = {
    {{Method::post, "/v1/jobs", Need::work, jobs_run, Adds::work}, jobs::submit},
    {{Method::get, "/v1/jobs", Need::look, jobs_read}, jobs::list},
    {{Method::get, "/v1/jobs/{id}", Need::look, jobs_read}, jobs::get},
    {{Method::get, "/v1/jobs/{id}/wait", Need::look, jobs_read}, jobs::wait},
    {{Method::post, "/v1/jobs/{id}/stop", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::stop},
    {{Method::post, "/v1/jobs/{id}/suspend", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::suspend},
    {{Method::post, "/v1/jobs/{id}/resume", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::resume},
    {{Method::post, "/v1/jobs/{id}/signal", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::signal},
    {{Method::get, "/v1/jobs/{id}/explain", Need::look, jobs_read}, jobs::explain},
    {{Method::get, "/v1/jobs/{id}/logs", Need::look, jobs_read}, streams::logs},
    {{Method::get, "/v1/jobs/{id}/log/range", Need::look, jobs_read}, streams::log_range},
    {{Method::get, "/v1/jobs/{id}/log/search", Need::look, jobs_read}, streams::log_search},
    {{Method::get, "/v1/jobs/{id}/attach", Need::look, jobs_read}, streams::attach},
    {{Method::get, "/v1/jobs/{id}/tunnel", Need::work, PermissionSet{jobs_run, jobs_any}},
     streams::tunnel},
    {{Method::get, "/v1/jobs/{id}/history", Need::look, jobs_read}, history::job},
    {{Method::get, "/v1/jobs/{id}/outputs", Need::look, jobs_read}, files::outputs},
    {{Method::post, "/v1/jobs/{id}/files", Need::work, PermissionSet{jobs_run, jobs_any}},
     files::copy},
    {{Method::post, "/v1/files/trees", Need::files, brings, Adds::work, Body::octets},
     files::add_tree},
    {{Method::get, "/v1/files/trees/{digest}", Need::files,
      PermissionSet{jobs_read, jobs_run, endpoints_deploy}},
     files::get_tree},
    {{Method::post, "/v1/files/packs", Need::files, brings, Adds::work, Body::octets},
     files::add_pack},
    {{Method::post, "/v1/files/door", Need::files, brings, Adds::work}, files::open_door},
    {{Method::post, "/v1/files/pieces", Need::files,
      PermissionSet{jobs_read, jobs_run, endpoints_deploy}, Adds::nothing, Body::octets},
     files::get_pieces},
    {{Method::post, "/v1/files/residency", Need::node, {}}, files::residency},
    {{Method::put, "/v1/tasks/{id}/outputs", Need::node, {}, Adds::nothing, Body::octets},
     files::set_outputs},
    {{Method::get, "/v1/volumes", Need::look, {}}, volumes::list},
    {{Method::post, "/v1/volumes", Need::full, volumes_change, Adds::work}, volumes::add},
    {{Method::del, "/v1/volumes/{name}", Need::full, volumes_change}, volumes::remove},
    {{Method::get, "/v1/environments", Need::look, jobs_read}, environments::list},
    {{Method::get, "/v1/environments/{name}", Need::look, jobs_read}, environments::get},
    {{Method::put, "/v1/environments/{name}", Need::work, jobs_run, Adds::work},
     environments::save},
    {{Method::del, "/v1/environments/{name}", Need::work, jobs_run}, environments::remove},
    {{Method::put, "/v1/jobs/{id}/labels", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::set_labels},
    {{Method::post, "/v1/jobs/{id}/rerun", Need::work, jobs_run, Adds::work}, jobs::rerun},
    {{Method::post, "/v1/jobs/{id}/restart", Need::work, PermissionSet{jobs_run, jobs_any}},
     jobs::restart},
    {{Method::put, "/v1/tasks/{id}/image", Need::node, {}, Adds::nothing, Body::octets},
     jobs::set_image},
    {{Method::get, "/v1/presets", Need::look, jobs_read}, presets::list},
    {{Method::put, "/v1/presets/{name}", Need::work, jobs_run, Adds::work}, presets::set},
    {{Method::del, "/v1/presets/{name}", Need::work, jobs_run}, presets::remove},
    {{Method::get, "/v1/schedules", Need::look, jobs_read}, admin::schedules},
    {{Method::post, "/v1/schedules", Need::work, jobs_run, Adds::work}, admin::add_schedule},
    {{Method::del, "/v1/schedules/{name}", Need::work, PermissionSet{jobs_run, jobs_any}},
     admin::remove_schedule},
};

// Endpoints, reservations and quotas.
const Route endpoint_routes[] = {
    {{Method::get, "/v1/quotas", Need::look, {}}, quotas::list},
    {{Method::put, "/v1/quotas", Need::full, projects_change}, quotas::set},
    {{Method::del, "/v1/quotas/{scope}/{of}/{kind}", Need::full, projects_change}, quotas::remove},
    {{Method::get, "/v1/reservations", Need::look, jobs_read}, reservations::list},
    {{Method::post, "/v1/reservations", Need::full, reservations_make, Adds::work},
     reservations::make},
    {{Method::del, "/v1/reservations/{id}", Need::full, reservations_make}, reservations::cancel},
    {{Method::get, "/v1/endpoints", Need::look, jobs_read}, endpoints::list},
    {{Method::post, "/v1/endpoints", Need::work, endpoints_deploy, Adds::work}, endpoints::deploy},
    {{Method::get, "/v1/endpoints/{name}", Need::look, jobs_read}, endpoints::get},
    {{Method::del, "/v1/endpoints/{name}", Need::work, PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::remove},
    {{Method::get, "/v1/endpoints/{name}/explain", Need::look, jobs_read}, endpoints::explain},
    {{Method::get, "/v1/endpoints/{name}/series", Need::look, jobs_read}, history::endpoint},
    {{Method::post, "/v1/endpoints/{name}/scale", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::scale},
    {{Method::post, "/v1/endpoints/{name}/rollback", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::rollback},
    {{Method::post, "/v1/endpoints/{name}/traffic", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::traffic},
    {{Method::post, "/v1/endpoints/{name}/promote", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::promote},
    {{Method::get, "/v1/endpoints/{name}/calls", Need::look, jobs_read}, endpoints::calls},
    {{Method::get, "/v1/endpoints/{name}/calls/{id}", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::asynchronous_call},
    {{Method::del, "/v1/endpoints/{name}/calls/{id}", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::cancel_call},
    {{Method::post, "/v1/endpoints/{name}/keys", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}, Adds::work},
     endpoints::add_key},
    {{Method::del, "/v1/endpoints/{name}/keys/{key}", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     endpoints::remove_key},
    {{Method::get, "/v1/endpoints/{name}/limits", Need::look, jobs_read}, door::limits},
    {{Method::put, "/v1/endpoints/{name}/limits", Need::work,
      PermissionSet{endpoints_deploy, jobs_any}},
     door::set_limits},
    {{Method::get, "/v1/model-routes", Need::look, jobs_read}, door::models},
    {{Method::post, "/v1/model-routes", Need::work, PermissionSet{endpoints_deploy, jobs_any},
      Adds::work},
     door::set_model},
    {{Method::del, "/v1/model-routes", Need::work, PermissionSet{endpoints_deploy, jobs_any}},
     door::remove_model},
    {{Method::get, "/v1/domains", Need::look, jobs_read}, door::domains},
    {{Method::post, "/v1/domains", Need::work, PermissionSet{endpoints_deploy, jobs_any},
      Adds::work},
     door::set_domain},
    {{Method::del, "/v1/domains/{name}", Need::work, PermissionSet{endpoints_deploy, jobs_any}},
     door::remove_domain},
};

// Nodes, pools, agents and gateways.
const Route machine_routes[] = {
    {{Method::get, "/v1/nodes", Need::look, {}}, admin::nodes},
    {{Method::get, "/v1/nodes/{name}", Need::look, {}}, admin::node},
    {{Method::post, "/v1/nodes/{name}/drain", Need::full, nodes_drain}, admin::drain},
    {{Method::post, "/v1/nodes/{name}/undrain", Need::full, nodes_drain}, admin::undrain},
    {{Method::del, "/v1/nodes/{name}", Need::full, nodes_change}, admin::remove_node},
    {{Method::get, "/v1/nodes/{name}/gpus/{index}/history", Need::look, {}}, history::gpu},
    {{Method::post, "/v1/nodes/{name}/gpus/{index}/drain", Need::full, nodes_drain},
     history::drain_gpu},
    {{Method::post, "/v1/nodes/{name}/gpus/{index}/undrain", Need::full, nodes_drain},
     history::undrain_gpu},
    {{Method::get, "/v1/gateway", Need::gateway, head_control}, endpoints::gateway},
    {{Method::get, "/v1/gateways", Need::look, {}}, endpoints::gateways},
    {{Method::get, "/v1/agent", Need::node, {}}, agent},
    {{Method::post, "/v1/join", Need::join, {}}, fleet::join},
    {{Method::post, "/v1/certificate", Need::machine, {}}, certificates::issue},
    {{Method::post, "/v1/agent/key", Need::node, {}}, certificates::replace_key},
    {{Method::get, "/v1/authority", Need::look, {}}, certificates::authority},
    {{Method::post, "/v1/authority/rotate", Need::full, head_control}, certificates::rotate},
    {{Method::post, "/v1/fabric/check", Need::full, nodes_drain}, fabric::check},
    {{Method::get, "/v1/pools", Need::look, {}}, fleet::pools},
    {{Method::post, "/v1/pools", Need::full, pools_change, Adds::work}, fleet::add_pool},
    {{Method::del, "/v1/pools/{name}", Need::full, pools_change}, fleet::remove_pool},
    {{Method::get, "/v1/pools/{name}/offers", Need::look, {}}, fleet::offers},
    {{Method::post, "/v1/pools/{name}/offers", Need::full, pools_change}, fleet::refresh_offers},
    {{Method::post, "/v1/pools/{name}/check", Need::full, pools_change}, fleet::check_pool},
    {{Method::post, "/v1/pools/{name}/retry", Need::full, pools_change}, fleet::retry_pool},
    {{Method::get, "/v1/providers", Need::look, {}}, fleet::providers},
    {{Method::get, "/v1/pools/{name}/strays", Need::look, PermissionSet{pools_change, users_read}},
     fleet::strays},
    {{Method::del, "/v1/pools/{name}/strays", Need::full, pools_change}, fleet::end_strays},
    {{Method::get, "/v1/program", Need::join, {}}, fleet::program},
    {{Method::post, "/v1/machines/{name}/release", Need::full, pools_change},
     fleet::release_machine},
};

// Reports, prices, budgets and notices.
const Route money_routes[] = {
    {{Method::get, "/v1/prices/rates", Need::look, {}}, money::rates},
    {{Method::get, "/v1/cost", Need::look, money_read}, money::cost},
    {{Method::get, "/v1/jobs/{id}/cost", Need::look, money_read}, money::job_cost},
    {{Method::post, "/v1/jobs/{id}/keepalive", Need::work, PermissionSet{jobs_run, jobs_any}},
     money::keep_alive},
    {{Method::get, "/v1/waste", Need::look, money_read}, money::waste},
    {{Method::get, "/v1/invoices", Need::look, money_read}, money::invoice},
    {{Method::get, "/v1/anomalies", Need::look, money_read}, money::anomalies},
    {{Method::get, "/v1/entries", Need::full, prices_set}, money::entries},
    {{Method::post, "/v1/bills", Need::full, prices_set, Adds::work, Body::octets},
     money::import_bill},
    {{Method::get, "/v1/months", Need::look, money_read}, money::months},
    {{Method::post, "/v1/months/{month}/close", Need::full, prices_set}, money::close_month},
    {{Method::get, "/v1/budgets", Need::look, money_read}, money::budgets},
    {{Method::put, "/v1/budgets", Need::full, PermissionSet{money_set, jobs_run, jobs_any}},
     money::set_budget},
    {{Method::del, "/v1/budgets/{scope}/{of}/{period}", Need::full,
      PermissionSet{money_set, jobs_run, jobs_any}},
     money::remove_budget},
    {{Method::get, "/v1/prices", Need::look, {}}, money::prices},
    {{Method::put, "/v1/prices", Need::full, prices_set, Adds::work}, money::set_price},
    {{Method::del, "/v1/prices/{of}", Need::full, prices_set}, money::remove_price},
    {{Method::get, "/v1/idle", Need::look, money_read}, money::idle},
    {{Method::put, "/v1/idle", Need::full, money_set}, money::set_idle},
    {{Method::get, "/v1/webhooks", Need::full, prices_set}, money::webhooks},
    {{Method::post, "/v1/webhooks", Need::full, prices_set, Adds::work}, money::add_webhook},
    {{Method::del, "/v1/webhooks/{id}", Need::full, prices_set}, money::remove_webhook},
    {{Method::post, "/v1/webhooks/{id}/test", Need::full, prices_set}, money::test_webhook},
    {{Method::post, "/v1/webhooks/{id}/rotate", Need::full, prices_set}, money::rotate_webhook},
    {{Method::get, "/v1/commitments", Need::look, {}}, money::commitments},
    {{Method::put, "/v1/commitments", Need::full, prices_set, Adds::work}, money::set_commitment},
    {{Method::del, "/v1/commitments/{name}", Need::full, prices_set}, money::remove_commitment},
    {{Method::put, "/v1/projects/{project}/tags/{key}", Need::full, money_set, Adds::work},
     money::tag_project},
};

const std::vector<Route>& table() {
  static const std::vector<Route> routes = [] {
    std::vector<Route> all;
    for (const std::span<const Route> family :
         {std::span<const Route>(head_routes), std::span<const Route>(people_routes),
          std::span<const Route>(job_routes), std::span<const Route>(endpoint_routes),
          std::span<const Route>(machine_routes), std::span<const Route>(money_routes)})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return routes;
}

// Matches "/v1/jobs/{id}" against a path and collects the values of the names.
bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& parts) {
  parts.clear();
  const auto want = split(pattern, '/'), got = split(path, '/');
  if (want.size() != got.size())
    return false;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (want[i].starts_with('{')) {
      if (got[i].empty())
        return false;
      parts.push_back(got[i]);
    } else if (want[i] != got[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct Api::Impl {
  Host& host;
  SignInCodes codes;
  std::optional<net::Turns> turns;  // from the first request on: the loop comes after the API
  DeniedCalls denied;
  AccountTokens accounts;
  SignIns sign_ins;
  NodeSignatures signatures = {};
  streams::TerminalWindows windows = {};
  streams::LiveStreams live = {};

  // Looked at before its body comes, and answered once: only then is a node's signature spent.
  Result<control::Principal> authenticate(const net::Request& request,
                                          NodeSignatures::Use use = NodeSignatures::Use::look) {
    const std::string_view header = request.headers.get("Authorization");
    if (starts_with_nocase(header, net::node_scheme))
      return signatures.authenticate(host.state(), request, host.now(), use);
    if (const std::string session = header.empty() ? session_token(request) : "";
        !session.empty()) {
      if (!asked_by_our_page(request))
        return fail(Code::forbidden, "only the dashboard can use a browser's session",
                    "send X-Billow-Request: 1");
      const auto parent = session_from(session);
      if (!parent)
        return fail(Code::unauthorized, "this head does not know the session",
                    "sign in again: billow dashboard");
      return control::authenticate(host.state(),
                                   control::session_hash(*parent, sha256_hex(session)), host.now());
    }
    if (!starts_with_nocase(header, "Bearer "))
      return fail(Code::unauthorized, "this call needs a token",
                  "send it as: Authorization: Bearer TOKEN");
    return control::authenticate(host.state(), sha256_hex(secret_of(header.substr(7))), host.now());
  }

  // The route of a request. Null: none; `path_known` then says whether the path has other methods.
  static const Route* find(const net::Request& request,
                           std::vector<std::string>& parts,
                           bool& path_known) {
    const Method method = request.method == Method::head ? Method::get : request.method;
    path_known = false;
    for (const Route& route : table()) {
      if (!matches(route.info.pattern, request.path, parts))
        continue;
      path_known = true;
      if (route.info.method == method)
        return &route;
    }
    return nullptr;
  }

  void dispatch(std::shared_ptr<net::Exchange> exchange) {
    net::Request& request = exchange->request();
    if (!turns)
      turns.emplace(host.loop());
    auto call = std::make_shared<Call>(Call{.host = host,
                                            .exchange = exchange,
                                            .principal = {},
                                            .parts = {},
                                            .codes = &codes,
                                            .turns = &*turns,
                                            .denied = &denied,
                                            .accounts = &accounts,
                                            .sign_ins = &sign_ins,
                                            .windows = &windows,
                                            .live = &live});
    bool path_known = false;
    const Route* route = find(request, call->parts, path_known);
    if (!route && path_known)
      return call->exchange->respond(net::problem(
          405,
          fmt::format("{} does not support {}", request.path, net::method_name(request.method)), "",
          request.request_id));
    if (!route)
      return call->fail({Code::not_found, fmt::format("no such path: {}", request.path),
                         "the routes are listed in /v1/openapi.json"});
    if (route->info.need != Need::nothing) {
      auto who = authenticate(request, NodeSignatures::Use::spend);
      if (!who)
        return call->fail(who.error());
      call->principal = std::move(*who);
      sign_ins.used(call->principal.token, host.now());
      call->need = route->info.need;
      call->permissions = route->info.permissions;
      if (const Status ok = call->allowed_now(); !ok)
        return call->fail(ok.error());
    }
    if (route->info.adds == Adds::work)
      if (const Status open = host.accepting_work(); !open)
        return call->fail(open.error());
    if (route->info.body == Body::json && request.body.size() > limits::json_on_loop_bytes_max)
      return parse_on_worker(std::move(call), *route, std::move(request.body));
    route->run(call);
  }

  void parse_on_worker(CallPtr call, const Route& route, std::string text) {
    const Status queued = host.workers().submit(
        [text = std::move(text)] { return std::make_shared<Result<Json>>(parse_body(text)); },
        [call, run = route.run](std::shared_ptr<Result<Json>> parsed) {
          call->parsed = std::move(parsed);
          // Meanwhile the token may have been revoked.
          if (const Status still = call->need == Need::nothing ? Status{} : call->still_allowed();
              !still)
            return call->fail(still.error());
          run(call);
        });
    if (!queued)
      call->fail(queued.error());
  }
};

Api::Api(Host& host) : impl_(new Impl{host, {}, {}, {}, {}, SignIns(host)}) {}
Api::~Api() = default;

void Api::begin(WallTime now) {
  impl_->signatures.begin(now);
  impl_->sign_ins.load_uses();
  impl_->sign_ins.begin_checks();
}

void Api::end() {
  impl_->sign_ins.save_uses();
}

void Api::leave_loop() {
  impl_->sign_ins.leave_loop();
}

void Api::with_metrics(std::function<void(Result<std::string>)> fn) {
  control::Principal everybody;
  for (const auto& [id, user] : impl_->host.state().users)
    if (user.starts_heads)
      everybody = {.user = id, .name = user.name, .role = user.role, .scope = TokenScope::read};
  admin::with_metrics(std::make_shared<Call>(Call{.host = impl_->host,
                                                  .exchange = nullptr,
                                                  .principal = std::move(everybody),
                                                  .parts = {}}),
                      MetricsFormat::prometheus, std::move(fn));
}

void Api::handle(std::shared_ptr<net::Exchange> exchange) {
  impl_->dispatch(std::move(exchange));
}

net::Caller Api::identify(const net::Request& head) const {
  const auto who = impl_->authenticate(head);
  if (!who)
    return {};
  net::ShareLimits share = net::ServerLimits::limits_of_callers();
  share.connections_max = share.requests_max = limits::http_connections_max;
  // Nodes with one credential are told apart by where they are; thousands may have one address.
  if (who->scope == TokenScope::node || who->scope == TokenScope::join ||
      who->scope == TokenScope::gateway)
    return {.kind = net::CallerKind::node,
            .name = fmt::format("node token {} at {}", who->token.value,
                                net::network_of_peer(head.peer)),
            .share = share};
  const auto& state = impl_->host.state();
  const auto limit = [&](QuotaKind kind) {
    return control::quota_of(state, QuotaScope::user, who->user.value, kind).limit;
  };
  if (const std::int64_t most = limit(QuotaKind::connections); most >= 0)
    share.connections_max = share.requests_max = static_cast<std::size_t>(most);
  share.requests_per_s = share.requests_burst = 1e9;
  if (const std::int64_t most = limit(QuotaKind::requests_per_s); most >= 0) {
    share.requests_per_s = static_cast<double>(most);
    share.requests_burst =
        std::max(1.0, static_cast<double>(most) * limits::http_requests_burst_factor);
  }
  return {.kind = net::CallerKind::user, .name = "user " + who->name, .share = share};
}

Result<net::BodyPlan> Api::body_policy(const net::Request& head) const {
  std::vector<std::string> parts;
  bool path_known = false;
  const Route* route = Impl::find(head, parts, path_known);
  net::BodyPlan plan;
  if (!route || route->info.need == Need::nothing) {
    plan.bytes_max = route && route->info.pattern == exchange_path
                         ? exchange_bytes_max
                         : limits::http_unknown_body_bytes_max;
    return plan;
  }
  const auto who = impl_->authenticate(head);
  Status ok = who ? allowed(*who, route->info.need) : Status(pass(who.error()));
  if (ok)
    ok = control::permitted(impl_->host.state(), *who, route->info.permissions);
  if (ok)
    return plan;
  record_denied(impl_->host, impl_->denied, head, who ? who->name : "", ok.error());
  return pass(ok.error());
}

std::vector<RouteInfo> Api::routes() {
  std::vector<RouteInfo> out;
  for (const Route& route : table())
    out.push_back(route.info);
  return out;
}

}  // namespace billow::api
