// compare: one command on several GPU types, with time, cost, cost per unit of work and the winner.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "client/advice/measured_job.h"
#include "client/advice/observe.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"

namespace billow::client {
namespace {

constexpr OptionSpec compare_options[] = {
    {"gpu-types", 0, "A,B",
     "types to run on; H100:0.5 is half a GPU, all is every type of this installation, whole and "
     "half"},
    {"steps", 0, "WORD", "word that marks a line of output as one unit of work (default: step)"},
    {"units", 0, "N", "units of work of the command, if its output does not show them"},
    {"show-output", 0, nullptr, "show the jobs' output"},
};

struct Contender {
  std::string name, type;
  double share = 1;
  std::string job;
  std::optional<Observed> seen;
  std::string error;
  double cost_usd = 0, units = 0;
  bool ok() const { return error.empty() && seen && seen->job["state"].str_or("") == "succeeded"; }
  std::optional<double> per_unit() const {
    return ok() && units > 0 ? std::optional(cost_usd / units) : std::nullopt;
  }
};

Result<std::vector<Contender>> contenders(const std::string& text, Client& client) {
  std::vector<std::string> have;
  auto nodes = client.get("/v1/nodes");
  if (!nodes)
    return pass(nodes.error());
  for (const Json& node : (*nodes)["nodes"].items())
    for (const Json& gpu : node["gpus"].items())
      if (const std::string type(gpu["type"].str_or(""));
          std::find(have.begin(), have.end(), type) == have.end())
        have.push_back(type);
  if (have.empty())
    return fail(Code::infeasible, "no node of this installation has a GPU", "see `billow nodes`");
  std::vector<Contender> out;
  if (text == "all") {
    for (const std::string& type : have)
      for (double share : {1.0, 0.5})
        out.push_back(
            {share == 1 ? type : fmt::format("{}:{}", type, share), type, share, {}, {}, {}, 0, 0});
    return out;
  }
  for (const std::string& word : split(text, ',')) {
    const std::string name(trim(word));
    if (name.empty())
      continue;
    Contender c{.name = name, .type = name, .job = {}, .seen = {}, .error = {}};
    if (const auto colon = name.find(':'); colon != std::string::npos) {
      const auto share = parse_double(name.substr(colon + 1));
      if (!share || !(*share > 0 && *share <= 1))
        return fail(Code::invalid, fmt::format("\"{}\" is not a share of a GPU", name),
                    "write it as H100:0.5");
      c.type = name.substr(0, colon);
      c.share = *share;
    }
    const auto found = std::find_if(have.begin(), have.end(), [&](const std::string& type) {
      return lower(type) == lower(c.type);
    });
    if (found == have.end())
      return fail(Code::invalid, fmt::format("this installation has no GPU of type {}", c.type),
                  "it has " + join(have, ", "));
    c.type = *found;
    out.push_back(std::move(c));
  }
  if (out.empty())
    return fail(Code::invalid, "--gpu-types is empty", "choose from " + join(have, ", "));
  return out;
}

void run_one(
    Client& client, const Parsed& parsed, Contender& c, double units_given, bool& interrupted) {
  JobRequest request;
  request.spec.argv = parsed.operands;
  if (auto set = set_options(request, parsed); !set) {
    c.error = set.error().message;
    return;
  }
  want_a_gpu(request);
  request.spec.resources.gpu_types = {c.type};
  if (c.share < 1)
    request.spec.resources.share.milli = static_cast<std::int32_t>(std::lround(c.share * 1000));
  if (request.spec.name.empty())
    request.spec.name = "compare-" + c.type;
  auto job = submit_request(client, std::move(request));
  if (!job) {
    c.error = job.error().message;
    return;
  }
  c.job = job_number(*job);
  say(fmt::format("{}: job {} {}", c.name, c.job, (*job)["state"].str_or("queued")));
  auto seen = observe(client, {.job = c.job,
                               .step_pattern = parsed.get("steps", "step"),
                               .at_most = {},
                               .show_output = parsed.has("show-output"),
                               .stop_on_interrupt = true,
                               .on_change = {}});
  if (!seen) {
    c.error = seen.error().message;
    return;
  }
  c.seen = std::move(*seen);
  interrupted = c.seen->interrupted;
  c.cost_usd = c.seen->job["cost_nano_usd"].double_or(0) / 1e9;
  c.units = units_given > 0 ? units_given : c.seen->run.steps;
  if (c.seen->job["state"].str_or("") != "succeeded")
    c.error = std::string(c.seen->job.at("exit", "text").str_or(c.seen->job["state"].str_or("?")));
}

// What the runs come to: the cheapest (or, without prices, the fastest) and the fastest.
struct Outcome {
  const Contender* winner = nullptr;
  const Contender* fastest = nullptr;
  bool priced = false;  // some run had a cost
};

// USD per unit of work, or per run where the units are unknown.
double score(const Contender& c) {
  return c.per_unit().value_or(c.cost_usd);
}

Outcome outcome_of(const std::vector<Contender>& all) {
  Outcome o;
  o.priced = std::any_of(all.begin(), all.end(),
                         [](const Contender& c) { return c.ok() && c.cost_usd > 0; });
  for (const Contender& c : all) {
    if (!c.ok())
      continue;
    if (!o.fastest || c.seen->seconds < o.fastest->seen->seconds)
      o.fastest = &c;
    if (!o.winner || (o.priced && score(c) < score(*o.winner)))
      o.winner = &c;
  }
  if (!o.priced)
    o.winner = o.fastest;
  return o;
}

Json contender_json(const Contender& c) {
  const auto per_unit = c.per_unit();
  const auto measured = [&](const std::optional<double>& value) {
    return c.seen && value ? Json(*value) : Json();
  };
  return Json::object({{"gpu", c.name},
                       {"type", c.type},
                       {"share", c.share},
                       {"job", c.job},
                       {"ok", c.ok()},
                       {"error", c.ok() ? Json() : Json(c.error)},
                       {"seconds", c.seen ? Json(c.seen->seconds) : Json()},
                       {"cost_usd", c.cost_usd},
                       {"units", c.units},
                       {"usd_per_unit", per_unit ? Json(*per_unit) : Json()},
                       {"step_s", c.seen ? measured(c.seen->run.step_s) : Json()},
                       {"mem_peak_mib", c.seen ? Json(c.seen->run.mem_peak_mib) : Json()},
                       {"util_p95_pct", c.seen ? measured(c.seen->run.util_p95_pct) : Json()}});
}

// "cheapest", "fastest", both, or why the run does not count.
std::string remark(const Contender& c, const Outcome& o) {
  if (!c.ok())
    return c.error.empty() ? "not run" : c.error;
  const bool cheapest = &c == o.winner && o.priced, fastest = &c == o.fastest;
  if (cheapest && fastest)
    return "cheapest and fastest";
  if (cheapest)
    return "cheapest";
  return fastest ? "fastest" : "";
}

std::string comparison_table(const std::vector<Contender>& all, const Outcome& o) {
  Table table({{"GPU"},
               {"JOB", Table::Align::right},
               {"TIME", Table::Align::right},
               {"COST", Table::Align::right},
               {"UNITS", Table::Align::right},
               {"PER 1000 UNITS", Table::Align::right},
               {"MEM PEAK", Table::Align::right},
               {""}});
  for (const Contender& c : all) {
    const auto per_unit = c.per_unit();
    table.row({c.name,
               c.job.empty() ? "-" : c.job,
               c.seen ? fmt::format("{:.1f} s", c.seen->seconds) : "-",
               c.seen ? fmt::format("${:.6f}", c.cost_usd) : "-",
               c.units > 0 ? fmt::format("{:.0f}", c.units) : "-",
               per_unit ? fmt::format("${:.6f}", *per_unit * 1000) : "-",
               c.seen ? mebibytes(static_cast<std::int64_t>(c.seen->run.mem_peak_mib)) : "-",
               {printable(remark(c, o)), c.ok() ? Colour::green : Colour::red}});
  }
  return table.text(look_at(STDOUT_FILENO));
}

// Why the order of these runs says little: few steps or seconds are mostly start-up, and one run of
// each does not show how much they vary. Empty: they are long, and the next best is clearly behind.
std::string doubt_about(const std::vector<Contender>& all, const Outcome& o) {
  constexpr double steps_min = 20, seconds_min = 30, clear = 1.1;
  const Contender* shortest = nullptr;
  const Contender* next = nullptr;
  const auto value = [&](const Contender& c) {
    return o.priced ? score(c) : c.seen->seconds;
  };
  for (const Contender& c : all) {
    if (!c.ok())
      continue;
    if (!shortest || c.seen->seconds < shortest->seen->seconds)
      shortest = &c;
    if (&c != o.winner && (!next || value(c) < value(*next)))
      next = &c;
  }
  if (!next)
    return {};
  const double steps = shortest->seen->run.steps;
  if (shortest->seen->seconds < seconds_min || (steps > 0 && steps < steps_min))
    return fmt::format(
        "note: this is one short run of each ({:.0f} s{}): mostly start-up; run at least {:.0f} s "
        "and {:.0f} steps before you decide",
        shortest->seen->seconds, steps > 0 ? fmt::format(", {:.0f} steps", steps) : "", seconds_min,
        steps_min);
  if (value(*next) < value(*o.winner) * clear)
    return fmt::format("note: {} is within 10 %, and there is one run of each: too close to call",
                       next->name);
  return {};
}

void show_comparison(const Parsed& parsed, const std::vector<Contender>& all, const Outcome& o) {
  if (parsed.has("json")) {
    Json rows = Json::array();
    for (const Contender& c : all)
      rows.push(contender_json(c));
    print_json(Json::object({{"runs", rows},
                             {"winner", o.winner ? Json(o.winner->name) : Json()},
                             {"fastest", o.fastest ? Json(o.fastest->name) : Json()}}));
    return;
  }
  print(comparison_table(all, o));
  if (!o.winner)
    return;
  if (o.priced)
    print(fmt::format("winner: {} at ${:.6f} {}\n", o.winner->name, score(*o.winner),
                      o.winner->per_unit() ? "per unit of work" : "per run"));
  else
    print(fmt::format("winner: {}, by time (no price is set)\n", o.winner->name));
  if (const std::string doubt = doubt_about(all, o); !doubt.empty())
    print(doubt + "\n");
  if (!o.winner->per_unit())
    print(
        "no units of work found: use --steps WORD (a word in its output) or --units N to compare "
        "the cost per unit\n");
}

Status check_comparison(const Parsed& parsed) {
  if (parsed.operands.empty())
    return fail(Code::invalid, "no command given",
                "for example: billow compare --gpu-types A100-80,H100 -- python train.py");
  if (!parsed.has("gpu-types"))
    return fail(Code::invalid, "--gpu-types is missing",
                "for example --gpu-types A100-80,H100, or --gpu-types all");
  if (parsed.has("gpu-type"))
    return fail(Code::invalid, "--gpu-type and --gpu-types exclude each other",
                "list all types in --gpu-types");
  return {};
}

int cmd_compare(const Parsed& parsed) {
  if (const Status ok = check_comparison(parsed); !ok)
    return report_usage(ok.error());
  const auto units = number_option(parsed, "units", 0, 1e-15, 1e15);
  if (!units)
    return report_usage(units.error());
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto all = contenders(parsed.get("gpu-types"), *client);
  if (!all)
    return all.error().code == Code::invalid ? report_usage(all.error()) : report(all.error());
  // One after the other: at the same time they would share the host and distort each other's times.
  bool interrupted = false;
  for (Contender& c : *all)
    if (!interrupted)
      run_one(*client, parsed, c, *units, interrupted);
  const Outcome outcome = outcome_of(*all);
  show_comparison(parsed, *all, outcome);
  if (!parsed.has("json") && gpus_are_simulated(*client))
    say("the GPUs are simulated: times and costs say nothing about real ones");
  if (interrupted)
    return 130;
  return outcome.winner ? 0 : exit_failed;
}

}  // namespace

void add_compare_commands(CommandTable& table) {
  table.push_back(
      {.name = "compare",
       .summary = "run a command on several GPU types and compare time and cost",
       .example = "billow compare --gpu-types A100-80,H100,H100:0.5 -- python bench.py",
       .run = cmd_compare,
       .usage = "[--] COMMAND [ARG…]",
       .details = "The runs follow one another so that they do not disturb each other. Units of "
                  "work are the output lines that contain the --steps word, or --units.",
       .options = {job_options(), compare_options},
       .operands = Operands::command,
       .group = money_group});
}

}  // namespace billow::client
