#include "api/sign_in/sign_ins.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/session.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "core/control/decide/installation_secrets.h"
#include "core/wire/codec.h"
#include "identity/jwt.h"

namespace billow::api {
namespace {

constexpr Duration login_look_every = seconds(1), check_min = seconds(1);
constexpr std::size_t checks_max = 4;  // at once
constexpr Duration uses_saved_every = minutes(1);
constexpr std::size_t uses_bytes_max = 64 << 20;

}  // namespace

// ---- records of the installation

namespace {

constexpr std::string_view provider_prefix = "provider/", login_prefix = "login/";

std::string provider_record(const std::string& name) {
  return std::string(provider_prefix) + name;
}
// By issuer, not by the provider's name: a name can be given to another provider later.
std::string link_record(const IdentityProvider& provider, const std::string& subject) {
  return "subject/" + sha256_hex(provider.issuer + "\n" + subject);
}
std::string login_record(TokenId token) {
  return fmt::format("{}{}", login_prefix, token.value);
}
// Tokens of a provider's sign-ins have this name.
std::string token_name(const std::string& provider) {
  return "login." + provider;
}

UserId founder_of(const control::State& state) {
  for (const auto& [id, user] : state.users)
    if (user.starts_heads)
      return id;
  return state.users.empty() ? UserId{} : state.users.begin()->first;
}

}  // namespace

template <class T>
std::optional<T> SignIns::read(const std::string& name) const {
  const auto& all = host_.state().secrets;
  const auto found = all.find({ProjectId{}, name});
  if (found == all.end())
    return std::nullopt;
  const auto text = host_.unseal_secret(name, found->second.sealed);
  if (!text) {
    log_warn("{} cannot be read: {}", name, text.error().message);
    return std::nullopt;
  }
  auto value = wire::from_json_text<T>(*text);
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

template <class T>
Result<Command> SignIns::record(const std::string& name, const T& value) {
  std::string text = wire::to_json_text(value);
  auto sealed = host_.seal_secret(ProjectId{}, name, text);
  wipe(text);
  if (!sealed)
    return pass(sealed.error());
  return Command(SetSecret{.project = control::installation_secrets,
                           .user = founder_of(host_.state()),
                           .name = name,
                           .sealed = std::move(*sealed)});
}

Command SignIns::forget(const std::string& name) const {
  return RemoveSecret{
      .project = control::installation_secrets, .user = founder_of(host_.state()), .name = name};
}

// One after the other; an error ends it. What was done stays: signing in again completes it.
void SignIns::run(std::vector<Command> commands,
                  control::Cause cause,
                  std::function<void(Result<std::vector<Event>>)> done) {
  if (commands.empty())
    return done(std::vector<Event>{});
  Command first = std::move(commands.front());
  commands.erase(commands.begin());
  host_.execute(std::move(first), cause,
                [this, commands = std::move(commands), cause,
                 done = std::move(done)](Result<std::vector<Event>> events) mutable {
                  if (!events || commands.empty())
                    return done(std::move(events));
                  run(std::move(commands), std::move(cause), std::move(done));
                });
}

// ---- providers

std::vector<IdentityProvider> SignIns::providers() const {
  std::vector<IdentityProvider> out;
  const auto& all = host_.state().secrets;
  for (auto at = all.lower_bound({ProjectId{}, std::string(provider_prefix)});
       at != all.end() && at->first.first == ProjectId{} &&
       at->first.second.starts_with(provider_prefix);
       ++at)
    if (auto one = read<IdentityProvider>(at->first.second))
      out.push_back(std::move(*one));
  return out;
}

Result<IdentityProvider> SignIns::provider(const std::string& name, ProviderKind kind) const {
  auto found = read<IdentityProvider>(provider_record(name));
  if (found && found->kind == kind)
    return std::move(*found);
  return fail(Code::not_found, fmt::format("there is no identity provider \"{}\"", name),
              "see `billow auth list`");
}

identity::Providers::Trusted SignIns::trusted(const IdentityProvider& provider) const {
  return {provider.issuer, control::is_founder(host_.state(), provider.by)};
}

Result<identity::Providers*> SignIns::asker() {
  if (!asker_)
    asker_ = BILLOW_TRY(identity::Providers::create(host_.loop(), {}));
  return asker_.get();
}

void SignIns::store(const IdentityProvider& provider, Stored done) {
  auto command = record(provider_record(provider.name), provider);
  if (!command)
    return done(pass(command.error()));
  const auto by = host_.state().users.find(provider.by);
  run({std::move(*command)},
      {by == host_.state().users.end() ? "head" : "user:" + by->second.name, "provider"},
      [done](const Result<std::vector<Event>>& events) {
        done(events ? Status{} : Status(pass(events.error())));
      });
}

void SignIns::remove(const std::string& name, std::function<void(Result<std::size_t>)> done) {
  if (!read<IdentityProvider>(provider_record(name)))
    return done(fail(Code::not_found, fmt::format("there is no identity provider \"{}\"", name),
                     "see `billow auth list`"));
  std::vector<Command> commands{forget(provider_record(name))};
  for (const auto& [id, token] : host_.state().tokens)
    if (token.name == token_name(name) && token.made_by.empty()) {
      commands.push_back(RevokeToken{id});
      commands.push_back(forget(login_record(id)));
    }
  const std::size_t tokens = commands.size() / 2;
  run(std::move(commands), {"head", "provider"},
      [done, tokens](const Result<std::vector<Event>>& events) {
        done(events ? Result<std::size_t>(tokens) : Result<std::size_t>(pass(events.error())));
      });
}

void SignIns::link(const IdentityProvider& provider,
                   const std::string& subject,
                   UserId user,
                   Stored done) {
  auto command = record(link_record(provider, subject), Link{user});
  if (!command)
    return done(pass(command.error()));
  run({std::move(*command)}, {"head", "provider"},
      [done](const Result<std::vector<Event>>& events) {
        done(events ? Status{} : Status(pass(events.error())));
      });
}

void SignIns::prove(const IdentityProvider& provider,
                    Fields grant,
                    std::string nonce,
                    std::function<void(Result<Proof>)> done) {
  const auto ask = asker();
  if (!ask)
    return done(pass(ask.error()));
  const auto who = trusted(provider);
  const bool renewal = !grant.empty() && grant.front().second == "refresh_token";
  const auto came = [this, provider, who, nonce, renewal, done](Result<Json> answer) {
    if (!answer)
      return done(pass(answer.error()));
    Proof proof;
    proof.refresh = (*answer)["refresh_token"].str_or("");
    const std::string token((*answer)["id_token"].str_or(""));
    if (token.empty() && renewal) {
      proof.has_claims = false;
      return done(std::move(proof));
    }
    const auto checked = [this, provider, nonce, proof, done](Result<Json> claims) {
      if (!claims)
        return done(pass(claims.error()));
      const Status good = identity::check_claims(
          *claims, {provider.issuer, provider.client_id, nonce, host_.now()});
      if (!good)
        return done(pass(good.error()));
      auto person = identity::person_in(*claims, {provider.groups_claim, provider.name_claim});
      if (!person)
        return done(pass(person.error()));
      if (!identity::in_domain(*person, provider.domains))
        return done(fail(Code::forbidden,
                         "your e-mail address is not verified, or its domain is not accepted"));
      Proof whole = proof;
      whole.person = std::move(*person);
      done(std::move(whole));
    };
    (*asker())->check_signature(who, token, checked);
  };
  (*ask)->discover(who, [this, provider, who, grant = std::move(grant), came,
                         done](Result<identity::Discovery> found) {
    if (!found)
      return done(pass(found.error()));
    (*asker())->post(
        who, {found->token_endpoint, grant, provider.client_id, provider.client_secret}, came);
  });
}

// ---- a token for it

// Null: the provider's person has no user yet.
Result<const User*> SignIns::user_of(const IdentityProvider& provider,
                                     const std::string& subject) const {
  const auto link = read<Link>(link_record(provider, subject));
  const auto& users = host_.state().users;
  const auto found = link ? users.find(link->user) : users.end();
  if (found == users.end() || found->second.state == UserState::removed)
    return nullptr;
  const User& user = found->second;
  if (user.state != UserState::active)
    return fail(Code::forbidden, fmt::format("user {} is {}", user.name, enum_name(user.state)),
                "ask an admin: billow user set NAME --enable");
  if (user.starts_heads || control::runs_as_root(user))
    return fail(Code::forbidden, fmt::format("user {} cannot sign in at a provider", user.name));
  return &user;
}

// Nobody becomes another person's user, or gets another person's account, by having the same name
// at a provider. The name becomes the account that the person's jobs run as.
Status SignIns::check_new(const IdentityProvider& provider, const identity::Person& person) const {
  const auto refuse = [&](std::string why) {
    return fail(Code::forbidden, std::move(why),
                fmt::format("ask an admin to link your user: billow user set NAME --login {}/{}",
                            provider.name, person.subject));
  };
  if (person.name.empty())
    return refuse(fmt::format("{} provides no valid user name for you", provider.name));
  if (is_system_account(person.name) || person.name == "root")
    return refuse(fmt::format("{} is a system account", person.name));
  for (const auto& [id, other] : host_.state().users)
    if (other.state != UserState::removed &&
        (other.name == person.name || other.unix_name == person.name))
      return refuse(
          other.name == person.name
              ? fmt::format("a user named {} exists already", person.name)
              : fmt::format("the account {} belongs to user {}", person.name, other.name));
  return {};
}

// Exactly the roles that the provider's mappings give. Projects that no mapping names are not its
// business.
std::vector<Command> SignIns::rights_commands(const IdentityProvider& provider,
                                              const identity::Rights& rights,
                                              const std::string& user) const {
  std::vector<Command> out;
  std::set<std::string> managed;
  for (const identity::RoleMapping& mapping : provider.map)
    managed.insert(mapping.project);
  const auto& state = host_.state();
  for (const std::string& name : managed) {
    const Project* project = state.project_by_name(name);
    if (!project)
      continue;
    const auto member = project->members.find(user);
    const auto now =
        member == project->members.end() ? std::nullopt : std::optional(member->second);
    const auto given = std::ranges::find(rights.projects, name, &identity::RoleMapping::project);
    const auto wanted = given == rights.projects.end() ? std::nullopt : std::optional(given->role);
    if (wanted != now)
      out.push_back(SetMember{name, user, wanted});
  }
  if (managed.contains(std::string(identity::whole_installation)))
    out.push_back(SetUser{.name = user, .role = rights.installation.value_or(roles::member)});
  return out;
}

void SignIns::give(const IdentityProvider& provider,
                   NewToken wish,
                   control::Cause cause,
                   OnGiven done) {
  std::string secret = "bw_" + random_token(30);
  CreateToken command{.name = wish.name,
                      .hash = sha256_hex(secret),
                      .user = wish.user,
                      .scope = wish.scope,
                      .project = wish.project,
                      .life = provider.life,
                      .node = {},
                      .made_by = wish.user,
                      .parent = {}};
  host_.execute(
      std::move(command), cause,
      [this, provider, wish, cause, secret, done](Result<std::vector<Event>> events) {
        if (!events)
          return done(pass(events.error()));
        Given given{{}, secret, wish.user, {}};
        for (const Event& event : *events)
          if (const auto* made = get_if<TokenCreated>(&event.body)) {
            given.id = made->token.id;
            given.expires_at = made->token.expires_at;
          }
        if (wish.refresh.empty())
          return done(given);
        auto kept =
            record(login_record(given.id), Login{provider.name, wish.subject, wish.refresh});
        if (!kept) {
          // The token works, and just expires.
          log_warn("sign-ins at {} cannot be renewed: {}", provider.name, kept.error().message);
          return done(given);
        }
        run({std::move(*kept)}, cause, [given, done](const Result<std::vector<Event>>& stored) {
          done(stored ? Result<Given>(given) : Result<Given>(pass(stored.error())));
        });
      });
}

void SignIns::sign_in(const IdentityProvider& provider,
                      const Proof& proof,
                      Caller caller,
                      OnGiven done) {
  const control::Cause cause{"login:" + provider.name, caller.request_id, {}, caller.peer};
  const identity::Rights rights = rights_of(provider, proof.person.groups);
  const auto known = user_of(provider, proof.person.subject);
  if (!known)
    return done(pass(known.error()));
  if (rights.none())
    return done(fail(Code::forbidden,
                     fmt::format("none of your groups at {} gives you access here", provider.name),
                     "ask an admin to map one of your groups: billow auth list"));
  std::vector<Command> commands;
  if (!*known) {
    if (const Status good = check_new(provider, proof.person); !good)
      return done(pass(good.error()));
    // The creator is no real user, so the new account cannot share another user's Unix account.
    commands.push_back(AddUser{proof.person.name, "", roles::member, UserId(UINT64_MAX)});
  }
  const std::string name = *known ? (*known)->name : proof.person.name;
  run(std::move(commands), cause,
      [this, provider, proof, rights, name, cause, done](const Result<std::vector<Event>>& made) {
        const User* user = host_.state().user_by_name(name);
        if (!made || !user)
          return done(made
                          ? Result<Given>(fail(Code::unavailable, "the user was removed meanwhile"))
                          : Result<Given>(pass(made.error())));
        std::vector<Command> more = rights_commands(provider, rights, name);
        auto linked = record(link_record(provider, proof.person.subject), Link{user->id});
        if (!linked)
          return done(pass(linked.error()));
        more.insert(more.begin(), std::move(*linked));
        run(std::move(more), cause,
            [this, provider, proof, name, cause, done](const Result<std::vector<Event>>& set) {
              if (!set)
                return done(pass(set.error()));
              give(provider,
                   {.name = token_name(provider.name),
                    .user = name,
                    .project = {},
                    .refresh = proof.refresh,
                    .subject = proof.person.subject},
                   cause, done);
            });
      });
}

void SignIns::exchange(const std::string& token, Caller caller, OnGiven done) {
  const auto parsed = identity::parse_jwt(token);
  if (!parsed)
    return done(fail(Code::unauthorized, parsed.error().message));
  // The issuer in the token only chooses among those that an admin has named.
  const std::string issuer(parsed->claims["iss"].str_or(""));
  std::optional<IdentityProvider> found;
  for (IdentityProvider& each : providers())
    if (each.kind == ProviderKind::workload && each.issuer == issuer)
      found = std::move(each);
  const auto ask = asker();
  if (!ask || !found)
    return done(fail(Code::unauthorized, "no CI system of this issuer may sign in here",
                     "an admin can allow it: billow auth add workload"));
  const control::Cause cause{"login:" + found->name, caller.request_id, {}, caller.peer};
  (*ask)->check_signature(
      trusted(*found), token, [this, provider = *found, cause, done](Result<Json> claims) {
        if (!claims)
          return done(pass(claims.error()));
        if (const Status good = identity::check_claims(
                *claims, {provider.issuer, provider.client_id, "", host_.now()});
            !good)
          return done(pass(good.error()));
        const std::string subject((*claims)["sub"].str_or(""));
        const identity::Rights rights = rights_of(provider, {subject});
        if (subject.empty() || rights.projects.empty())
          return done(fail(Code::forbidden,
                           fmt::format("no mapping of {} fits the subject \"{}\"", provider.name,
                                       utf8_prefix(repaired_utf8(subject), 200)),
                           "an admin can add one: billow auth add workload --map"));
        // One token, one project: the first that fits.
        const identity::RoleMapping one = rights.projects.front();
        const Project* project = host_.state().project_by_name(one.project);
        const User* user = host_.state().user_by_name(provider.user);
        if (!project || !user)
          return done(
              fail(Code::not_found, fmt::format("project {} or user {} does not exist any more",
                                                one.project, provider.user)));
        std::vector<Command> commands;
        const auto member = project->members.find(provider.user);
        if (member == project->members.end() ||
            (member->second == roles::viewer && one.role != roles::viewer))
          commands.push_back(SetMember{one.project, provider.user, one.role});
        run(std::move(commands), cause,
            [this, provider, one, cause, done](const Result<std::vector<Event>>& set) {
              if (!set)
                return done(pass(set.error()));
              const bool reads = one.role == roles::viewer;
              give(provider,
                   {.name = token_name(provider.name),
                    .user = provider.user,
                    .project = reads ? "" : one.project,
                    .refresh = {},
                    .subject = {},
                    .scope = reads ? TokenScope::read : TokenScope::submit},
                   cause, done);
            });
      });
}

std::optional<WallTime> SignIns::last_use(TokenId token) const {
  const auto found = used_.find(token);
  return found == used_.end() ? std::nullopt : std::optional(found->second);
}

// ---- whether providers still know people

void SignIns::load_uses() {
  const std::string path = host_.last_uses_file();
  const auto text = path.empty() ? Result<std::string>("") : read_file(path, uses_bytes_max);
  const auto json = text ? parse_json(*text) : Result<Json>(Json());
  if (!json)
    return;
  for (const auto& [number, at] : json->members())
    if (const auto id = parse_int(number, 1, INT64_MAX))
      used_.try_emplace(TokenId(static_cast<std::uint64_t>(*id)), WallTime{at.int_or(0)});
  saved_ = host_.loop().every(uses_saved_every, [this] { save_uses(); });
}

void SignIns::save_uses() {
  const std::string path = host_.last_uses_file();
  if (path.empty() || !std::exchange(uses_changed_, false))
    return;
  Json all = Json::object();
  for (const auto& [token, at] : used_)
    if (host_.state().tokens.contains(token))
      all.set(std::to_string(token.value), at.ns);
  if (const Status written = write_file_atomic(path, all.dump() + "\n", 0600); !written)
    log_warn("{}", written.error().message);
}

void SignIns::leave_loop() {
  again_.cancel();
  saved_.cancel();
  asker_.reset();
}

void SignIns::begin_checks() {
  again_ = host_.loop().after(login_look_every, [this] {
    check_logins();
    begin_checks();
  });
}

void SignIns::end(TokenId id, const std::string& provider, const std::string& why) {
  log_info("the sign-in of token {} at {} ends: {}", id.value, provider, why);
  run({RevokeToken{id}, forget(login_record(id))}, {"login:" + provider, "check"},
      [](const Result<std::vector<Event>>&) {});
}

void SignIns::check_logins() {
  const auto& state = host_.state();
  std::erase_if(checked_, [&](const auto& each) { return !state.tokens.contains(each.first); });
  std::erase_if(used_, [&](const auto& each) { return !state.tokens.contains(each.first); });
  const SteadyTime now = host_.loop().steady();
  std::vector<std::string> over;
  for (auto at = state.secrets.lower_bound({ProjectId{}, std::string(login_prefix)});
       at != state.secrets.end() && at->first.first == ProjectId{} &&
       at->first.second.starts_with(login_prefix);
       ++at) {
    const auto number = parse_int(at->first.second.substr(login_prefix.size()), 1, INT64_MAX);
    const TokenId id(number ? static_cast<std::uint64_t>(*number) : 0);
    const auto token = state.tokens.find(id);
    if (token == state.tokens.end() || token->second.expires_at <= host_.now()) {
      over.push_back(at->first.second);
      continue;
    }
    const auto last = checked_.try_emplace(id, now).first;
    if (checking_ >= checks_max || now - last->second < check_min)
      continue;
    const auto login = read<Login>(at->first.second);
    const auto provider = login ? read<IdentityProvider>(provider_record(login->provider))
                                : std::optional<IdentityProvider>();
    if (!provider || now - last->second < provider->check_every)
      continue;
    last->second = now;
    check(id, *provider, *login);
  }
  std::vector<Command> commands;
  for (const std::string& name : over)
    commands.push_back(forget(name));
  if (!commands.empty())
    run(std::move(commands), {"head", "check"}, [](const Result<std::vector<Event>>&) {});
}

void SignIns::check(TokenId id, const IdentityProvider& provider, const Login& login) {
  // Its sessions count as its use.
  bool extends = used_.contains(id);
  for (const auto& [other, token] : host_.state().tokens)
    if (control::session_parent(token) == id)
      extends |= used_.contains(other);
  ++checking_;
  prove(provider, {{"grant_type", "refresh_token"}, {"refresh_token", login.refresh}}, "",
        [this, id, login, extends](Result<Proof> proof) {
          --checking_;
          renewed(id, login, extends, std::move(proof));
        });
}

void SignIns::renewed(TokenId id, const Login& login, bool extends, Result<Proof> proof) {
  const auto& state = host_.state();
  const auto token = state.tokens.find(id);
  const auto provider = read<IdentityProvider>(provider_record(login.provider));
  if (token == state.tokens.end() || !provider)
    return;
  const auto user = state.users.find(token->second.user);
  if (!proof && proof.error().code != Code::unauthorized && proof.error().code != Code::forbidden)
    return log_warn("the sign-in of token {} could not be checked: {}", id.value,
                    proof.error().message);
  if (!proof)
    return end(id, login.provider, proof.error().message);
  if (user == state.users.end() || (proof->has_claims && proof->person.subject != login.subject))
    return end(id, login.provider, "the provider's answer is about another person");
  std::vector<Command> commands;
  if (proof->has_claims) {
    const identity::Rights rights = rights_of(*provider, proof->person.groups);
    commands = rights_commands(*provider, rights, user->second.name);
    if (rights.none()) {
      run(std::move(commands), {"login:" + login.provider, "check"},
          [this, id, name = login.provider](const Result<std::vector<Event>>&) {
            end(id, name, "none of the person's groups gives access any more");
          });
      return;
    }
  }
  if (!proof->refresh.empty() && proof->refresh != login.refresh)
    if (auto kept = record(login_record(id), Login{login.provider, login.subject, proof->refresh}))
      commands.push_back(std::move(*kept));
  // Not more often than needed: each renewal is in the journal.
  if (extends && token->second.expires_at - host_.now() < provider->life - provider->life / 10) {
    used_.erase(id);
    commands.push_back(CreateToken{.name = token->second.name,
                                   .hash = token->second.hash,
                                   .user = user->second.name,
                                   .scope = token->second.scope,
                                   .project = {},
                                   .life = provider->life,
                                   .node = {},
                                   .made_by = {},
                                   .parent = {}});
  }
  run(std::move(commands), {"login:" + login.provider, "check"},
      [](const Result<std::vector<Event>>&) {});
}

}  // namespace billow::api
