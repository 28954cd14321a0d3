// doctor: whether this machine is fit for a head and its jobs, and what to do where it is not.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/device_guard.h"
#include "agent/isolate/escape_tries.h"
#include "agent/isolate/network_guard.h"
#include "agent/isolate/replica_guard.h"
#include "agent/isolate/sandbox.h"
#include "agent/network/job_network.h"
#include "agent/node/node_policy.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/server_commands.h"
#include "container/plan.h"
#include "core/wire/codec.h"
#include "gpu/describe.h"
#include "net/address.h"
#include "process/call_filter_linux.h"
#include "process/capture.h"

namespace billow::client {
namespace {

constexpr OptionSpec doctor_options[] = {
    {"sim", 0, "SPEC", "check simulated GPUs instead of the driver's"},
    {"isolation", 0, nullptr,
     "try to break out of a job as another user's job might, with and without --isolation "
     "strict, and show what was refused"},
    {"inside", 0, nullptr,
     "with --isolation: try it from inside the job in which this command runs"},
};

struct Finding {
  const char* mark;  // "ok", "note", "problem"
  std::string text;
  std::string advice;
};

void check_gpus(std::vector<Finding>& out, const std::string& sim) {
  GpuBackendOptions options;
  options.sim = sim;
  for (const GpuFinding& finding : diagnose_gpus(options))
    out.push_back({finding.ok ? "ok" : "note", finding.text,
                   finding.ok || !finding.hint.empty()
                       ? finding.hint
                       : "try `billow up --sim 8xH100` to use simulated GPUs"});
}

// What the machine's owner has written; a file that cannot be read stops every job.
Finding temporary_files(const agent::Sandbox& sandbox) {
  const char* named = std::getenv(agent::node_policy_variable);
  const auto policy = agent::load_node_policy(named ? named : "");
  if (!policy)
    return {"problem", "node policy: " + policy.error().message, policy.error().hint};
  if (policy->rules.private_tmp == false)
    return {"note", "temporary files: plain jobs of all users share /tmp and /dev/shm",
            "remove `tmp shared` from the node's policy to separate them"};
  if (sandbox.makes_private_tmp())
    return {"ok", "temporary files: plain jobs have a /tmp and a /dev/shm of their own", ""};
  return {"note",
          "temporary files: plain jobs of all users share /tmp and /dev/shm, because this machine "
          "does not permit mounts",
          "run the agent as root with CAP_SYS_ADMIN"};
}

void check_node(std::vector<Finding>& out) {
  const agent::Cgroups groups = agent::Cgroups::detect({});
  std::vector<std::string> lines = groups.report();
  lines.push_back(agent::describe_device_guard(groups.tracks(), groups.denies_devices()));
  lines.push_back(agent::describe_network_guard(groups.tracks()));
  lines.push_back(agent::describe_replica_guard(groups.tracks()));
  lines.push_back(agent::describe_job_networks());
  for (const std::string& line : lines) {
    const bool fine = line.find("not available") == std::string::npos;
    out.push_back({fine ? "ok" : "note", line, ""});
  }
  const agent::Sandbox sandbox = agent::Sandbox::detect();
  if (::geteuid() == 0)
    out.push_back(temporary_files(sandbox));
  out.push_back(
      {sandbox.kind() == agent::SandboxKind::variables_only ? "note" : "ok", sandbox.report(), ""});
  if (::geteuid() == 0)
    out.push_back({sandbox.hides_processes() ? "ok" : "note", sandbox.report_processes(), ""});
  const std::string supervise = executable_dir() + "/billow-supervise";
  if (::access(supervise.c_str(), X_OK) == 0)
    out.push_back({"ok", "supervisor: " + supervise, ""});
  else
    out.push_back({"problem",
                   "billow-supervise is not in the directory of billow (" + executable_dir() + ")",
                   "install the whole bundle, or build with ./dev build"});
  if (::getuid() == 0)
    out.push_back(
        {"note",
         "running as root: jobs run as the user who submitted them; jobs of root run as root", ""});
}

void check_disk(std::vector<Finding>& out, const std::string& data_dir) {
  std::string path = data_dir;
  while (!file_exists(path) && path.size() > 1)
    path = path.substr(0, std::max<std::size_t>(1, path.rfind('/')));
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) {
    out.push_back({"problem", "the data directory " + data_dir + " cannot be read",
                   "choose another with --data"});
    return;
  }
  const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  const bool low = free < (1ull << 30);
  out.push_back({low ? "problem" : "ok",
                 fmt::format("disk: {} free for {}", format_bytes(free), data_dir),
                 low ? "free some space: at least 1 GiB" : ""});
  if (::access(path.c_str(), W_OK) != 0)
    out.push_back({"problem", fmt::format("this user cannot write to {}", path),
                   "choose another with --data"});
}

void check_head(std::vector<Finding>& out, const std::string& data_dir) {
  std::string where;
  if (answers(data_dir, where)) {
    out.push_back({"ok", "head: running at " + where, ""});
    return;
  }
  out.push_back({"note", "head: not running",
                 "start it with `billow up`, or just use `billow run …`, which starts one"});
  const auto address = net::parse_address("127.0.0.1:7070");
  const auto listener = net::listen_on(*address);
  if (listener)
    out.push_back({"ok", "port 7070 is free", ""});
  else
    out.push_back({"note", "port 7070 is used by another program",
                   "use `billow up --listen 127.0.0.1:7071`; a head started in the background "
                   "chooses a free port"});
}

// A job with strict isolation, made as the agent makes it, that tries to get out.
Result<process::Output> run_behind_the_wall(const std::string& store) {
  process::Spawn request;
  if (::geteuid() == 0) {
    constexpr std::uint32_t nobody = 65534;
    request.identity = process::Identity{nobody, nobody, {}};
    if (::chown(store.c_str(), nobody, nobody) != 0)
      return fail_errno(store, errno);
  }
  container::Plan plan;
  plan.key = "doctor";
  plan.store = store;
  plan.root = plan.node_root = plan.no_network = plan.confined = plan.strict = true;
  plan.refused_calls = process::strict_rules;
  const std::string program = executable_dir() + "/billow";
  request.argv = {program, "box", "--", program, "doctor", "--isolation", "--inside", "--json"};
  request.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                 fmt::format("{}={}", container::plan_variable, wire::to_json_text(plan))};
  request.cwd = "/";
  request.whole_tree = true;
  request.deadline = system_clock().steady() + seconds(60);
  return process::capture(std::move(request));
}

void check_wall(std::vector<Finding>& out) {
  std::string store = "/var/tmp/billow-doctor-XXXXXX";
  if (!::mkdtemp(store.data()))
    return out.push_back(
        {"note",
         fmt::format("strict isolation cannot be tried: {}: {}", store, strerrordesc_np(errno)),
         ""});
  const auto ran = run_behind_the_wall(store);
  if (const Status gone = remove_tree(store); !gone)
    out.push_back({"note", gone.error().message, ""});
  const auto document = ran ? parse_json(ran->out) : Result<Json>(pass(ran.error()));
  if (!document || document->at("findings").items().empty()) {
    const std::string why = ran ? std::string(trim(ran->err)) : ran.error().message;
    out.push_back({"note", "jobs with --isolation strict cannot run here: " + why,
                   "see docs/access.md, \"Strict isolation\""});
    return;
  }
  for (const Json& one : (*document)["findings"].items()) {
    const bool held = one["level"].str_or("") == "ok";
    out.push_back({held ? "ok" : "problem", fmt::format("strict: {}", one["text"].str_or("")),
                   held ? "" : "see docs/access.md"});
  }
}

void check_isolation(std::vector<Finding>& out, bool inside) {
  const auto tries = inside ? agent::try_escapes_from_here() : agent::try_escapes();
  if (!tries) {
    out.push_back({"problem", "isolation cannot be checked: " + tries.error().message, ""});
    return;
  }
  for (const agent::EscapeTry& one : *tries)
    if (one.held)
      out.push_back({"ok", fmt::format("refused: {} ({})", one.name, one.answer), ""});
    else
      out.push_back(
          {"problem", "a job can " + one.name, one.why.empty() ? "see docs/access.md" : one.why});
  if (!inside)
    check_wall(out);
}

int cmd_doctor(const Parsed& parsed) {
  std::vector<Finding> findings;
  const auto meant = meant_data_directory(parsed.get("data"));
  if (!meant)
    return report(meant.error());
  const std::string data_dir = *meant;
  if (parsed.has("inside") && !parsed.has("isolation"))
    return report_usage({Code::invalid, "--inside needs --isolation", ""});
  if (!parsed.has("inside")) {
    check_gpus(findings, parsed.get("sim"));
    check_node(findings);
    check_disk(findings, data_dir);
    check_head(findings, data_dir);
  }
  if (parsed.has("isolation"))
    check_isolation(findings, parsed.has("inside"));
  bool problem = false;
  Json list = Json::array();
  for (const Finding& f : findings) {
    problem = problem || std::string_view(f.mark) == "problem";
    if (parsed.has("json")) {
      list.push(Json::object({{"level", f.mark}, {"text", f.text}, {"advice", f.advice}}));
      continue;
    }
    const char* sign = std::string_view(f.mark) == "ok"     ? "✓"
                       : std::string_view(f.mark) == "note" ? "·"
                                                            : "✗";
    print(fmt::format("{} {}\n", sign, f.text));
    if (!f.advice.empty())
      print(fmt::format("    → {}\n", f.advice));
  }
  if (parsed.has("json"))
    print_json(Json::object({{"ok", !problem}, {"findings", std::move(list)}}));
  return problem ? 1 : 0;
}

}  // namespace

bool answers(const std::string& data_dir, std::string& where) {
  auto client = Client::create({.head = "", .data = data_dir, .may_start = false});
  if (!client)
    return false;
  const auto status = client->get("/v1/status");
  if (!status)
    return false;
  const auto& addresses = (*status)["addresses"].items();
  where = addresses.empty() ? std::string((*status)["socket"].str_or(""))
                            : std::string(addresses.front().str_or(""));
  return true;
}

void add_doctor_commands(CommandTable& table) {
  table.push_back(
      {.name = "doctor",
       .summary = "check driver, GPUs, control groups, disk and ports, and suggest fixes",
       .example = "billow doctor",
       .run = cmd_doctor,
       .options = {doctor_options},
       .group = "head"});
}

}  // namespace billow::client
