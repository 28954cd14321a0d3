// plan: the mix of committed, on-demand and spot capacity that costs least for the demand of this
// head's jobs or of a trace; with --review, what to change after last month's usage.
#include <fmt/format.h>

#include <algorithm>

#include "advise/imported_prices.h"
#include "advise/plan.h"
#include "base/file.h"
#include "client/advice/advice.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr std::size_t trace_bytes_max = 512 << 20;
constexpr const char* gpu_default = "H100";

constexpr OptionSpec plan_options[] = {
    {"trace", 0, "CSV", "take the demand from a CSV of jobs (timestamp, duration, num_gpus)", false,
     Completes::file},
    {"gpu", 0, "TYPE", "GPU to price the demand with (default: the most used type, else H100)"},
    {"providers", 0, "A,B", "only these providers"},
    {"regions", 0, "A,B", "only regions with these prefixes, e.g. us-"},
    {"risk", 0, "LEVEL", "share of the demand on spot: low 20 %, medium 50 % (default), high 80 %",
     false, Completes::choice, "low,medium,high"},
    {"committed-ratio", 0, "X",
     "committed price divided by on-demand price (default: catalogue, else 0.63)"},
    {"price-drop", 0, "X",
     "also show the loss if on-demand prices drop by this fraction (default 0.44)"},
    {"buy", 0, "USD", "compare renting with buying a GPU at this price, server share included"},
    {"review", 0, nullptr, "review last month's usage: changed prices, what to do, what it saves"},
    {"this-month", 0, nullptr, "with --review: the current month so far"},
};

struct Demand {
  std::vector<double> hourly_gpus;
  std::string gpu;     // the type to price it with
  std::string source;  // "the trace"
};

Result<advise::Market> read_market(const Parsed& parsed) {
  advise::Market market;
  const std::string risk = BILLOW_TRY(choice_option(parsed, "risk", "medium", "low,medium,high"));
  market.spot_share = risk == "low" ? 0.2 : risk == "medium" ? 0.5 : 0.8;
  return market;
}

Result<Demand> demand_in_trace(const Parsed& parsed) {
  const std::string path = parsed.get("trace");
  const auto jobs = advise::read_job_trace(BILLOW_TRY(read_file(path, trace_bytes_max)));
  if (!jobs)
    return pass(jobs.error(), path);
  Demand demand{advise::demand_of_trace(*jobs), parsed.get("gpu", gpu_default), "the trace"};
  if (demand.hourly_gpus.size() < advise::plan_hours_min)
    return fail(Code::invalid, "the trace covers less than a day",
                "a commitment lasts for months: give a trace of at least some weeks");
  return demand;
}

Result<Demand> demand_of_head(const Parsed& parsed) {
  auto client = BILLOW_TRY(connect(parsed));
  if (gpus_are_simulated(client))
    say("some of the GPUs are simulated: a plan from their use buys nothing real");
  const std::vector<advise::UsedSpan> used = BILLOW_TRY(usage_of_head(client));
  Demand demand;
  demand.gpu = parsed.get("gpu", advise::most_used_gpu(used));
  const bool of_type = std::ranges::any_of(
      used, [&](const advise::UsedSpan& span) { return span.gpu == demand.gpu; });
  demand.hourly_gpus = advise::demand_of_usage(used, of_type ? demand.gpu : "", now());
  demand.source = "this installation's own jobs" + (of_type ? " on " + demand.gpu : std::string{});
  if (demand.gpu.empty())
    demand.gpu = gpu_default;
  if (demand.hourly_gpus.size() < advise::plan_hours_min)
    return fail(Code::invalid,
                fmt::format("less than a day of usage is known ({} {} with GPUs)", used.size(),
                            used.size() == 1 ? "job" : "jobs"),
                "give a trace: billow plan --trace jobs.csv");
  return demand;
}

// Last month's review, or the current month's so far.
Result<advise::Review> make_review(const Parsed& parsed, const advise::Market& market) {
  auto client = BILLOW_TRY(connect(parsed));
  const std::vector<advise::UsedSpan> used = BILLOW_TRY(usage_of_head(client));
  const WallTime today = now();
  advise::Period period = advise::month_before(today);
  if (parsed.has("this-month")) {
    period = advise::month_of(today);
    period.to_s = std::min(period.to_s, static_cast<double>(today.ns) / 1e9);
  }
  advise::ReviewInput input{.usage = advise::usage_of(used, period.from_s, period.to_s),
                            .period = period.name,
                            .price_changes = {},
                            .market = market,
                            .now = today};
  auto imported = BILLOW_TRY(advise::catalogue_and_changes(data_directory(parsed.get("data"))));
  input.price_changes = std::move(imported.changes);
  return advise::review(input, imported.catalogue);
}

Json plan_json(const Demand& demand,
               const advise::PlanRequest& request,
               const advise::PurchasePlan& plan) {
  const advise::GpuPrice& price = plan.price;
  const auto age = price_age_days(price.date, now());
  const bool spot = price.spot_ratio > 0;
  Json j = Json::object(
      {{"gpu", demand.gpu},
       {"demand_from", demand.source},
       {"hours", demand.hourly_gpus.size()},
       {"peak_gpus", plan.peak_gpus},
       {"on_demand_usd_h", price.on_demand_usd_h},
       {"price_from", price.where},
       {"price_date", price.date},
       {"price_age_days", age ? Json(*age) : Json("unknown")},
       {"committed_ratio", price.committed_ratio},
       {"committed_ratio_source", price.committed_source},
       {"spot_ratio", spot ? Json(price.spot_ratio) : Json("unknown")},
       {"spot_ratio_source", price.spot_source},
       {"spot_share", spot ? request.market.spot_share : 0},
       {"commit_gpus", plan.commit_gpus},
       {"usd_month", plan.mix.total() / plan.months},
       {"committed_usd_month", plan.mix.committed / plan.months},
       {"on_demand_usd_month", plan.mix.on_demand / plan.months},
       {"spot_usd_month", plan.mix.spot / plan.months},
       {"all_on_demand_usd_month", plan.all_on_demand.total() / plan.months},
       {"reserve_the_peak_usd_month", plan.reserve_peak.total() / plan.months},
       {"spot_only_usd_month", spot ? Json(plan.spot_only.total() / plan.months) : Json("unknown")},
       {"price_drop", request.price_drop},
       {"price_drop_regret_usd", plan.price_drop_regret_usd}});
  if (plan.own)
    j.set("own", Json::object(
                     {{"own_usd_h", plan.own->own_usd_h},
                      {"break_even_utilisation", plan.own->break_even_utilisation},
                      {"payback_months", plan.own->payback_months ? Json(*plan.own->payback_months)
                                                                  : Json("never")}}));
  return j;
}

std::string plan_text(const Demand& demand,
                      const advise::PlanRequest& request,
                      const advise::PurchasePlan& plan) {
  const advise::GpuPrice& price = plan.price;
  const auto age = price_age_days(price.date, now());
  std::string out = fmt::format(
      "demand: {} hours of {}, peak {:.0f} GPUs; {} at ${:.3f} per GPU-hour ({}, price of {}{})\n",
      demand.hourly_gpus.size(), demand.source, plan.peak_gpus, demand.gpu, price.on_demand_usd_h,
      price.where, price.date, age ? fmt::format(", {} days old", *age) : "");
  out += fmt::format(
      "commit to {:.0f} GPUs ({:.0f} % of on-demand: {}); above that {}\n", plan.commit_gpus,
      100 * price.committed_ratio, price.committed_source,
      price.spot_ratio > 0
          ? fmt::format("{:.0f} % on spot ({:.0f} % of on-demand: {}), the rest on demand",
                        100 * request.market.spot_share, 100 * price.spot_ratio, price.spot_source)
          : std::string("on demand: no spot price of this instance is known"));
  out += fmt::format("per month: ${:.0f} (committed {:.0f}, on demand {:.0f}, spot {:.0f})\n",
                     plan.mix.total() / plan.months, plan.mix.committed / plan.months,
                     plan.mix.on_demand / plan.months, plan.mix.spot / plan.months);
  out +=
      fmt::format("  all on demand ${:.0f}, reserve the peak ${:.0f}{}\n",
                  plan.all_on_demand.total() / plan.months, plan.reserve_peak.total() / plan.months,
                  price.spot_ratio > 0
                      ? fmt::format(", spot only ${:.0f}", plan.spot_only.total() / plan.months)
                      : std::string());
  out += fmt::format(
      "if on-demand prices fall by {:.0f} % half-way through, the commitment costs ${:.0f} more "
      "than the best one\n",
      100 * request.price_drop, plan.price_drop_regret_usd);
  if (plan.own)
    out += fmt::format("owning costs ${:.2f} per hour; it pays above {:.0f} % utilisation{}\n",
                       plan.own->own_usd_h, 100 * plan.own->break_even_utilisation,
                       plan.own->payback_months
                           ? fmt::format(", and pays for itself in {:.0f} months at full use",
                                         *plan.own->payback_months)
                           : ", and never pays for itself");
  return out;
}

int show_review(const Parsed& parsed, const advise::Market& market) {
  const auto review = make_review(parsed, market);
  if (!review)
    return report_advice_failed(parsed, review.error());
  if (parsed.has("json"))
    print_json(advise::review_json(*review));
  else
    print(advise::review_text(*review));
  return 0;
}

Result<advise::PlanRequest> read_request(const Parsed& parsed, const advise::Market& market) {
  advise::PlanRequest request;
  request.market = market;
  request.offers = {.providers = list_option(parsed, "providers"),
                    .regions = list_option(parsed, "regions")};
  request.price_drop = BILLOW_TRY(number_option(parsed, "price-drop", 0.44, 0, 0.99));
  if (parsed.has("committed-ratio"))
    request.committed_ratio = BILLOW_TRY(number_option(parsed, "committed-ratio", 0, 0.05, 1));
  if (parsed.has("buy"))
    request.buy_usd = BILLOW_TRY(number_option(parsed, "buy", 0, 100, 1e6));
  return request;
}

int cmd_plan(const Parsed& parsed) {
  const auto market = read_market(parsed);
  if (!market)
    return report_advice(parsed, market.error());
  auto request = read_request(parsed, *market);
  if (!request)
    return report_advice(parsed, request.error());
  if (parsed.has("review"))
    return show_review(parsed, *market);
  if (parsed.has("this-month"))
    return report_advice(parsed, {Code::invalid, "--this-month needs --review"});
  const auto catalogue = advise::catalogue_with_imports(data_directory(parsed.get("data")));
  if (!catalogue)
    return report_advice_failed(parsed, catalogue.error());
  const auto demand = parsed.has("trace") ? demand_in_trace(parsed) : demand_of_head(parsed);
  if (!demand)
    return report_advice(parsed, demand.error());
  request->gpu = demand->gpu;
  request->now = now();
  request->demand = demand->hourly_gpus;
  const auto plan = advise::make_plan(*request, *catalogue);
  if (!plan)
    return report_advice(parsed, plan.error());
  if (parsed.has("json"))
    print_json(plan_json(*demand, *request, *plan));
  else
    print(plan_text(*demand, *request, *plan));
  return 0;
}

}  // namespace

void add_plan_commands(CommandTable& table) {
  table.push_back(
      {.name = "plan",
       .summary = "find the cheapest mix of committed, on-demand and spot GPUs for your demand",
       .example = "billow plan --risk low\nbillow plan --trace jobs.csv --gpu A100-80GB --risk "
                  "medium --buy 18000\nbillow plan --review",
       .run = cmd_plan,
       .details =
           "The demand is that of this head's own jobs, or of a trace. The plan is fitted to it "
           "and replayed hour by hour next to three alternatives: all on-demand, reserving the "
           "peak, and spot only.",
       .options = {plan_options},
       .group = "money and advice"});
}

}  // namespace billow::client
