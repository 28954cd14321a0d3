// label: changes labels of jobs, live or ended.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"

namespace billow::client {
namespace {

// "team=nlp" sets a label, "team-" removes it; everything else names a job.
int cmd_label(const Parsed& parsed) {
  Json set = Json::object(), remove = Json::array();
  std::vector<std::string> words;
  for (const std::string& word : parsed.operands) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos)
      set.set(word.substr(0, equals), word.substr(equals + 1));
    else if (word.size() > 1 && word.ends_with('-'))
      remove.push(word.substr(0, word.size() - 1));
    else
      words.push_back(word);
  }
  if (words.empty() || (set.size() == 0 && remove.size() == 0))
    return report_usage(
        {Code::invalid, "a job and a label are required",
         "for example: billow label 12 team=nlp; to remove it: billow label 12 team-"});
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto jobs = jobs_of(*client, words, NameUse::change);
  if (!jobs)
    return report(jobs.error());
  const std::string body = Json::object({{"set", set}, {"remove", remove}}).dump();
  int code = 0;
  for (const std::string& label : *jobs) {
    const auto answer = client->put(path_of_job(label, "labels"), body);
    if (!answer)
      code = report(answer.error());
    else if (!parsed.has("json"))
      print(fmt::format("labelled job {}\n", label));
    else
      print(answer->dump() + "\n");
  }
  return code;
}

}  // namespace

void add_label_commands(CommandTable& table) {
  table.push_back({.name = "label",
                   .summary = "set or remove labels of jobs, also of jobs that have ended",
                   .example = "billow label 12 team=nlp\nbillow label 12 13 team-",
                   .run = cmd_label,
                   .usage = "JOB… NAME=VALUE… NAME-…",
                   .operands = Operands::some,
                   .completes = Completes::job,
                   .group = "jobs"});
}

}  // namespace billow::client
