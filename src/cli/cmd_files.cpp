// cp: what a job left as its outputs, brought here.
#include <fmt/format.h>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/sync.h"

namespace billow::cli {
namespace {

constexpr OptionSpec cp_options[] = {{"rank", 0, "N", "of this node of a gang (0)"}};

int cmd_cp(const Parsed& parsed) {
  if (parsed.operands.size() != 2 || parsed.operands[0].find(':') == std::string::npos)
    return report_usage({Code::invalid, "cp needs a job and a place", "write it like: billow cp 12: results   (the outputs of job 12 into ./results)"});
  const std::string from = parsed.operands[0];
  const std::string job = from.substr(0, from.find(':')), given = from.substr(from.find(':') + 1);
  std::string path = given;
  while (path.starts_with("./")) path.erase(0, 2);
  while (path.ends_with('/')) path.pop_back();
  if (path == ".") path.clear();
  if (given.starts_with('/')) return report_usage({Code::invalid, fmt::format("{}: outputs are named by their path in the job's working directory", given), "write it like: billow cp 12:results/model.pt ."});
  if (auto ok = check_job_label(job); !ok) return report_usage(ok.error());
  const auto rank = parse_int(parsed.get("rank", "0"), 0, 1'000'000);
  if (!rank) return report_usage(Error(rank.error()).in("--rank"));
  auto client = connect(parsed);
  if (!client) return report(client.error());
  const auto answer = client->get(path_of_job(job, "outputs"));
  if (!answer) return report(answer.error());
  for (const Json& one : (*answer)["outputs"].items()) {
    if (one["rank"].int_or(-1) != *rank) continue;
    const Status done = download_tree(*client, std::string(one["tree"].str_or("")), parsed.operands[1], path);
    return done ? 0 : report(done.error());
  }
  return report({Code::not_found, fmt::format("job {} has left no outputs{}", job, *rank ? fmt::format(" on node {}", *rank) : ""), "declare them when you submit it: --sync --output results"});
}

}  // namespace

void add_file_commands(CommandTable& table) {
  table.push_back({.name = "cp",
                   .summary = "bring a job's outputs here",
                   .example = "billow cp 12: results\nbillow cp 12:out/model.pt .",
                   .run = cmd_cp,
                   .usage = "JOB:[PATH] DIRECTORY",
                   .details = "What was declared with --output is kept by the head when the job ends.",
                   .options = {cp_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = "jobs",
                   .prints_json = false});
}

}  // namespace billow::cli
