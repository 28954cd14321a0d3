// profile: measures a job and recommends the right slice or GPU for it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "advise/imported_prices.h"
#include "advise/rightsize.h"
#include "base/crypto.h"
#include "base/text.h"
#include "client/advice/measured_job.h"
#include "client/advice/observe.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/jobs/attachment.h"
#include "client/request/environments.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"

namespace billow::client {
namespace {

constexpr OptionSpec profile_options[] = {
    {"for", 0, "T", "measure this long (default: until the job ends); the job keeps running"},
    {"steps", 0, "WORD", "word that marks a line of output as one step (default: step)"},
    {"quiet", 'q', nullptr, "do not show the job's output"},
};

// `profile 12 --for 60s`: after a job number come options of profile; after a command they would
// belong to the command.
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
      return fail(Code::invalid, fmt::format("\"{}\" cannot follow a job number", word),
                  "for example: billow profile 12 --for 60s; write a command after --");
    }
  }
  return parsed;
}

Result<ObserveOptions> observe_options(const Parsed& parsed, bool is_job) {
  ObserveOptions options{.job = {},
                         .step_pattern = parsed.get("steps", "step"),
                         .at_most = {},
                         .show_output = !parsed.has("quiet") && !is_job,
                         .stop_on_interrupt = !is_job,
                         .on_change = {}};
  if (parsed.has("for"))
    options.at_most = BILLOW_TRY(duration_with_unit(parsed.get("for")));
  return options;
}

// The running job that the operand names.
Result<std::string> running_job(const Parsed& parsed, Client& client) {
  const std::string& label = parsed.operands[0];
  const Json job = BILLOW_TRY(client.get(path_of_job(label)));
  if (job["final"].bool_or(false))
    return fail(Code::conflict,
                fmt::format("job {} has already ended ({}), so it cannot be measured", label,
                            job["state"].str_or("?")),
                "run it again: billow profile -- " + std::string(job["command"].str_or("COMMAND")));
  return label;
}

// Submits the command of the operands with at least one GPU; there is nothing to size without one.
Result<std::string> new_job(const Parsed& parsed, Client& client) {
  JobRequest request;
  request.spec.argv = parsed.operands;
  BILLOW_TRY_VOID(set_options(request, parsed));
  want_a_gpu(request);
  const Json job = BILLOW_TRY(submit_request(client, std::move(request)));
  const std::string label = job_number(job);
  if (const auto reason = job["reason"].str_or("");
      !reason.empty() && job["state"].str_or("") != "running")
    say(fmt::format("job {} is {}: {}", label, job["state"].str_or("queued"), printable(reason)));
  return label;
}

int show_size(const Parsed& parsed,
              Client& client,
              const std::string& label,
              const Observed& seen) {
  const bool ended = seen.job["final"].bool_or(false);
  const int code = ended ? exit_code_of(seen.job) : 0;
  if (seen.run.gpu.empty())
    return report({Code::conflict,
                   fmt::format("job {} was not measured on a GPU: {}", label,
                               seen.run.samples == 0 && seen.job["gpus"].int_or(0) > 0
                                   ? "it ended too quickly"
                                   : "it uses none"),
                   "give it a GPU (--gpus 1) and at least some seconds of work"});
  const auto catalogue = advise::catalogue_with_imports(data_directory(parsed.get("data")));
  if (!catalogue)
    return report(catalogue.error());
  const auto fleet = fleet_of_head(client, *catalogue);
  if (!fleet)
    return report(fleet.error());
  const auto size = advise::right_size(seen.run, *fleet, *catalogue, now());
  if (parsed.has("json")) {
    Json out = advise::right_size_json(seen.run, size);
    out.set("job", label);
    out.set("exit_code", ended ? Json(code) : Json());
    print_json(out);
    return code;
  }
  print(advise::right_size_text(seen.run, size));
  if (gpus_are_simulated(client))
    say("the GPUs are simulated: a real GPU may need more or less");
  if (code != 0)
    say(fmt::format("job {} ended with {}; the measurement covers the time until then", label,
                    seen.job.at("exit", "text").str_or("a failure")));
  return code;
}

int cmd_profile(const Parsed& given) {
  const auto sorted = options_behind_a_job(given);
  if (!sorted)
    return report_usage(sorted.error());
  const Parsed& parsed = *sorted;
  if (parsed.operands.empty())
    return report_usage({Code::invalid, "no job or command given",
                         "give a running job (billow profile 12) or a command (billow profile "
                         "--gpus 1 -- python train.py)"});
  const bool is_job = !parsed.after_dashes && parsed.operands.size() == 1 &&
                      check_job_label(parsed.operands[0]).has_value();
  auto options = observe_options(parsed, is_job);
  if (!options)
    return report_usage(options.error());
  auto client = connect(parsed, !is_job);
  if (!client)
    return report(client.error());
  const auto job = is_job ? running_job(parsed, *client) : new_job(parsed, *client);
  if (!job)
    return job.error().code == Code::invalid ? report_usage(job.error()) : report(job.error());
  options->job = *job;
  const auto seen = observe(*client, *options);
  return seen ? show_size(parsed, *client, *job, *seen) : report(seen.error());
}

}  // namespace

void add_profile_commands(CommandTable& table) {
  table.push_back(
      {.name = "profile",
       .summary = "measure a job and recommend the right slice or GPU for it",
       .example = "billow profile --gpus 1 -- python train.py\nbillow profile 12 --for 60s",
       .run = cmd_profile,
       .usage = "JOB | [--] COMMAND [ARG…]",
       .details =
           "Measures peak memory, SM and DRAM activity (or utilisation, if the GPU reports "
           "no more) and the time per step. The answer is the smallest slice, MIG instance "
           "or GPU of this installation that holds the peak with 10 % headroom and does not slow "
           "the job down; GPUs to rent are listed beside it.",
       .options = {job_options(), profile_options},
       .operands = Operands::command,
       .completes = Completes::job,
       .group = money_group});
  add_compare_commands(table);
}

}  // namespace billow::client
