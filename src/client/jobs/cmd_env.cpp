// Environments: a directory tree or an image's files, saved under a name, that jobs run in on any
// node.
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/progress.h"
#include "client/frame/table.h"
#include "client/frame/when.h"
#include "client/request/environments.h"
#include "client/request/job_request.h"
#include "client/request/save_environment.h"
#include "files/image.h"

namespace billow::client {
namespace {

constexpr OptionSpec save_options[] = {
    {"project", 'p', "NAME", "project of the environment (default: your default project)"},
    {"shared", 0, nullptr,
     "share it with all projects, as PROJECT/NAME (from an admin: by its name alone)"},
};
constexpr OptionSpec project_option[] = {{"project", 'p', "NAME", "project of the environment"}};

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The kind of tree decides where jobs see it and which variables come with it.
files::ImageSource describe_tree(const std::string& directory) {
  files::ImageSource source{.directory = directory,
                            .place = directory,
                            .variables = {},
                            .programs = {},
                            .command = {},
                            .start_directory = {},
                            .progress = {}};
  const bool root = is_directory(directory + "/etc") &&
                    (is_directory(directory + "/usr/bin") || is_directory(directory + "/bin")) &&
                    (is_directory(directory + "/usr/lib") || is_directory(directory + "/lib") ||
                     file_exists(directory + "/bin/busybox"));
  if (root) {
    source.place = "/";
    return source;
  }
  if (file_exists(directory + "/pyvenv.cfg"))
    source.variables["VIRTUAL_ENV"] = directory;
  if (is_directory(directory + "/conda-meta")) {
    source.variables["CONDA_PREFIX"] = directory;
    source.variables["CONDA_DEFAULT_ENV"] = directory.substr(directory.rfind('/') + 1);
  }
  if (is_directory(directory + "/bin"))
    source.programs.push_back("bin");
  return source;
}

int cmd_env_save(const Parsed& parsed) {
  if (parsed.operands.empty() || parsed.operands.size() > 2)
    return report_usage({Code::invalid, "env save needs a name and a directory",
                         "for example: billow env save torch ./venv"});
  const std::string name = parsed.operands[0];
  if (const Status ok = check_name("environment", name); !ok) {
    if (parsed.operands.size() == 2 && check_name("environment", parsed.operands[1]))
      return report_usage(
          {Code::invalid, fmt::format("\"{}\" is a directory, not a name", name),
           fmt::format("the name comes first: billow env save {} {}", parsed.operands[1], name)});
    return report_usage(ok.error());
  }
  std::string directory = parsed.operands.size() > 1 ? parsed.operands[1] : "";
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* active = ::getenv(variable); directory.empty() && active && *active)
      directory = active;
  if (directory.empty())
    return report_usage(
        {Code::invalid, "no directory given",
         "give one (billow env save torch ./venv), or activate a virtual environment first"});
  char resolved[PATH_MAX];
  if (!::realpath(directory.c_str(), resolved))
    return report(fail_errno(directory, errno).error());
  if (std::string_view(resolved) == "/")
    return report({Code::invalid, "the root directory of this machine cannot be saved",
                   "give a directory that contains a root file system, or use env create --image"});
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto staging = Staging::create();
  if (!staging)
    return report(staging.error());
  files::ImageSource source = describe_tree(resolved);
  Json variables = Json::object();
  for (const auto& [key, value] : source.variables)
    variables.set(key, value);
  Result<files::WrittenImage> written = fail(Code::internal, "");
  {
    Progress progress("pack " + name, ProgressUnit::bytes);
    source.progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.update(done, total);
    };
    written = files::write_image(source, (*staging)->path);
  }
  if (!written)
    return report(written.error());
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  return finish_save(parsed, *client, name, (*staging)->path, *written, source.place,
                     fmt::format("{} on {}", resolved, host), variables);
}

// An environment by its name, or by "audio/torch".
std::string query_of(const std::string& name, const std::string& project) {
  std::vector<std::pair<std::string, std::string>> query;
  const auto slash = name.find('/');
  if (slash != std::string::npos || !project.empty())
    query.emplace_back("project", slash != std::string::npos ? name.substr(0, slash) : project);
  return with_query("/v1/environments/" + name.substr(slash == std::string::npos ? 0 : slash + 1),
                    query);
}

int cmd_env_list(const Parsed& parsed) {
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto all = client->get("/v1/environments");
  if (!all)
    return report(all.error());
  if (parsed.has("json")) {
    print_json(*all);
    return 0;
  }
  Table table({{"NAME"},
               {"PROJECT"},
               {"SIZE", Table::Align::right},
               {"STORED", Table::Align::right},
               {"SEEN AT"},
               {"FROM"},
               {"SAVED"}});
  for (const Json& e : (*all)["environments"].items())
    table.row({std::string(e["name"].str_or("?")),
               fmt::format("{}{}", e["project"].str_or(""),
                           e["published"].bool_or(false) ? " (published)"
                           : e["shared"].bool_or(false)  ? " (shared)"
                                                         : ""),
               format_bytes(e["bytes"].uint_or(0)), format_bytes(e["stored_bytes"].uint_or(0)),
               printable(e["path"].str_or("")), printable(e["origin"].str_or("")),
               time_text(e["at"], now(), "-")});
  show_table(table, "there are no environments; save one with `billow env save NAME DIR`");
  return 0;
}

int cmd_env_show(const Parsed& parsed) {
  if (parsed.operands.size() != 1)
    return report_usage({Code::invalid, "env show needs a name", "see `billow env list`"});
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto e = client->get(query_of(parsed.operands[0], parsed.get("project")));
  if (!e)
    return report(e.error());
  if (parsed.has("json")) {
    print_json(*e);
    return 0;
  }
  std::string text;
  const auto add = [&](const char* name, std::string_view value) {
    if (!value.empty())
      text += fmt::format("{:>10}  {}\n", name, printable(value));
  };
  add("name", (*e)["name"].str_or(""));
  add("project", fmt::format("{}{}", (*e)["project"].str_or(""),
                             (*e)["shared"].bool_or(false) ? " (shared with all projects)" : ""));
  add("digest", (*e)["digest"].str_or(""));
  add("seen at", (*e)["path"].str_or(""));
  add("from", (*e)["origin"].str_or(""));
  add("size", fmt::format("{}, {} stored", format_bytes((*e)["bytes"].uint_or(0)),
                          format_bytes((*e)["stored_bytes"].uint_or(0))));
  for (const auto& [name, value] : (*e)["variables"].members())
    add("sets", fmt::format("{}={}", name, value.str_or("")));
  add("saved", fmt::format("{} by {}", time_text((*e)["at"], now(), "?"), (*e)["by"].str_or("")));
  add("in use by", fmt::format("{} jobs", (*e)["jobs"].uint_or(0)));
  print(text);
  return 0;
}

int cmd_env_rm(const Parsed& parsed) {
  if (parsed.operands.size() != 1)
    return report_usage({Code::invalid, "env rm needs a name", "see `billow env list`"});
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto gone = client->del(query_of(parsed.operands[0], parsed.get("project")));
  if (!gone)
    return report(gone.error());
  if (parsed.has("json"))
    print_json(*gone);
  else
    print(fmt::format("removed environment {}; jobs that use it keep it\n", parsed.operands[0]));
  return 0;
}

}  // namespace

Status prepare_environment(Client& client, JobRequest& request) {
  for (JobRequest& role : request.roles)
    BILLOW_TRY_VOID(prepare_environment(client, role));
  const std::string& name = request.spec.surroundings.environment;
  if (name.empty())
    return {};
  const Json found = BILLOW_TRY(client.get(query_of(name, "")));
  // Another root file system has its own programs and users: variables that describe this machine
  // would mislead there.
  if (found["path"].str_or("") == "/")
    request.env.none = true;
  return {};
}

void add_environment_commands(CommandTable& table) {
  table.push_back(
      {.name = "env save",
       .summary =
           "save a directory (virtual environment, conda, root file system) for jobs to run in",
       .example = "billow env save torch ./venv\nbillow run --env torch -- python train.py",
       .run = cmd_env_save,
       .usage = "NAME [DIR]",
       .details = "Jobs with --env NAME see it at the path it was saved from, on any node; what a "
                  "job writes into it stays private to that job. A directory\nwith etc, bin and "
                  "lib is a root file system, which such jobs see as /. Without DIR, the active "
                  "virtual environment is saved.",
       .options = {save_options},
       .operands = Operands::some,
       .completes = Completes::directory,
       .group = "jobs"});
  table.push_back({.name = "env list",
                   .summary = "list saved environments",
                   .example = "billow env list",
                   .run = cmd_env_list,
                   .group = "jobs"});
  table.push_back({.name = "env show",
                   .summary = "show an environment",
                   .example = "billow env show torch",
                   .run = cmd_env_show,
                   .usage = "NAME",
                   .options = {project_option},
                   .operands = Operands::some,
                   .group = "jobs"});
  table.push_back({.name = "env rm",
                   .summary = "remove an environment; jobs that use it keep it",
                   .example = "billow env rm torch",
                   .run = cmd_env_rm,
                   .usage = "NAME",
                   .options = {project_option},
                   .operands = Operands::some,
                   .group = "jobs"});
}

}  // namespace billow::client
