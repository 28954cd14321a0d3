// cp: files into and out of running jobs, and the outputs of ended ones.
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/terminal.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"

namespace billow::client {
namespace {

constexpr OptionSpec cp_options[] = {{"rank", 0, "N", "rank of the node in a gang (default 0)"}};

// "12:", "12:results/", "12.3:a/b", "train:out": of a job, by its number or name, as scp writes
// hosts; a path here has no colon before its first slash, or begins with "./".
struct JobPath {
  std::string job, path;
  bool directory = false;  // written with a "/" at its end
};
std::optional<JobPath> job_path(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos || !check_job_word(text.substr(0, colon)))
    return std::nullopt;
  JobPath out{text.substr(0, colon), text.substr(colon + 1), text.ends_with('/')};
  while (out.path.starts_with("./"))
    out.path.erase(0, 2);
  while (out.path.size() > 1 && out.path.ends_with('/'))
    out.path.pop_back();
  if (out.path == ".")
    out.path.clear();
  return out;
}

Status check_job_path(const JobPath& at) {
  if (at.path.empty())
    return {};
  for (const std::string& name : split(at.path, '/'))
    if (name.empty() || name == "." || name == "..")
      return fail(Code::invalid,
                  fmt::format("{} is not a path inside the job's working directory", at.path),
                  "use a form like 12:results/model.pt");
  return {};
}

std::string body_of(const char* name, const std::string& value, std::int64_t rank) {
  Json body = Json::object();
  if (!value.empty())
    body.set(name, value);
  if (rank > 0)
    body.set("rank", rank);
  return body.dump();
}

bool runs(const Json& job) {
  const auto state = job["state"].str_or("");
  return state == "running" || state == "suspended";
}

// Where what is fetched goes, by the rules of cp: into a directory that is there (or is written
// with a "/" at its end) under its own name, else under the name that was given. Everything of a
// job goes into the directory itself.
Result<Fetch> place_here(const JobPath& from, const std::string& to) {
  std::string plain = to;  // "one/" is nothing that can be looked at where one is a file
  while (plain.size() > 1 && plain.ends_with('/'))
    plain.pop_back();
  struct stat info {};
  const bool there = ::stat(plain.c_str(), &info) == 0, directory = there && S_ISDIR(info.st_mode);
  if (there && !directory && (from.path.empty() || to.ends_with('/')))
    return fail(Code::conflict, fmt::format("{} is not a directory", to),
                "give a directory; it is created if it does not exist");
  if (from.path.empty() || directory || to.ends_with('/'))
    return Fetch{.digest = {}, .directory = to, .only = from.path, .as = {}};
  const auto slash = to.rfind('/');
  const std::string above = slash == std::string::npos ? "."
                            : slash == 0               ? "/"
                                                       : to.substr(0, slash);
  if (::stat(above.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return fail(Code::not_found, fmt::format("directory {} does not exist", above),
                fmt::format("create it first: mkdir -p {}", shell_quote(above)));
  return Fetch{.digest = {},
               .directory = above,
               .only = from.path,
               .as = slash == std::string::npos ? to : to.substr(slash + 1)};
}

int bring(Client& client, const JobPath& from, const std::string& to, std::int64_t rank) {
  auto fetch = place_here(from, to);
  if (!fetch)
    return report(fetch.error());
  const auto take = [&](const Json& tree) {
    fetch->digest = std::string(tree.str_or(""));
    const Status done = download_tree(client, *fetch);
    return done ? 0 : report(done.error());
  };
  const auto job = client.get(path_of_job(from.job));
  if (!job)
    return report(job.error());
  if (runs(*job)) {
    const auto answer = client.call(net::Method::post, path_of_job(from.job, "files"),
                                    body_of("path", from.path, rank), {}, copy_patience);
    return answer ? take((*answer)["tree"]) : report(answer.error());
  }
  const auto answer = client.get(path_of_job(from.job, "outputs"));
  if (!answer)
    return report(answer.error());
  for (const Json& one : (*answer)["outputs"].items())
    if (one["rank"].int_or(-1) == rank)
      return take(one["tree"]);
  return report({Code::not_found,
                 fmt::format("job {} has no outputs{}", from.job,
                             rank ? fmt::format(" on node {}", rank) : ""),
                 "declare outputs when you submit the job: --output results"});
}

int send(Client& client, const std::string& from, const JobPath& to, std::int64_t rank) {
  struct stat info {};
  if (::stat(from.c_str(), &info) != 0)
    return report(fail_errno(from, errno).error());
  // "cp file 12:" and "cp file 12:dir/" keep its name; else the path is the name it gets there.
  std::string plain = from;
  while (plain.size() > 1 && plain.ends_with('/'))
    plain.pop_back();
  const std::string name = plain.substr(plain.rfind('/') + 1);
  std::string place = to.path;
  if (place.empty() || to.directory) {
    if (name.empty() || name == "." || name == "..")
      return report_usage({Code::invalid, fmt::format("{} needs a name in the job", from),
                           "for example: billow cp . 12:work"});
    place = place.empty() ? name : place + "/" + name;
  }
  OnInterrupt left(fmt::format("nothing was copied into job {}", to.job));
  const auto uploaded = upload_path(client, plain, S_ISDIR(info.st_mode), place);
  if (!uploaded)
    return report(uploaded.error());
  for (const std::string& warning : uploaded->warnings)
    say("warning: " + warning);
  left.say(fmt::format("the copy into job {} may be incomplete; run the command again", to.job));
  const auto done = client.call(net::Method::post, path_of_job(to.job, "files"),
                                body_of("tree", uploaded->digest, rank), {}, copy_patience);
  return done ? 0 : report(done.error());
}

int cmd_cp(const Parsed& parsed) {
  const auto usage = [] {
    return report_usage(
        {Code::invalid, "cp needs one path in a job and one path on this machine",
         "for example: billow cp 12:results .   or: billow cp data.csv 12:data.csv"});
  };
  if (parsed.operands.size() != 2)
    return usage();
  auto from = job_path(parsed.operands[0]), to = job_path(parsed.operands[1]);
  if (from.has_value() == to.has_value())
    return usage();
  if (const Status plain = check_job_path(from ? *from : *to); !plain)
    return report_usage(plain.error());
  const auto rank = parse_int(parsed.get("rank", "0"), 0, 1'000'000);
  if (!rank)
    return report_usage(Error(rank.error()).in("--rank"));
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  JobPath& there = from ? *from : *to;
  const auto job = job_of(*client, there.job, from ? NameUse::look : NameUse::change);
  if (!job)
    return report(job.error());
  there.job = *job;
  return from ? bring(*client, *from, parsed.operands[1], *rank)
              : send(*client, parsed.operands[0], *to, *rank);
}

}  // namespace

void add_file_commands(CommandTable& table) {
  table.push_back(
      {.name = "cp",
       .summary = "copy files into and out of jobs",
       .example = "billow cp 12:out/model.pt .\nbillow cp train:out/model.pt "
                  "best.pt\nbillow cp 12: results\nbillow cp data.csv 12:data/",
       .run = cmd_cp,
       .usage = "JOB:[PATH] PATH | PATH JOB:[PATH]",
       .details =
           "While a job runs, paths are in its working directory and are accessed as the job's "
           "user. After it has ended, they are in the outputs that\nthe job declared with "
           "--output. As with cp, files keep their names if the target is an existing directory or "
           "ends with /; otherwise the\ntarget is the new name. `12:` alone means all files of the "
           "job; its contents go into the target directory. Directories are copied whole.",
       .options = {cp_options},
       .operands = Operands::some,
       .completes = Completes::file,
       .group = "jobs",
       .prints_json = false});
}

}  // namespace billow::client
