// Commands that the Python package carries out: sdk install, map, notebook.
//
// Options are declared and checked here like those of every command; the module gets them as one
// JSON argument. Options of jobs are passed on as words, for the `billow submit` that the module
// runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/request/job_request.h"
#include "process/spawn.h"

std::string_view billow_embedded_sdk_wheel();

namespace billow::client {
namespace {

constexpr std::size_t wheel_bytes_max = 64 << 20;

constexpr OptionSpec python_option[] = {{"python", 0, "PROGRAM",
                                         "Python to use (default: $BILLOW_PYTHON, or python3)",
                                         false, Completes::file}};
constexpr OptionSpec install_options[] = {
    {"venv", 0, "DIR", "install into this virtual environment; it is created if it does not exist",
     false, Completes::directory},
    {"user", 0, nullptr, "install for your user"},
    {"system", 0, nullptr, "install for all users of this Python"},
    {"target", 0, "DIR", "install into this directory", false, Completes::directory}};
constexpr OptionSpec map_options[] = {
    {"input", 'i', "GLOB|URL", "files to read: 'data/*.jsonl' or 's3://bucket/prefix/*.jsonl'",
     true},
    {"output", 'o', "DIR|URL", "directory or s3://bucket/prefix for the results"},
    {"endpoint", 0, "NAME", "send the records to this endpoint instead of running a command"},
    {"path", 0, "PATH", "path of the endpoint that takes a record (default /)"},
    {"workers", 'w', "N", "number of worker jobs (default 4; 1 with --endpoint)"},
    {"concurrency", 0, "N", "concurrent requests per worker (default 16)"},
    {"tries", 0, "N", "attempts for each file, or each request (default 3)"},
    {"detach", 'd', nullptr, "return when the workers are submitted"}};
constexpr OptionSpec notebook_options[] = {
    {"port", 0, "PORT", "port on this machine (default: any free port)"},
    {"dir", 0, "DIR", "directory of the notebooks (default: the current one)", false,
     Completes::directory},
    {"sleep-after", 0, "T", "suspend the notebook after this time without requests (default 10m)"},
    {"server", 0, "COMMAND",
     "start this server instead of JupyterLab; it gets PORT and JUPYTER_TOKEN as variables"},
    {"stop", 0, nullptr, "stop the notebook"}};

// The options of jobs without those that this command has under the same name.
std::vector<OptionSpec> job_options_without(std::initializer_list<std::string_view> names) {
  std::vector<OptionSpec> out;
  for (const OptionSpec& option : job_options())
    if (std::ranges::find(names, option.name) == names.end())
      out.push_back(option);
  return out;
}
std::span<const OptionSpec> map_job_options() {
  static const auto options = job_options_without({"input", "output", "elastic", "nodes", "procs"});
  return options;
}
std::span<const OptionSpec> notebook_job_options() {
  static const auto options = job_options_without({"nodes", "procs", "elastic", "cwd"});
  return options;
}

// ---- running a module of the package

struct Package {
  std::string wheel;  // the file, under the name that pip expects
  std::string place;  // the directory where it is unpacked
};

Result<Package> keep_wheel(std::string_view content, const std::string& name) {
  const std::string directory =
      fmt::format("{}/sdk/{}", cache_directory(), sha256_hex(content).substr(0, 16));
  BILLOW_TRY_VOID(make_directories(directory, 0700));
  const std::string path = directory + "/" + name;
  if (!file_exists(path))
    BILLOW_TRY_VOID(write_file_atomic(path, content, 0600));
  return Package{path, directory + "/package"};
}

Result<Package> own_package() {
  if (billow_embedded_sdk_wheel().empty())
    return fail(Code::unsupported, "this program was built without the Python package",
                "install it on a machine that has it: pip install HEAD/sdk/…");
  return keep_wheel(billow_embedded_sdk_wheel(),
                    fmt::format("billow-{}-py3-none-any.whl", version()));
}

// Unpacks the wheel, if this is the first time, and runs a module of it.
constexpr const char* start_module = R"(import importlib, os, shutil, sys, zipfile
wheel, place, module = sys.argv[1:4]
if not os.path.isdir(place):
    part = f"{place}.{os.getpid()}"
    zipfile.ZipFile(wheel).extractall(part)
    try:
        os.rename(part, place)
    except OSError:
        shutil.rmtree(part)
sys.path.insert(0, place)
sys.argv = [module, *sys.argv[4:]]
sys.exit(importlib.import_module(module).main())
)";

int run_module(const Parsed& p,
               const Package& package,
               const std::string& module,
               const Json& request) {
  const char* named = std::getenv("BILLOW_PYTHON");
  const std::string python =
      p.has("python") ? p.get("python") : (named && *named ? named : "python3");
  std::vector<std::string> changes = {"BILLOW_PROGRAM=" + executable_dir() + "/billow"};
  if (p.has("head"))
    changes.push_back("BILLOW_HEAD=" + p.get("head"));
  if (p.has("data"))
    changes.push_back("BILLOW_DATA=" + p.get("data"));
  const Status failed = process::replace_this_program(
      {.argv = {python, "-c", start_module, package.wheel, package.place, module, request.dump()},
       .env = process::our_environment(changes),
       .signals = process::Signals::keep_ignored});
  return report({Code::unsupported,
                 fmt::format("{} could not be started: {}", python, failed.error().message),
                 "install Python 3.9 or newer, or name it with --python"});
}

// The options of the command itself, by name; switches are true.
Json own_options(const Parsed& p, std::span<const OptionSpec> options) {
  Json out = Json::object();
  for (const OptionSpec& option : options) {
    if (!p.has(option.name))
      continue;
    if (!option.value) {
      out.set(option.name, true);
    } else if (option.repeats) {
      Json values = Json::array();
      for (const std::string& value : p.all(option.name))
        values.push(value);
      out.set(option.name, std::move(values));
    } else {
      out.set(option.name, p.get(option.name));
    }
  }
  out.set("json", p.has("json"));
  return out;
}

// The options of jobs as words for `billow submit`; an error if one of them is wrong.
Result<Json> job_words(const Parsed& p, std::span<const OptionSpec> options) {
  JobRequest request;
  Json words = Json::array();
  for (const OptionSpec& option : options)
    for (const std::string& value : p.all(option.name)) {
      BILLOW_TRY_VOID(set_option(request, option.name, value));
      words.push(option.value ? fmt::format("--{}={}", option.name, value)
                              : fmt::format("--{}", option.name));
    }
  return words;
}

// ---- the commands

// The wheel of the head that is meant, so that both fit; an Error if no head answers.
Result<Package> package_of_head(const Parsed& p) {
  Client client = BILLOW_TRY(Client::create(connect_options(p)));
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  const std::string name =
      fmt::format("billow-{}-py3-none-any.whl", status["version"].str_or(version()));
  std::string content;
  BILLOW_TRY_VOID(client.stream("/sdk/" + name, [&](std::string_view chunk) {
    content += chunk;
    return content.size() <= wheel_bytes_max;
  }));
  return keep_wheel(content, name);
}

int cmd_sdk_install(const Parsed& p) {
  if (p.has("venv") + p.has("user") + p.has("system") + p.has("target") > 1)
    return report_usage({Code::invalid, "--venv, --user, --system and --target exclude each other",
                         "give one of them, or none for the active environment"});
  auto package = package_of_head(p);
  if (!package && (p.has("head") || !billow_embedded_sdk_wheel().size()))
    return report(package.error());
  if (!package)
    package = own_package();
  if (!package)
    return report(package.error());
  Json request = own_options(p, install_options);
  request.set("wheel", package->wheel);
  return run_module(p, *package, "billow._install", request);
}

int cmd_map(const Parsed& p) {
  const bool endpoint = p.has("endpoint");
  if (!p.has("input") || !p.has("output"))
    return report_usage({Code::invalid, "map needs --input and --output",
                         "for example: billow map --input 'data/*.jsonl' --output results --gpus 1 "
                         "-- python infer.py"});
  if (endpoint != p.operands.empty())
    return report_usage({Code::invalid,
                         endpoint ? "give either --endpoint or a command, not both"
                                  : "map needs --endpoint NAME or a command",
                         "a command reads one file from stdin and writes its results to stdout"});
  for (const char* name : {"workers", "concurrency", "tries"})
    if (p.has(name))
      if (const auto number = parse_int(p.get(name), 1, 1000); !number)
        return report_usage({Code::invalid,
                             fmt::format("--{} {}: use a number from 1 to 1000", name, p.get(name)),
                             ""});
  auto words = job_words(p, map_job_options());
  if (!words)
    return report_usage(words.error());
  const auto package = own_package();
  if (!package)
    return report(package.error());
  Json request = own_options(p, map_options);
  request.set("job", std::move(*words));
  Json command = Json::array();
  for (const std::string& word : p.operands)
    command.push(word);
  request.set("command", std::move(command));
  return run_module(p, *package, "billow._map_command", request);
}

int cmd_notebook(const Parsed& p) {
  if (p.has("port"))
    if (const auto port = parse_int(p.get("port"), 1, 65535); !port)
      return report_usage(
          {Code::invalid, fmt::format("--port {}: use a port from 1 to 65535", p.get("port")), ""});
  auto words = job_words(p, notebook_job_options());
  if (!words)
    return report_usage(words.error());
  const auto package = own_package();
  if (!package)
    return report(package.error());
  Json request = own_options(p, notebook_options);
  request.set("job", std::move(*words));
  return run_module(p, *package, "billow._notebook", request);
}

}  // namespace

void add_python_commands(CommandTable& table) {
  table.push_back(
      {.name = "map",
       .summary = "run a command or an endpoint over many files (batch inference)",
       .example = "billow map --input 'data/*.jsonl' --output results --gpus 1 -- python infer.py\n"
                  "billow map --input 's3://lab/in/*.jsonl' --output s3://lab/out --endpoint llama",
       .run = cmd_map,
       .usage = "[--] [COMMAND [ARG…]]",
       .details = "Each input file is one shard. Workers claim shards; a command gets the file on "
                  "stdin and its stdout becomes the result, an endpoint gets\neach line of a "
                  ".jsonl file (or each other file whole) as a request. The result of a shard is "
                  "written exactly once and complete, under the same\nname. If anything is killed, "
                  "run the same command again: it continues where it stopped. Local paths must be "
                  "visible on the nodes. The job options apply to the\nworkers.",
       .options = {map_options, map_job_options(), python_option},
       .operands = Operands::command,
       .group = "jobs"});
  table.push_back(
      {.name = "notebook",
       .summary = "open JupyterLab in a job, which is suspended while nobody uses it",
       .example = "billow notebook --gpus 1\nbillow notebook --gpus 0.5 --env torch --port 8888\n"
                  "billow notebook --stop",
       .run = cmd_notebook,
       .usage = "",
       .details =
           "Starts the notebook's job, or resumes the one you have, forwards a port of this "
           "machine to it and prints the address with its token.\nWithout requests the job is "
           "suspended: it keeps its memory and releases its GPUs. The next request resumes it. "
           "Ctrl-C suspends it; --stop ends it.\nThe job options apply to its job.",
       .options = {notebook_options, notebook_job_options(), python_option},
       .group = "jobs",
       .prints_json = false});
  table.push_back(
      {.name = "sdk install",
       .summary = "install the Python package of the head's version, without network access",
       .example = "billow sdk install --venv .venv\nbillow sdk install --user",
       .run = cmd_sdk_install,
       .usage = "",
       .details = "Takes the wheel from the head, or from this program if no head answers. "
                  "Installs into the active virtual environment by default; without one, it fails "
                  "and installs nothing.\nThe one dependency, cloudpickle, comes from the "
                  "package index or, without network, from another Python of this machine.",
       .options = {install_options, python_option},
       .group = "other",
       .prints_json = false});
}

}  // namespace billow::client
