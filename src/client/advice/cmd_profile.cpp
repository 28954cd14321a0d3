// profile: run once, measure, and say which slice or card is right. compare: the same command on
// each type of GPU this Billow has, with time, cost, cost per unit of work and the winner.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "advise/commands.h"
#include "advise/rightsize.h"
#include "base/crypto.h"
#include "base/text.h"
#include "client/advice/observe.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/jobs/session.h"
#include "client/request/environments.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"

namespace billow::client {
namespace {

constexpr OptionSpec profile_options[] = {
    {"for", 0, "T", "look this long, then answer; the job goes on (until it ends)"},
    {"steps", 0, "WORD", "lines of output with this word are steps of work (step)"},
    {"quiet", 'q', nullptr, "do not show the job's output"},
};
constexpr OptionSpec compare_options[] = {
    {"gpu-types", 0, "A,B",
     "types to run on; H100:0.5 is half of one, and all is every type there is, whole and halved"},
    {"steps", 0, "WORD", "lines of output with this word are units of work (step)"},
    {"units", 0, "N", "units of work the command does, where its output does not tell"},
    {"show-output", 0, nullptr, "show the jobs' output"},
};

Result<Json> submit_request(Client& client, JobRequest request) {
  BILLOW_TRY_VOID(complete(request));
  BILLOW_TRY_VOID(prepare_environment(client, request));
  Environment env = BILLOW_TRY(job_environment(own_environment(), request.env));
  BILLOW_TRY_VOID(sync_for_job(client, request, false, env));
  return client.post("/v1/jobs", submit_body(request, env),
                     {{"Idempotency-Key", "cli-" + random_token(12)}});
}

void want_a_gpu(JobRequest& request) {
  if (request.spec.resources.gpus > 0)
    return;
  request.spec.resources.gpus = 1;
  request.spec.resources.share.milli = whole_gpu_milli;
}

std::string job_number(const Json& submitted) {
  return fmt::format("{}", submitted["id"].uint_or(0));
}

// `profile 12 --for 60s`: behind a job's number come our own options, though behind a command they
// would be the command's.
Result<Parsed> options_behind_a_job(const Parsed& given) {
  Parsed parsed = given;
  if (given.after_dashes || given.operands.empty() || !check_job_label(given.operands[0]))
    return parsed;
  parsed.operands.resize(1);
  for (std::size_t i = 1; i < given.operands.size(); ++i) {
    const std::string& word = given.operands[i];
    if (word == "--json" || word == "--quiet" || word == "-q") {
      parsed.add(word == "--json" ? "json" : "quiet", "");
    } else if ((word == "--for" || word == "--steps" || word == "--data" || word == "--head") &&
               i + 1 < given.operands.size()) {
      parsed.add(word.substr(2), given.operands[++i]);
    } else {
      return fail(Code::invalid, fmt::format("\"{}\" does not go with a job's number", word),
                  "billow profile 12 --for 60s; a command comes after --");
    }
  }
  return parsed;
}

int cmd_profile(const Parsed& given) {
  auto sorted = options_behind_a_job(given);
  if (!sorted)
    return report_usage(sorted.error());
  const Parsed& parsed = *sorted;
  const bool is_job = !parsed.after_dashes && parsed.operands.size() == 1 &&
                      check_job_label(parsed.operands[0]).has_value();
  if (parsed.operands.empty())
    return report_usage({Code::invalid, "profile what?",
                         "a job that runs (billow profile 12), or a command (billow profile --gpus "
                         "1 -- python train.py)"});
  ObserveOptions options{.job = {},
                         .step_pattern = parsed.get("steps", "step"),
                         .at_most = {},
                         .show_output = !parsed.has("quiet") && !is_job,
                         .stop_on_interrupt = !is_job,
                         .on_change = {}};
  if (parsed.has("for")) {
    auto length = parse_duration(parsed.get("for"));
    if (!length)
      return report_usage(length.error());
    options.at_most = *length;
  }
  auto client = connect(parsed, !is_job);
  if (!client)
    return report(client.error());
  if (is_job) {
    options.job = parsed.operands[0];
    auto job = client->get(path_of_job(options.job));
    if (!job)
      return report(job.error());
    if ((*job)["final"].bool_or(false))
      return report(
          {Code::conflict,
           fmt::format("job {} has ended ({}): there is nothing to measure", options.job,
                       (*job)["state"].str_or("?")),
           "run it again: billow profile -- " + std::string((*job)["command"].str_or("COMMAND"))});
  } else {
    JobRequest request;
    request.spec.argv = parsed.operands;
    if (auto set = set_options(request, parsed); !set)
      return report_usage(set.error());
    want_a_gpu(request);  // there is nothing to size without one
    auto job = submit_request(*client, std::move(request));
    if (!job)
      return report(job.error());
    options.job = job_number(*job);
    if (const auto reason = (*job)["reason"].str_or("");
        !reason.empty() && (*job)["state"].str_or("") != "running")
      say(fmt::format("job {} is {}: {}", options.job, (*job)["state"].str_or("queued"),
                      printable(reason)));
  }
  auto seen = observe(*client, options);
  if (!seen)
    return report(seen.error());
  const int code = seen->job["final"].bool_or(false) ? exit_code_of(seen->job) : 0;
  if (seen->run.gpu.empty())
    return report({Code::conflict,
                   fmt::format("job {} was never seen with a GPU: {}", options.job,
                               seen->run.samples == 0 && seen->job["gpus"].int_or(0) > 0
                                   ? "it ended too soon to be measured"
                                   : "it holds none"),
                   "give it a GPU (--gpus 1) and some seconds of work"});
  auto catalogue = advise::catalogue_with_imports(data_directory(parsed.get("data")));
  if (!catalogue)
    return report(catalogue.error());
  auto fleet = fleet_of_head(*client, *catalogue);
  if (!fleet)
    return report(fleet.error());
  const auto size = advise::right_size(seen->run, *fleet, *catalogue);
  if (parsed.has("json")) {
    Json out = advise::right_size_json(seen->run, size);
    out.set("job", options.job);
    out.set("exit_code", seen->job["final"].bool_or(false) ? Json(code) : Json());
    print_json(out);
  } else {
    print(advise::right_size_text(seen->run, size));
    if (code != 0)
      say(fmt::format("job {} ended with {}: what it did until then was measured", options.job,
                      seen->job.at("exit", "text").str_or("a failure")));
  }
  return code;
}

// ---- compare
// -------------------------------------------------------------------------------------------------------

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
    return fail(Code::infeasible, "no node of this Billow has a GPU", "see billow nodes");
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
      char* end = nullptr;
      const std::string share = name.substr(colon + 1);
      c.type = name.substr(0, colon);
      c.share = std::strtod(share.c_str(), &end);
      if (end == share.c_str() || *end || !(c.share > 0 && c.share <= 1))
        return fail(Code::invalid, fmt::format("\"{}\" names no share of a GPU", name),
                    "write it as H100:0.5");
    }
    const auto found = std::find_if(have.begin(), have.end(), [&](const std::string& type) {
      return lower(type) == lower(c.type);
    });
    if (found == have.end())
      return fail(Code::invalid, fmt::format("this Billow has no {}", c.type),
                  "it has " + join(have, ", "));
    c.type = *found;
    out.push_back(std::move(c));
  }
  if (out.empty())
    return fail(Code::invalid, "--gpu-types names no type", "it may be " + join(have, ", "));
  return out;
}

void run_one(
    Client& client, const Parsed& parsed, Contender& c, double units_told, bool& interrupted) {
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
  c.units = units_told > 0 ? units_told : c.seen->run.steps;
  if (c.seen->job["state"].str_or("") != "succeeded")
    c.error = std::string(c.seen->job.at("exit", "text").str_or(c.seen->job["state"].str_or("?")));
}

int cmd_compare(const Parsed& parsed) {
  if (parsed.operands.empty())
    return report_usage({Code::invalid, "compare what?",
                         "billow compare --gpu-types A100-80,H100 -- python train.py"});
  if (!parsed.has("gpu-types"))
    return report_usage({Code::invalid, "--gpu-types is missing",
                         "such as --gpu-types A100-80,H100, or --gpu-types all"});
  if (parsed.has("gpu-type"))
    return report_usage({Code::invalid, "--gpu-type and --gpu-types do not go together",
                         "name them all in --gpu-types"});
  double units = 0;
  if (parsed.has("units")) {
    char* end = nullptr;
    const std::string text = parsed.get("units");
    units = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end || !(units > 0 && units < 1e15))
      return report_usage(
          {Code::invalid, fmt::format("--units is \"{}\", not a number above 0", text), ""});
  }
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto all = contenders(parsed.get("gpu-types"), *client);
  if (!all)
    return all.error().code == Code::invalid ? report_usage(all.error()) : report(all.error());
  // One after the other: side by side they would share the host and spoil each other's times.
  bool interrupted = false;
  for (Contender& c : *all)
    if (!interrupted)
      run_one(*client, parsed, c, units, interrupted);
  const Contender *winner = nullptr, *fastest = nullptr;
  const auto score = [](const Contender& c) {
    return c.per_unit().value_or(c.cost_usd);
  };
  const bool priced = std::any_of(all->begin(), all->end(),
                                  [](const Contender& c) { return c.ok() && c.cost_usd > 0; });
  for (const Contender& c : *all) {
    if (!c.ok())
      continue;
    if (!fastest || c.seen->seconds < fastest->seen->seconds)
      fastest = &c;
    if (!winner || (priced ? score(c) < score(*winner) : c.seen->seconds < winner->seen->seconds))
      winner = &c;
  }
  if (parsed.has("json")) {
    Json rows = Json::array();
    for (const Contender& c : *all) {
      const auto per_unit = c.per_unit();
      rows.push(Json::object(
          {{"gpu", c.name},
           {"type", c.type},
           {"share", c.share},
           {"job", c.job},
           {"ok", c.ok()},
           {"error", c.ok() ? Json() : Json(c.error)},
           {"seconds", c.seen ? Json(c.seen->seconds) : Json()},
           {"cost_usd", c.cost_usd},
           {"units", c.units},
           {"usd_per_unit", per_unit ? Json(*per_unit) : Json()},
           {"step_s", c.seen && c.seen->run.step_s ? Json(*c.seen->run.step_s) : Json()},
           {"mem_peak_mib", c.seen ? Json(c.seen->run.mem_peak_mib) : Json()},
           {"util_p95_pct",
            c.seen && c.seen->run.util_p95_pct ? Json(*c.seen->run.util_p95_pct) : Json()}}));
    }
    print_json(Json::object({{"runs", rows},
                             {"winner", winner ? Json(winner->name) : Json()},
                             {"fastest", fastest ? Json(fastest->name) : Json()}}));
  } else {
    Table table({{"GPU"},
                 {"JOB", Table::Align::right},
                 {"TIME", Table::Align::right},
                 {"COST", Table::Align::right},
                 {"UNITS", Table::Align::right},
                 {"PER 1000 UNITS", Table::Align::right},
                 {"MEM PEAK", Table::Align::right},
                 {""}});
    for (const Contender& c : *all) {
      const auto per_unit = c.per_unit();
      std::string word = !c.ok()         ? (c.error.empty() ? "not run" : c.error)
                         : &c == winner  ? (priced ? "cheapest" : "fastest")
                         : &c == fastest ? "fastest"
                                         : "";
      if (&c == winner && &c == fastest && priced)
        word = "cheapest and fastest";
      table.row({c.name,
                 c.job.empty() ? "-" : c.job,
                 c.seen ? fmt::format("{:.1f} s", c.seen->seconds) : "-",
                 c.seen ? fmt::format("${:.6f}", c.cost_usd) : "-",
                 c.units > 0 ? fmt::format("{:.0f}", c.units) : "-",
                 per_unit ? fmt::format("${:.6f}", *per_unit * 1000) : "-",
                 c.seen ? mebibytes(static_cast<std::int64_t>(c.seen->run.mem_peak_mib)) : "-",
                 {printable(word), !c.ok() ? Colour::red : Colour::green}});
    }
    print(table.text(look_at(STDOUT_FILENO)));
    if (winner)
      print(fmt::format("winner: {}{}\n", winner->name,
                        priced ? fmt::format(" at ${:.6f}{}", score(*winner),
                                             winner->per_unit() ? " per unit of work" : " a run")
                               : ", by time (no price is set)"));
    if (winner && !winner->per_unit())
      print(
          "no units of work were seen: name them with --steps WORD (a word in its output) or "
          "--units N to compare cost per unit\n");
  }
  return interrupted ? 130 : winner ? 0 : exit_failed;
}

}  // namespace

void add_profile_commands(CommandTable& table) {
  constexpr const char* group = "money and advice";
  table.push_back(
      {.name = "profile",
       .summary = "run once, measure, and say which slice or card is right",
       .example = "billow profile --gpus 1 -- python train.py\nbillow profile 12 --for 60s",
       .run = cmd_profile,
       .usage = "JOB | [--] COMMAND [ARG…]",
       .details = "Memory peak, SM and DRAM activity (utilisation where the card tells no more) "
                  "and the time of a step are measured while it runs. The answer is the smallest "
                  "slice, MIG shape or card of this Billow that holds the peak with 10 % headroom "
                  "and would not slow it down; beside it, what could be rented.",
       .options = {job_options(), profile_options},
       .operands = Operands::command,
       .completes = Completes::job,
       .group = group});
  table.push_back(
      {.name = "compare",
       .summary = "the same command on several types of GPU: time, cost, cost per unit of work",
       .example = "billow compare --gpu-types A100-80,H100,H100:0.5 -- python bench.py",
       .run = cmd_compare,
       .usage = "[--] COMMAND [ARG…]",
       .details = "The runs come one after the other, so that they do not disturb each other. "
                  "Units of work are lines of output with the word given by --steps, or --units.",
       .options = {job_options(), compare_options},
       .operands = Operands::command,
       .group = group});
}

}  // namespace billow::client
