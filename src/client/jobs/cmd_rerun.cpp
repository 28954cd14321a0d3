// Running again: a job as it ran, the failed elements of an array, one role of a group.
#include <fmt/format.h>
#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"
#include "core/model/array_spec.h"

namespace billow::client {
namespace {

constexpr OptionSpec rerun_options[] = {
    {"from-scratch", 0, nullptr, "do not start from the job's newest checkpoint"},
};
std::string rerun_body(const Parsed& parsed) {
  return parsed.has("from-scratch") ? R"({"from_scratch":true})" : "{}";
}

std::string failed_text(std::size_t count) {
  return count == 1 ? "1 failed element" : fmt::format("{} failed elements", count);
}

// Elements with checkpoints of their own: each as a job of its own, from its own.
int rerun_each(const Parsed& parsed, Client& client, const std::vector<Json>& elements) {
  std::vector<std::string> made;
  for (const Json& element : elements) {
    const std::string label(element["label"].str_or(""));
    const auto job = client.post(path_of_job(label, "rerun"), rerun_body(parsed));
    if (!job)
      return report(Error(job.error()).in("element " + label));
    made.push_back(fmt::format("{}", (*job)["id"].uint_or(0)));
    if (parsed.has("json"))
      print(job->dump() + "\n");
  }
  if (!parsed.has("json"))
    print(fmt::format("{} run{} again, each from its checkpoint: job{} {}\n",
                      failed_text(made.size()), made.size() == 1 ? "s" : "",
                      made.size() == 1 ? "" : "s", join(made, ", ")));
  return 0;
}

// Of an array: its elements that did not succeed, as one array with the same indices.
int rerun_failed_elements(const Parsed& parsed, Client& client, const Json& array) {
  const std::string number = fmt::format("{}", array["id"].uint_or(0));
  const auto page = fetch_jobs(client, {.state = "failed,stopped,lost",
                                        .array = number,
                                        .expand = true,
                                        .limit = limits::array_elements_max});
  if (!page)
    return report(page.error());
  std::vector<Json> failed = (*page)["jobs"].items();
  if (failed.empty())
    return report({Code::conflict, fmt::format("no element of array {} has failed", number),
                   fmt::format("see `billow ps --array {} -a`", number)});
  std::reverse(failed.begin(), failed.end());
  if (array.at("spec", "checkpoint_every_ns").int_or(0) > 0 && !parsed.has("from-scratch"))
    return rerun_each(parsed, client, failed);
  std::vector<std::uint64_t> indices;
  for (const Json& element : failed)
    indices.push_back(element.at("array", "index").uint_or(0));
  const std::string chosen = array_of(std::move(indices)).text();
  const auto job = client.post(
      path_of_job(number, "rerun"),
      Json::object({{"elements", chosen}, {"from_scratch", parsed.has("from-scratch")}}).dump());
  if (!job)
    return report(job.error());
  const std::uint64_t id = (*job)["id"].uint_or(0);
  if (parsed.has("json"))
    print_json(*job);
  else
    print(
        fmt::format("array {} runs {} of array {} again ({}); watch it with `billow logs -f {}`\n",
                    id, failed_text(failed.size()), number, chosen, id));
  return 0;
}

constexpr OptionSpec restart_options[] = {
    {"role", 0, "NAME", "role to restart, or one member of it such as rollout.2"},
};

int cmd_restart(const Parsed& parsed) {
  if (parsed.operands.size() != 1)
    return report_usage({Code::invalid, "restart needs a job", "see `billow ps`"});
  if (parsed.get("role").empty())
    return report_usage({Code::invalid, "restart needs --role, the role of a group",
                         "to run a whole job again: billow rerun " + parsed.operands[0]});
  if (auto ok = check_job_word(parsed.operands[0]); !ok)
    return report_usage(ok.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto group = job_of(*client, parsed.operands[0], NameUse::change);
  if (!group)
    return report(group.error());
  const auto job = client->post(path_of_job(*group, "restart"),
                                Json::object({{"role", parsed.get("role")}}).dump());
  if (!job)
    return report(job.error());
  if (parsed.has("json"))
    print_json(*job);
  else
    print(fmt::format("role {} of job {} restarts\n", parsed.get("role"), *group));
  return 0;
}

int cmd_rerun(const Parsed& parsed) {
  if (parsed.operands.size() != 1)
    return report_usage({Code::invalid, "rerun needs a job", "see `billow ps -a`"});
  if (auto ok = check_job_word(parsed.operands[0]); !ok)
    return report_usage(ok.error());
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  const auto before = job_of(*client, parsed.operands[0], NameUse::look);
  if (!before)
    return report(before.error());
  const auto document = client->get(path_of_job(*before));
  if (!document)
    return report(document.error());
  if (document->find("elements"))
    return rerun_failed_elements(parsed, *client, *document);
  auto job = client->post(path_of_job(*before, "rerun"), rerun_body(parsed));
  if (!job)
    return report(job.error());
  if (parsed.has("json"))
    print_json(*job);
  else
    print(fmt::format("job {} runs job {} again{}; watch it with `billow logs -f {}`\n",
                      (*job)["id"].uint_or(0), *before,
                      (*job)["from_checkpoint"].str_or("").empty()
                          ? ""
                          : fmt::format(" from its checkpoint {}",
                                        printable((*job)["from_checkpoint"].str_or(""))),
                      (*job)["id"].uint_or(0)));
  return 0;
}

}  // namespace

void add_rerun_commands(CommandTable& table) {
  table.push_back(
      {.name = "restart",
       .summary = "restart one role of a running group, while the others continue",
       .example = "billow restart 12 --role rollout\nbillow restart 12 --role rollout.2",
       .run = cmd_restart,
       .usage = "JOB --role NAME",
       .details = "The members of the role get the stop signal, and after --stop-grace they are "
                  "killed. Then they start again, on the same nodes and ports if these are still "
                  "free. This costs no retry. To run a whole job again, use `billow rerun`.",
       .options = {restart_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
  table.push_back(
      {.name = "rerun",
       .summary = "run a job again exactly as it was submitted",
       .example = "billow rerun 12\nbillow rerun sweep",
       .run = cmd_rerun,
       .usage = "JOB",
       .details =
           "A job that wrote checkpoints starts from the newest one (BILLOW_CHECKPOINT), also if "
           "it failed or was stopped. For an array, the elements that did not succeed run again "
           "with the same indices: as one array, or as separate jobs if they have checkpoints.",
       .options = {rerun_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
}

}  // namespace billow::client
