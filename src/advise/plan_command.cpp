// `billow plan`: how much to commit, what to leave to on-demand and spot, and when to buy.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "advise/commands.h"
#include "advise/options.h"
#include "advise/portfolio.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr const char* plan_help =
    "billow plan: the mix of committed, on-demand and spot GPUs that costs least for your demand, "
    "replayed on it.\n"
    "\n"
    "  billow plan [--trace CSV] [--gpu H100] [--providers aws] [--regions us-] [--risk "
    "low|medium|high] [--buy USD]\n"
    "  billow plan --review [--this-month]\n"
    "\n"
    "  --trace     jobs as CSV (timestamp,duration,num_gpus); default: this Billow's own usage\n"
    "  --gpu       what to price it with (default: the type used most, else H100)\n"
    "  --review    prices and instances that changed, what to do, dollars to save, for last "
    "month's usage\n"
    "  --committed-ratio   committed price over on-demand, where the catalogue has none (0.63)\n"
    "  --risk      how much may run on spot: low 20 %, medium 50 %, high 80 %\n"
    "  --price-drop        fall of on-demand during the term to be safe against (0.44)\n"
    "  --buy       price of one owned GPU with its share of a server: own versus rent\n"
    "  --json\n"
    "\n"
    "Example: billow plan --trace jobs.csv --gpu A100-80GB --risk medium --buy 18000\n";

Result<std::vector<JobSpan>> read_jobs(const std::string& path) {
  auto text = BILLOW_TRY(read_file(path, 512 << 20));
  auto rows = BILLOW_TRY(read_csv(text));
  std::vector<JobSpan> jobs;
  for (auto& row : rows) {
    auto at = [&](const char* name) {
      auto it = row.find(name);
      return it == row.end() ? std::string{} : it->second;
    };
    auto when = at("timestamp");
    int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0;
    JobSpan job;
    if (std::sscanf(when.c_str(), "%d-%d-%d%*[ T]%d:%d:%d", &y, &mo, &d, &h, &mi, &s) == 6) {
      std::chrono::year_month_day ymd{std::chrono::year(y),
                                      std::chrono::month(static_cast<unsigned>(mo)),
                                      std::chrono::day(static_cast<unsigned>(d))};
      if (!ymd.ok())
        continue;
      job.start_s =
          static_cast<double>(std::chrono::sys_days(ymd).time_since_epoch().count()) * 86400 +
          h * 3600 + mi * 60 + s;
    } else {
      job.start_s = std::strtod(when.c_str(), nullptr);
    }
    job.duration_s = std::strtod(at("duration").c_str(), nullptr);
    job.gpus = std::strtod(at("num_gpus").c_str(), nullptr);
    if (!(job.duration_s > 0 && job.duration_s < 1e9) || !(job.gpus > 0 && job.gpus < 1e6) ||
        !std::isfinite(job.start_s))
      continue;
    jobs.push_back(job);
  }
  if (jobs.empty())
    return fail(Code::invalid, fmt::format("{} holds no jobs", path),
                "columns: timestamp, duration (s), num_gpus");
  return jobs;
}

struct Priced {
  double on_demand = 0, committed_ratio = 0.63, spot_ratio = 0.4;
  std::string where, date, committed_source, spot_source;
};

Result<Priced> price_gpu(const Catalogue& catalogue, const Options& o, const std::string& gpu) {
  Priced p;
  OfferFilter filter{.providers = o.list("--providers"), .regions = o.list("--regions")};
  auto spec = BILLOW_TRY(catalogue.gpu(gpu));
  auto cheapest = catalogue.cheapest_gpu_hour(gpu, Purchase::on_demand, filter);
  if (!cheapest)
    return fail(Code::not_found, fmt::format("no on-demand price of {} is known there", spec->name),
                "other --providers or --regions, or billow prices update");
  auto& offer = cheapest->offer;
  p.on_demand = usd(cheapest->per_gpu_h);
  p.where =
      fmt::format("{} {} in {}", offer.instance->provider, offer.instance->name, offer.region);
  p.date = offer.price->date;
  p.committed_ratio = BILLOW_TRY(o.number("--committed-ratio", 0.63, 0.05, 1));
  p.committed_source = o.has("--committed-ratio") ? "as given" : "assumed";
  if (!o.has("--committed-ratio") && offer.price->committed_1y_h) {
    p.committed_ratio = usd(*offer.price->committed_1y_h) / usd(*offer.price->on_demand_h);
    p.committed_source = "catalogue, one year";
  }
  auto history = spot_history(offer.instance->name);
  if (offer.price->spot_h)
    p.spot_ratio = usd(*offer.price->spot_h) / usd(*offer.price->on_demand_h),
    p.spot_source = "catalogue";
  else
    p.spot_ratio = history.ratio_median,
    p.spot_source = history.known ? "a year of history" : "assumed";
  return p;
}

// Last month's review, or this month's so far.
Result<std::string> make_review(const Options& o,
                                const CommandContext& context,
                                const Market& market,
                                bool json) {
  if (!context.asked_head && context.used.empty())
    return fail(Code::unavailable, "a review is made of this Billow's usage, and no head was asked",
                "start it with billow up");
  auto period = month_before(context.now);
  if (o.has("--this-month")) {
    period = month_of(context.now);
    period.to_s = std::min(period.to_s, static_cast<double>(context.now.ns) / 1e9);
  }
  auto catalogue = Catalogue::embedded();
  ReviewInput input{.usage = usage_of(context.used, period.from_s, period.to_s),
                    .period = period.name,
                    .price_changes = {},
                    .market = market,
                    .now = context.now};
  if (auto path = context.data_dir + "/prices.csv";
      !context.data_dir.empty() && file_exists(path)) {
    auto report = catalogue.update(BILLOW_TRY(read_file(path)));
    if (!report)
      return pass(report.error(), path);
    input.price_changes = std::move(report->changed);
  }
  auto made = review(input, catalogue);
  return json ? review_json(made).dump() + "\n" : review_text(made);
}

// Hour by hour from the first job to now, of one type or all: hours without a job are demand too.
std::vector<double> demand_of(const std::vector<UsedSpan>& used,
                              const std::string& gpu,
                              WallTime now) {
  std::vector<JobSpan> jobs;
  double first = static_cast<double>(now.ns) / 1e9;
  for (auto& s : used)
    if (gpu.empty() || s.gpu == gpu)
      jobs.push_back({s.start_s, s.end_s - s.start_s, s.gpus}), first = std::min(first, s.start_s);
  auto demand = hourly_demand(jobs);
  auto until_now =
      static_cast<std::size_t>(std::max(0.0, (static_cast<double>(now.ns) / 1e9 - first) / 3600));
  if (!demand.empty() && until_now > demand.size())
    demand.resize(until_now);
  return demand;
}

// A trace ends with its last arrival: what still runs after it only drains, and says nothing of
// demand.
std::vector<double> demand_of_trace(const std::vector<JobSpan>& jobs) {
  auto demand = hourly_demand(jobs);
  double first = jobs.front().start_s, last = first;
  for (auto& j : jobs)
    first = std::min(first, j.start_s), last = std::max(last, j.start_s);
  auto arrivals = static_cast<std::size_t>((last - first) / 3600) + 1;
  if (arrivals >= 24 && arrivals < demand.size())
    demand.resize(arrivals);
  return demand;
}

}  // namespace

CommandResult run_plan(const std::vector<std::string>& args, const CommandContext& context) {
  bool json = false;
  auto answer = [&]() -> Result<std::string> {
    auto o = BILLOW_TRY(Options::parse(args, {{"--trace"},
                                              {"--gpu"},
                                              {"--providers"},
                                              {"--regions"},
                                              {"--risk"},
                                              {"--committed-ratio"},
                                              {"--price-drop"},
                                              {"--buy"},
                                              {"--review", false},
                                              {"--this-month", false},
                                              {"--json", false},
                                              {"--help", false}}));
    if (o.has("--help"))
      return std::string(plan_help);
    json = o.has("--json");
    if (!o.words().empty())
      return fail(Code::invalid, fmt::format("unexpected \"{}\"", o.words()[0]),
                  "--help shows how it is used");
    Market market;
    auto risk = o.text("--risk", "medium");
    if (risk == "low")
      market.spot_share = 0.2;
    else if (risk == "medium")
      market.spot_share = 0.5;
    else if (risk == "high")
      market.spot_share = 0.8;
    else
      return fail(Code::invalid, fmt::format("--risk is \"{}\"", risk), "one of low, medium, high");
    auto drop = BILLOW_TRY(o.number("--price-drop", 0.44, 0, 0.99));
    if (o.has("--review"))
      return make_review(o, context, market, json);
    if (o.has("--this-month"))
      return fail(Code::invalid, "--this-month goes with --review");
    auto catalogue = BILLOW_TRY(catalogue_with_imports(context.data_dir));
    std::vector<double> demand;
    std::string gpu = o.text("--gpu"), source = "the trace";
    if (o.has("--trace")) {
      demand = demand_of_trace(BILLOW_TRY(read_jobs(o.text("--trace"))));
      if (demand.size() < 24)
        return fail(Code::invalid, "the trace covers less than a day",
                    "a commitment is for months: give at least some weeks");
    } else {
      std::map<std::string, double> hours;
      for (auto& s : context.used)
        hours[s.gpu] += (s.end_s - s.start_s) / 3600 * s.gpus;
      if (gpu.empty())
        for (auto& [type, n] : hours)
          if (gpu.empty() || n > hours[gpu])
            gpu = type;
      demand = demand_of(context.used, hours.contains(gpu) ? gpu : "", context.now);
      source = fmt::format("this Billow's own jobs{}", hours.contains(gpu) ? " on " + gpu : "");
      if (demand.size() < 24)
        return fail(Code::invalid,
                    fmt::format("less than a day of usage is known{}",
                                context.asked_head
                                    ? fmt::format(" ({} jobs with GPUs)", context.used.size())
                                    : ", and no head was asked"),
                    "give a trace: billow plan --trace jobs.csv");
    }
    if (gpu.empty())
      gpu = "H100";
    auto price = BILLOW_TRY(price_gpu(catalogue, o, gpu));
    market.committed_ratio = price.committed_ratio;
    std::vector<Hour> hours;
    for (double d : demand)
      hours.push_back({d, price.on_demand, price.on_demand * price.spot_ratio});
    double committed_price = price.on_demand * price.committed_ratio;
    double commit = baseline_commitment(hours, market, committed_price);
    auto mix = replay(hours, market, commit, committed_price), all = replay_on_demand(hours),
         spot = replay_spot_only(hours, market);
    double peak = *std::max_element(demand.begin(), demand.end());
    auto peak_bill = replay(hours, market, std::ceil(peak), committed_price);
    double regret = price_drop_regret(hours, market, commit, committed_price, drop),
           months = static_cast<double>(hours.size()) / 730;
    std::optional<OwnVersusRent> own;
    if (o.has("--buy"))
      own = own_versus_rent({.price_usd = BILLOW_TRY(o.number("--buy", 0, 100, 1e6))},
                            price.on_demand);
    auto age = price_age_days(price.date, context.now);
    if (json) {
      Json j = Json::object({{"gpu", gpu},
                             {"demand_from", source},
                             {"hours", hours.size()},
                             {"peak_gpus", peak},
                             {"on_demand_usd_h", price.on_demand},
                             {"price_from", price.where},
                             {"price_date", price.date},
                             {"price_age_days", age ? Json(*age) : Json("unknown")},
                             {"committed_ratio", price.committed_ratio},
                             {"committed_ratio_source", price.committed_source},
                             {"spot_ratio", price.spot_ratio},
                             {"spot_ratio_source", price.spot_source},
                             {"spot_share", market.spot_share},
                             {"commit_gpus", commit},
                             {"usd_month", mix.total() / months},
                             {"committed_usd_month", mix.committed / months},
                             {"on_demand_usd_month", mix.on_demand / months},
                             {"spot_usd_month", mix.spot / months},
                             {"all_on_demand_usd_month", all.total() / months},
                             {"reserve_the_peak_usd_month", peak_bill.total() / months},
                             {"spot_only_usd_month", spot.total() / months},
                             {"price_drop", drop},
                             {"price_drop_regret_usd", regret}});
      if (own)
        j.set("own",
              Json::object({{"own_usd_h", own->own_usd_h},
                            {"break_even_utilisation", own->break_even_utilisation},
                            {"payback_months",
                             own->payback_months ? Json(*own->payback_months) : Json("never")}}));
      return j.dump() + "\n";
    }
    std::string out = fmt::format(
        "demand: {} hours of {}, peak {:.0f} GPUs; {} at ${:.3f} per GPU-hour ({}, price of "
        "{}{})\n",
        hours.size(), source, peak, gpu, price.on_demand, price.where, price.date,
        age ? fmt::format(", {} days old", *age) : "");
    out += fmt::format(
        "commit to {:.0f} GPUs ({:.0f} % of on-demand: {}); above that {:.0f} % on spot ({:.0f} % "
        "of on-demand: {}), the rest on demand\n",
        commit, 100 * price.committed_ratio, price.committed_source, 100 * market.spot_share,
        100 * price.spot_ratio, price.spot_source);
    out += fmt::format("a month: ${:.0f} (committed {:.0f}, on demand {:.0f}, spot {:.0f})\n",
                       mix.total() / months, mix.committed / months, mix.on_demand / months,
                       mix.spot / months);
    out += fmt::format("  all on demand ${:.0f}, reserve the peak ${:.0f}, spot only ${:.0f}\n",
                       all.total() / months, peak_bill.total() / months, spot.total() / months);
    out += fmt::format(
        "if on-demand falls {:.0f} % half-way, the commitment costs ${:.0f} more than it should\n",
        100 * drop, regret);
    if (own)
      out += fmt::format("owning costs ${:.2f} an hour; it pays above {:.0f} % use{}\n",
                         own->own_usd_h, 100 * own->break_even_utilisation,
                         own->payback_months
                             ? fmt::format(", and is earned back in {:.0f} months at full use",
                                           *own->payback_months)
                             : ", never");
    return out;
  }();
  if (answer)
    return {.out = *answer};
  CommandResult r{.exit_code = answer.error().code == Code::invalid ? 2 : 1};
  if (json)
    r.out = Json::object({{"error", Json::object({{"code", code_name(answer.error().code)},
                                                  {"message", answer.error().message},
                                                  {"hint", answer.error().hint}})}})
                .dump() +
            "\n";
  r.err = "billow: " + answer.error().message + "\n" +
          (answer.error().hint.empty() ? "" : "  " + answer.error().hint + "\n");
  return r;
}

}  // namespace billow::advise
