// The routes of what people set about money: prices, budgets, idle rules, keep-alives, webhooks,
// commitments, cost centres.
#include <fmt/format.h>

#include <set>

#include "api/call.h"
#include "base/text.h"
#include "core/control/money.h"
#include "core/ledger/catalogue.h"
#include "core/ledger/meter.h"
#include "core/ledger/report.h"
#include "core/wire/codec.h"

namespace billow::api::money {
namespace {

using control::day_ns;

const Json ok = Json::object({{"ok", true}});

void answer_ok(const CallPtr& call, Command command, int status = 200) {
  call->execute(std::move(command), status, [](const std::vector<Event>&) { return ok; });
}

// Whether the caller may set what concerns all projects.
bool sets_for_all(const Call& call) {
  return call.may(Permission::money_set);
}

// A limit set by an admin of the installation can be changed only by one. Otherwise those it limits
// could remove it.
Status may_replace(const Call& call, const BudgetKey& key) {
  const auto& state = call.host.state();
  const auto found = state.money.budgets.find(key);
  if (found == state.money.budgets.end() || sets_for_all(call))
    return {};
  const std::string& by = found->second.by;
  const User* setter =
      by.starts_with("user:") ? state.user_by_name(std::string_view(by).substr(5)) : nullptr;
  if (setter && !control::may(state, setter->id, Permission::money_set))
    return {};
  return fail(
      Code::forbidden,
      fmt::format(
          "this budget was set by an admin of the installation{}; only an admin may change it",
          setter ? " (" + setter->name + ")" : ""),
      "you can add a tighter one for another period: --daily, --monthly or --total");
}

struct BudgetBody {
  BudgetScope scope = BudgetScope::project;
  std::string of;  // a project's or user's name, a job's number
  BudgetPeriod period = BudgetPeriod::monthly;
  NanoUsd limit_nano_usd;
  bool stops = true;
  std::int64_t grace_s = 600;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("scope", s.scope);
    v("of", s.of);
    v("period", s.period);
    v("limit_nano_usd", s.limit_nano_usd);
    v("stops", s.stops);
    v("grace_s", s.grace_s);
  }
};

// The owner of a budget by name; whether the caller may set one there: an admin anywhere, a
// project's admin for it and its jobs, anybody for a job of its own.
Result<std::uint64_t> budget_owner(const Call& call, BudgetScope scope, const std::string& of) {
  const auto& state = call.host.state();
  const auto forbidden = [&] {
    return fail(Code::forbidden, "only an admin may set this budget",
                "you can set a budget on your own job: billow budget set --job N");
  };
  switch (scope) {
    case BudgetScope::project: {
      const Project* project = BILLOW_TRY(visible_project(call, of));
      if (!call.may(Permission::money_set, project->id))
        return forbidden();
      return project->id.value;
    }
    case BudgetScope::user: {
      const User* user = state.user_by_name(of);
      if (!user)
        return fail(Code::not_found, fmt::format("there is no user \"{}\"", of),
                    "see `billow user list`");
      if (!sets_for_all(call))
        return forbidden();
      return user->id.value;
    }
    case BudgetScope::job: {
      const JobRef ref = BILLOW_TRY(parse_job_ref(call, of));
      const auto owner = owner_of(state, ref.id);
      if (!owner || !may_see(call, owner->project))
        return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", of),
                    "see `billow ps -a`");
      BILLOW_TRY_VOID(may_act(call, *owner));
      return ref.id.value;
    }
    case BudgetScope::token:
      break;
  }
  return forbidden();
}

struct IdleBody {
  std::string project;
  bool reset = false;
  bool enabled = true;
  std::optional<std::int64_t> warn_s, suspend_s, stop_s, keepalive_max_s;
  std::optional<std::int64_t> floor_suspend_s, floor_stop_s;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("reset", s.reset);
    v("enabled", s.enabled);
    v("warn_s", s.warn_s);
    v("suspend_s", s.suspend_s);
    v("stop_s", s.stop_s);
    v("keepalive_max_s", s.keepalive_max_s);
    v("floor_suspend_s", s.floor_suspend_s);
    v("floor_stop_s", s.floor_stop_s);
  }
};

std::int64_t whole_s(Duration d) {
  return d.ns / 1'000'000'000;
}
Json policy_document(const IdlePolicy& p) {
  return Json::object({{"enabled", p.enabled},
                       {"warn_s", whole_s(p.warn_after)},
                       {"suspend_s", whole_s(p.suspend_after)},
                       {"stop_s", whole_s(p.stop_after)},
                       {"keepalive_max_s", whole_s(p.keepalive_max)}});
}

struct KeepAliveBody {
  std::int64_t for_s = 0;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("for_s", s.for_s);
    v("reason", s.reason);
  }
};
struct WebhookBody {
  std::string url;
  std::vector<std::string> kinds;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("url", s.url);
    v("kinds", s.kinds);
  }
};
struct TagBody {
  std::string value;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("value", s.value);
  }
};

}  // namespace

// ---- budgets
void budgets(CallPtr call) {
  const auto& state = call->host.state();
  const auto uses = control::budget_uses(state, call->host.billed());
  Json list = Json::array();
  for (const auto& [key, entry] : state.money.budgets) {
    if (!may_see_budget(*call, key))
      continue;
    const ledger::BudgetUse& use = uses.at(key);
    const auto gone = ledger::runs_out(entry.budget, use);
    const std::string name =
        key.scope == BudgetScope::project ? state.projects.at(ProjectId(key.of)).name
        : key.scope == BudgetScope::user  ? state.users.at(UserId(key.of)).name
        : key.scope == BudgetScope::token ? state.tokens.at(TokenId(key.of)).name
                                          : fmt::format("{}", key.of);
    list.push(Json::object(
        {{"scope", enum_name(key.scope)},
         {"of", name},
         {"period", enum_name(key.period)},
         {"limit_nano_usd", entry.budget.limit.value},
         {"limit", format_usd(entry.budget.limit)},
         {"spent_nano_usd", use.spent.value},
         {"spent", format_usd(use.spent)},
         {"reserved_nano_usd", use.reserved.value},
         {"held_back_nano_usd", use.held_back.value},
         {"held_back", format_usd(use.held_back)},
         {"spent_pct", 100.0 * static_cast<double>(use.spent.value) /
                           static_cast<double>(entry.budget.limit.value)},
         {"burn_nano_usd_per_s", use.burn.nano_usd_per_s},
         {"burn", format_rate_per_hour(use.burn)},
         {"forecast_nano_usd", ledger::forecast(entry.budget, use).value},
         {"forecast", format_usd(ledger::forecast(entry.budget, use))},
         {"runs_out_at", gone ? Json(format_utc(*gone)) : Json()},
         {"stops", entry.budget.stops},
         {"grace_s", whole_s(entry.budget.grace)},
         {"warned_pct", entry.progress.warned_pct},
         {"capped", static_cast<bool>(entry.progress.capped_at)},
         {"spent_since",
          entry.progress.capped_at ? Json(format_utc(entry.progress.capped_at)) : Json()}}));
  }
  call->reply_durable(200, Json::object({{"budgets", std::move(list)}}));
}

void set_budget(CallPtr call) {
  auto body = read_body<BudgetBody>(call);
  if (!body)
    return;
  auto owner = budget_owner(*call, body->scope, body->of);
  if (!owner)
    return call->fail(owner.error());
  if (body->scope == BudgetScope::job)
    body->period = BudgetPeriod::total;
  if (const Status may = may_replace(*call, {body->scope, *owner, body->period}); !may)
    return call->fail(may.error());
  SetBudget command{{body->scope, *owner, body->period, body->limit_nano_usd, body->stops,
                     seconds(body->grace_s)},
                    {}};
  // What ended leases of the running period came to stands in the store; open ones the core counts
  // itself.
  const WallTime from = ledger::period_of(body->period, call->host.billed()).from;
  UsageQuery query{.day_from = from.ns / day_ns, .project = {}, .user = {}};
  if (body->scope == BudgetScope::project)
    query.project = ProjectId(*owner);
  if (body->scope == BudgetScope::user)
    query.user = UserId(*owner);
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), query]() -> Result<NanoUsd> {
        NanoUsd all;
        for (const UsageRow& row : BILLOW_TRY(queries.usage(query)))
          all += row.charge;
        return all;
      },
      [call, command, from](Result<NanoUsd> all) mutable {
        if (!all)
          return call->fail(all.error());
        const auto& books = call->host.state().money.books;
        const WallTime midnight{call->host.state().money.days_closed * day_ns};
        // Of an open lease the store has what was posted by midnight within the period.
        NanoUsd posted;
        for (const LeaseId id : books.open_leases()) {
          const auto* lease = books.opened(id);
          const bool mine = command.budget.scope == BudgetScope::project
                                ? lease->project.value == command.budget.of
                                : lease->user.value == command.budget.of;
          if (mine && lease->at < midnight)
            posted += books.charge_between(id, std::max(from, lease->at), midnight);
        }
        command.spent = {std::max<std::int64_t>(0, (*all - posted).value)};
        answer_ok(call, command);
      });
  if (!queued)
    call->fail(queued.error());
}

void remove_budget(CallPtr call) {
  const auto scope = enum_value<BudgetScope>(call->parts[0]);
  const auto period = enum_value<BudgetPeriod>(call->parts[2]);
  if (!scope || !period)
    return call->fail(
        {Code::invalid,
         fmt::format("there is no budget {}/{}/{}", call->parts[0], call->parts[1], call->parts[2]),
         "see `billow budget show`"});
  const auto owner = budget_owner(*call, *scope, call->parts[1]);
  if (!owner)
    return call->fail(owner.error());
  if (const Status may = may_replace(*call, {*scope, *owner, *period}); !may)
    return call->fail(may.error());
  answer_ok(call, RemoveBudget{{*scope, *owner, *period}});
}

// ---- prices
void prices(CallPtr call) {
  const auto& state = call->host.state();
  Json rules = Json::array();
  const auto per_hour = [](const std::optional<Rate>& rate) {
    return rate ? Json(static_cast<double>(rate->nano_usd_per_s) * 3600 / 1e9) : Json();
  };
  for (const auto& [of, rule] : state.money.prices)
    rules.push(Json::object({{"of", of},
                             {"cost_usd_h", per_hour(rule.cost)},
                             {"charge_usd_h", per_hour(rule.charge)},
                             {"charge_spot_usd_h", per_hour(rule.charge_spot)},
                             {"storage_gib_month_nano_usd", rule.storage_gib_month.value},
                             {"egress_gib_nano_usd", rule.egress_gib.value},
                             {"how", rule.how}}));
  Json nodes = Json::array();
  for (const auto& [id, node] : state.nodes)
    nodes.push(Json::object({{"node", node.offer.name},
                             {"pool", control::pool_of(state, node)},
                             {"bills", control::node_bills(node)},
                             {"gpus", node.offer.gpus.size()},
                             {"cost_usd_h", per_hour(state.money.books.node_rate(id))}}));
  call->reply_durable(200,
                      Json::object({{"prices", std::move(rules)}, {"nodes", std::move(nodes)}}));
}
void set_price(CallPtr call) {
  if (auto rule = read_body<PriceRule>(call))
    answer_ok(call, SetPrice{std::move(*rule)});
}
void remove_price(CallPtr call) {
  answer_ok(call, RemovePrice{call->parts[0]});
}

// ---- idleness
void idle(CallPtr call) {
  const auto& state = call->host.state();
  Json own = Json::object();
  for (const auto& [project, policy] : state.money.idle_of)
    if (call->may(Permission::money_read, project))
      own.set(state.projects.at(project).name, policy_document(policy));
  call->reply_durable(
      200,
      Json::object({{"default", policy_document(state.money.idle)},
                    {"projects", std::move(own)},
                    {"floor", Json::object({{"suspend_s", whole_s(state.money.floor.suspend_by)},
                                            {"stop_s", whole_s(state.money.floor.stop_by)}})}}));
}
void set_idle(CallPtr call) {
  auto body = read_body<IdleBody>(call);
  if (!body)
    return;
  const auto& state = call->host.state();
  if (body->floor_suspend_s || body->floor_stop_s) {
    if (!sets_for_all(*call))
      return call->fail({Code::forbidden, "only an admin may change the floor",
                         "a project can set its own steps above it"});
    IdleFloor floor = state.money.floor;
    if (body->floor_suspend_s)
      floor.suspend_by = seconds(*body->floor_suspend_s);
    if (body->floor_stop_s)
      floor.stop_by = seconds(*body->floor_stop_s);
    return answer_ok(call, SetIdleFloor{floor});
  }
  const auto named = body->project.empty() ? Result<const Project*>(nullptr)
                                           : visible_project(*call, body->project);
  if (!named)
    return call->fail(named.error());
  const Project* project = *named;
  const bool may =
      sets_for_all(*call) || (project && call->may(Permission::money_set, project->id));
  if (!may)
    return call->fail({Code::forbidden,
                       project
                           ? fmt::format("only an admin of project {} may do this", project->name)
                           : "only an admin may change the installation's default",
                       ""});
  SetIdlePolicy command{body->project, std::nullopt};
  if (!body->reset) {
    IdlePolicy policy = project ? state.money.policy_of(project->id) : state.money.idle;
    policy.enabled = body->enabled;
    if (body->warn_s)
      policy.warn_after = seconds(*body->warn_s);
    if (body->suspend_s)
      policy.suspend_after = seconds(*body->suspend_s);
    if (body->stop_s)
      policy.stop_after = seconds(*body->stop_s);
    if (body->keepalive_max_s)
      policy.keepalive_max = seconds(*body->keepalive_max_s);
    // Naming one step moves those it would pass.
    if (!body->warn_s)
      policy.warn_after = std::min(policy.warn_after, policy.suspend_after);
    if (!body->stop_s)
      policy.stop_after = std::max(policy.stop_after, policy.suspend_after);
    command.policy = policy;
  }
  answer_ok(call, command);
}
void keep_alive(CallPtr call) {
  auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto owner = owner_of(call->host.state(), ref->id);
  if (!owner || !may_see(*call, owner->project))
    return call->fail({Code::not_found,
                       fmt::format("job {} has ended, or does not exist", call->parts[0]),
                       "see `billow ps -a`"});
  if (const Status act = may_act(*call, *owner); !act)
    return call->fail(act.error());
  auto body = read_body<KeepAliveBody>(call);
  if (!body)
    return;
  KeepAlive command;
  command.job = ref->id;
  command.lasts = seconds(body->for_s);
  command.reason = std::move(body->reason);
  call->execute(command, 200, [](const std::vector<Event>& events) {
    Duration kept;
    for (const Event& event : events)
      if (const auto* e = get_if<KeptAlive>(&event.body))
        kept = e->lasts;
    return Json::object({{"ok", true}, {"for_s", whole_s(kept)}});
  });
}

// ---- webhooks
void webhooks(CallPtr call) {
  Json list = Json::array();
  for (const auto& [id, hook] : call->host.state().money.webhooks) {
    Json kinds = Json::array();
    for (const std::string& kind : hook.kinds)
      kinds.push(kind);
    list.push(Json::object({{"id", id},
                            {"url", hook.url},
                            {"kinds", std::move(kinds)},
                            {"waiting", call->host.notices_waiting(id)}}));
  }
  call->reply_durable(200, Json::object({{"webhooks", std::move(list)}}));
}
void add_webhook(CallPtr call) {
  auto body = read_body<WebhookBody>(call);
  if (!body)
    return;
  call->execute(AddWebhook{std::move(body->url), std::move(body->kinds), call->principal.user}, 201,
                [call](const std::vector<Event>& events) {
                  std::uint64_t id = 0;
                  for (const Event& event : events)
                    if (const auto* e = get_if<WebhookAdded>(&event.body))
                      id = e->webhook.id;
                  return Json::object({{"id", id}, {"secret", call->host.webhook_secret(id)}});
                });
}
namespace {
std::optional<std::uint64_t> webhook_id(const CallPtr& call) {
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  if (id && call->host.state().money.webhooks.contains(static_cast<std::uint64_t>(*id)))
    return static_cast<std::uint64_t>(*id);
  call->fail({Code::not_found, fmt::format("there is no webhook {}", call->parts[0]),
              "see `billow webhook list`"});
  return std::nullopt;
}
}  // namespace
void remove_webhook(CallPtr call) {
  if (const auto id = webhook_id(call))
    answer_ok(call, RemoveWebhook{*id});
}
void test_webhook(CallPtr call) {
  const auto id = webhook_id(call);
  if (!id)
    return;
  call->host.test_webhook(*id, [call](Result<int> status) {
    if (!status)
      return call->fail(status.error());
    call->reply(
        200, Json::object({{"status", *status}, {"delivered", *status >= 200 && *status < 300}}));
  });
}

// ---- commitments and cost centres
void commitments(CallPtr call) {
  std::vector<CommitmentTerms> terms;
  for (const auto& [name, c] : call->host.state().money.commitments)
    terms.push_back(c);
  const std::int64_t today = call->host.billed().ns / day_ns;
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), today] {
        UsageQuery query{.day_from = 0, .day_to = today, .project = {}, .user = {}};
        query.by_day = query.by_gpu_type = true;
        return queries.usage(query);
      },
      [call, terms = std::move(terms), today](Result<std::vector<UsageRow>> rows) {
        if (!rows)
          return call->fail(rows.error());
        Json list = Json::array();
        for (const CommitmentTerms& c : terms) {
          std::vector<std::pair<std::int64_t, std::int64_t>> used;
          for (const UsageRow& row : *rows)
            if (row.gpu_type == c.gpu)
              used.emplace_back(row.day, row.gpu_milli_ms);
          const auto use = ledger::commitment_use(
              {c.name, c.gpu, c.gpus, c.rate, c.from_day, c.to_day}, used, today);
          list.push(
              Json::object({{"name", c.name},
                            {"gpu", c.gpu},
                            {"gpus", c.gpus},
                            {"usd_h", static_cast<double>(c.rate.nano_usd_per_s) * 3600 / 1e9},
                            {"from", ledger::day_text(c.from_day)},
                            {"to", ledger::day_text(c.to_day)},
                            {"utilisation_pct", use.utilisation_pct},
                            {"coverage_pct", use.coverage_pct},
                            {"unused_nano_usd", use.unused.value},
                            {"days_left", use.days_left}}));
        }
        call->reply(200, Json::object({{"commitments", std::move(list)}}));
      });
  if (!queued)
    call->fail(queued.error());
}
void set_commitment(CallPtr call) {
  if (auto terms = read_body<CommitmentTerms>(call))
    answer_ok(call, SetCommitment{std::move(*terms)});
}
void remove_commitment(CallPtr call) {
  answer_ok(call, RemoveCommitment{call->parts[0]});
}

void tag_project(CallPtr call) {
  const auto project = visible_project(*call, call->parts[0]);
  if (!project)
    return call->fail(project.error());
  if (const Status ok = may_in(*call, Permission::money_set, (*project)->id); !ok)
    return call->fail(ok.error());
  if (auto body = read_body<TagBody>(call))
    answer_ok(call, TagProject{call->parts[0], call->parts[1], std::move(body->value)});
}

// The newest date of the offers that the built-in price of a GPU type is the median of; empty:
// there are none.
std::string built_in_date(const std::string& gpu_type) {
  static const Catalogue catalogue = Catalogue::embedded();
  static std::map<std::string, std::string> known;
  const auto [at, fresh] = known.try_emplace(gpu_type);
  const auto spec = catalogue.gpu(gpu_type);
  if (!fresh || !spec)
    return at->second;
  OfferFilter filter;
  filter.gpu = (*spec)->name;
  for (const Offer& offer : catalogue.offers(filter))
    if (offer.price && offer.price->on_demand_h)
      at->second = std::max(at->second, offer.price->date);
  return at->second;
}

// What a GPU second costs now, by GPU type: for forms that show a price before anything runs. A
// lease would begin with the same rates: the operator's where they are set, otherwise the market's,
// which are marked as built in.
void rates(CallPtr call) {
  static const ledger::PriceBook book = ledger::PriceBook::market();
  const auto& state = call->host.state();
  std::set<std::string> seen;
  Json list = Json::array();
  for (const auto& [id, node] : state.nodes) {
    for (const NodeGpu& gpu : node.offer.gpus) {
      if (!seen.insert(gpu.type).second)
        continue;
      for (const PriceClass price_class :
           {PriceClass::on_demand, PriceClass::spot, PriceClass::reserved}) {
        const Rate rate = control::charge_rate(state, node, gpu.type, price_class, &book);
        const bool built_in =
            control::charge_rate(state, node, gpu.type, price_class, nullptr) != rate;
        Json one = Json::object({{"gpu_type", gpu.type},
                                 {"class", enum_name(price_class)},
                                 {"nano_usd_per_s", rate.nano_usd_per_s},
                                 {"built_in", built_in}});
        if (built_in)
          one.set("prices_of", built_in_date(gpu.type));
        list.push(std::move(one));
      }
    }
  }
  call->reply(200, Json::object({{"rates", std::move(list)}}));
}

}  // namespace billow::api::money
