// The routes by which admins say which identity providers the head trusts.
#include <fmt/format.h>

#include "api/call.h"
#include "api/sign_in/sign_ins.h"
#include "base/crypto.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::api::sign_in {
namespace {

struct ProviderBody {
  ProviderKind kind = ProviderKind::oidc;
  std::string issuer, client_id, client_secret;
  std::vector<std::string> map, domains;
  std::string groups_claim, name_claim, user;
  std::int64_t life_s = 0, check_s = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("kind", s.kind);
    v("issuer", s.issuer);
    v("client_id", s.client_id);
    v("client_secret", s.client_secret);
    v("map", s.map);
    v("domains", s.domains);
    v("groups_claim", s.groups_claim);
    v("name_claim", s.name_claim);
    v("user", s.user);
    v("life_s", s.life_s);
    v("check_s", s.check_s);
  }
};

constexpr std::int64_t workload_life_s = 3600, seconds_max = 30 * 86400;

Result<IdentityProvider> provider_of(const CallPtr& call, const ProviderBody& body) {
  BILLOW_TRY_VOID(identity::check_provider_url(body.issuer, "the issuer"));
  IdentityProvider out;
  out.name = call->parts[0];
  out.kind = body.kind;
  out.issuer = body.issuer;
  out.client_id = body.client_id;
  for (const std::string& text : body.map)
    out.map.push_back(BILLOW_TRY(identity::parse_role_mapping(text)));
  out.domains = body.domains;
  if (!body.groups_claim.empty())
    out.groups_claim = body.groups_claim;
  if (!body.name_claim.empty())
    out.name_claim = body.name_claim;
  const bool workload = body.kind == ProviderKind::workload;
  if (workload)
    out.user = body.user.empty() ? out.name : body.user;
  if (body.life_s < 0 || body.life_s > seconds_max || body.check_s < 0 ||
      body.check_s > seconds_max)
    return fail(Code::invalid, "life_s and check_s must be between 1 second and 30 days");
  if (body.life_s > 0 || workload)
    out.life = seconds(body.life_s > 0 ? body.life_s : workload_life_s);
  if (body.check_s > 0)
    out.check_every = seconds(body.check_s);
  out.by = call->principal.user;
  out.client_secret = body.client_secret;
  BILLOW_TRY_VOID(identity::check_provider(out));
  const auto& state = call->host.state();
  for (const identity::RoleMapping& mapping : out.map) {
    const Project* project = state.project_by_name(mapping.project);
    if (mapping.project != identity::whole_installation && !project)
      return fail(Code::not_found, fmt::format("there is no project \"{}\"", mapping.project),
                  fmt::format("create it: billow project create {}", mapping.project));
    BILLOW_TRY_VOID(control::check_grant(state, call->principal.user, mapping.role,
                                         project ? project->id : ProjectId{}));
  }
  if (!workload)
    return out;
  // The user that CI jobs act as: a service account with its own rights.
  const User* user = state.user_by_name(out.user);
  if (!user)
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", out.user),
                fmt::format("create a service account: billow user create {} --unix-name ACCOUNT",
                            out.user));
  if (user->starts_heads || control::runs_as_root(*user) ||
      !control::permissions_of(state, *user).empty())
    return fail(Code::forbidden, fmt::format("CI jobs cannot act as {}, who is an admin", out.user),
                "create a service account: billow user create NAME --unix-name ACCOUNT");
  return out;
}

Json document_of(const IdentityProvider& p) {
  Json map = Json::array();
  for (const identity::RoleMapping& each : p.map)
    map.push(fmt::format("{}={}:{}", each.from, each.project, each.role));
  Json domains = Json::array();
  for (const std::string& each : p.domains)
    domains.push(each);
  Json out = Json::object({{"name", p.name},
                           {"kind", enum_name(p.kind)},
                           {"issuer", p.issuer},
                           {"client_id", p.client_id},
                           {"has_secret", !p.client_secret.empty()},
                           {"map", std::move(map)},
                           {"domains", std::move(domains)},
                           {"groups_claim", p.groups_claim},
                           {"name_claim", p.name_claim},
                           {"life_s", p.life.ns / 1'000'000'000},
                           {"check_s", p.check_every.ns / 1'000'000'000}});
  if (!p.user.empty())
    out.set("user", p.user);
  return out;
}

}  // namespace

void providers(CallPtr call) {
  Json list = Json::array();
  for (const IdentityProvider& provider : call->sign_ins->providers())
    list.push(document_of(provider));
  call->reply_durable(200, Json::object({{"providers", std::move(list)}}));
}

// Asks the provider for its description first, so that a mistake is found now and not when somebody
// signs in.
void set_provider(CallPtr call) {
  const auto body = read_body<ProviderBody>(call);
  if (!body)
    return;
  auto made = provider_of(call, *body);
  const auto ask = call->sign_ins->asker();
  if (!made || !ask)
    return call->fail(made ? ask.error() : made.error());
  const auto who = call->sign_ins->trusted(*made);
  (*ask)->discover(who, [call, made = std::move(*made)](Result<identity::Discovery> found) {
    if (!found)
      return call->fail({Code::invalid, found.error().message, "check the issuer's address"});
    if (const Status still = call->still_allowed(); !still)
      return call->fail(still.error());
    call->sign_ins->store(made, [call, made](const Status& stored) {
      if (!stored)
        return call->fail(stored.error());
      call->reply(200, document_of(made));
    });
  });
}

void remove_provider(CallPtr call) {
  call->sign_ins->remove(call->parts[0], [call](const Result<std::size_t>& ended) {
    if (!ended)
      return call->fail(ended.error());
    call->reply(200, Json::object({{"ok", true}, {"tokens_revoked", *ended}}));
  });
}

// `PROVIDER/SUBJECT`: who a user is at a provider.
void link_user(CallPtr call, const std::string& login) {
  const User* user = call->host.state().user_by_name(call->parts[0]);
  if (!user)
    return call->fail({Code::not_found, fmt::format("there is no user \"{}\"", call->parts[0]),
                       "see `billow user list`"});
  if (user->starts_heads || control::runs_as_root(*user))
    return call->fail({Code::forbidden,
                       fmt::format("user {} cannot sign in at a provider", user->name),
                       "this user has the token in the head's data directory"});
  // Anyone who signs in with this login then acts as the user.
  if (!call->may(Permission::logins_change))
    return call->fail({Code::forbidden, "linking a login needs the permission logins.change",
                       "ask an admin: billow role list"});
  if (const Status ok = control::check_may_act_as(call->host.state(), call->principal.user, *user);
      !ok)
    return call->fail(ok.error());
  if (user->service)
    return call->fail({Code::forbidden,
                       fmt::format("user {} is a service account and cannot sign in", user->name),
                       "create a token for it: billow token create NAME --user " + user->name});
  const auto slash = login.find('/');
  const auto provider = call->sign_ins->provider(login.substr(0, slash), ProviderKind::oidc);
  if (!provider || slash == std::string::npos || slash + 1 == login.size())
    return call->fail({Code::invalid, fmt::format("\"{}\" is not a login", login),
                       "write PROVIDER/SUBJECT; see `billow auth list`"});
  call->sign_ins->link(*provider, login.substr(slash + 1), user->id, [call](const Status& done) {
    if (!done)
      return call->fail(done.error());
    call->reply(200, Json::object({{"ok", true}}));
  });
}

}  // namespace billow::api::sign_in
