// Slurm's commands and variables, and what they are called here.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/text.h"
#include "client/frame/slurm.h"

namespace billow::client {

namespace {

// Slurm's variables, and those that have the same value here.
const std::map<std::string_view, std::string_view>& variables() {
  static const std::map<std::string_view, std::string_view> ours = {
      {"SLURM_JOB_ID", "BILLOW_JOB_ID"},
      {"SLURM_JOBID", "BILLOW_JOB_ID"},
      {"SLURM_JOB_NAME", "BILLOW_JOB_NAME"},
      {"SLURM_ARRAY_TASK_ID", "BILLOW_ARRAY_INDEX"},
      {"SLURM_ARRAY_TASK_COUNT", "BILLOW_ARRAY_COUNT"},
      {"SLURM_ARRAY_TASK_MIN", "BILLOW_ARRAY_MIN"},
      {"SLURM_ARRAY_TASK_MAX", "BILLOW_ARRAY_MAX"},
      {"SLURM_ARRAY_JOB_ID", "BILLOW_ARRAY_ID"},
      {"SLURM_PROCID", "RANK"},
      {"SLURM_LOCALID", "LOCAL_RANK"},
      {"SLURM_NTASKS", "WORLD_SIZE"},
      {"SLURM_NODEID", "NODE_RANK"},
      {"SLURM_NNODES", "NNODES"},
      {"SLURM_JOB_NUM_NODES", "NNODES"},
      {"SLURM_JOB_NODELIST", "BILLOW_NODES"},
      {"SLURM_NODELIST", "BILLOW_NODES"},
      {"SLURM_SUBMIT_DIR", "PWD"},
  };
  return ours;
}

// The word after a command's `srun`; nothing where the line has none.
std::optional<std::string_view> after_srun(std::string_view command) {
  std::size_t at = command.starts_with("srun ") ? 0 : command.find(" srun ");
  if (at == command.npos)
    return std::nullopt;
  return trim(command.substr(command.find("srun ", at) + 4));
}

// Whether srun's options, up to its command, change nothing here: where each process of the job
// runs the script, srun is the command itself.
bool is_plain_srun(std::string_view rest) {
  constexpr std::string_view harmless[] = {"-K",         "-l",
                                           "-Q",         "-u",
                                           "--cpu-bind", "--distribution",
                                           "--gpu-bind", "--hint",
                                           "--label",    "--kill-on-bad-exit",
                                           "--mem-bind", "--mpi",
                                           "--quiet",    "--unbuffered"};
  for (const std::string& word : split(rest, ' ')) {
    if (!word.starts_with('-'))
      return word.empty() ? false : true;
    const std::string name = word.substr(0, word.find('='));
    const bool known = std::ranges::find(harmless, name) != std::end(harmless);
    // "--mpi pmix": its value would be taken for the command.
    const bool takes_value =
        name.ends_with("-bind") || name == "--mpi" || name == "--hint" || name == "--distribution";
    if (word != "--export=ALL" && (!known || (takes_value && name == word)))
      return false;
  }
  return false;
}

// `scontrol show hostnames`, by which scripts find the first node.
constexpr std::string_view hostnames_function =
    "scontrol() { case \"$1 $2\" in \"show hostname\"*) echo \"${3:-$BILLOW_NODES}\" | tr , "
    "'\\n';; *) echo \"scontrol $*: not available here\" >&2; return 1;; esac; }; ";

}  // namespace

std::string slurm_prelude(std::string_view script) {
  std::string out;
  for (const auto& [slurm, here] : variables())
    out += fmt::format("[ -z \"${{{1}+x}}\" ] || export {0}=\"${1}\"; ", slurm, here);
  out += "export SLURM_RESTART_COUNT=$((${BILLOW_ATTEMPT:-1} - 1)); ";
  if (script.find("scontrol show hostname") != script.npos)
    out += hostnames_function;
  bool used = false;
  for (const std::string& line : split(script, '\n'))
    if (const auto next = after_srun(trim(line)); next && !trim(line).starts_with('#')) {
      used = true;
      if (!is_plain_srun(*next))
        return out;  // its options would be lost
    }
  if (used)
    out += "srun() { while case \"$1\" in -*) true;; *) false;; esac; do shift; done; \"$@\"; }; ";
  return out;
}

std::vector<std::string> slurm_remains(std::string_view script, bool prepared) {
  std::map<std::string, std::string> found;
  for (const std::string& line : split(script, '\n')) {
    const std::string_view command = trim(line);
    if (command.starts_with('#'))
      continue;
    if (const auto next = after_srun(command); next && (!prepared || !is_plain_srun(*next)))
      found["srun"] =
          "the command itself, without srun's options: --nodes and --procs start it on every node "
          "and process";
    for (auto at = command.find("SLURM_"); at != command.npos;
         at = command.find("SLURM_", at + 1)) {
      std::size_t end = at;
      while (end < command.size() &&
             (std::isalnum(static_cast<unsigned char>(command[end])) || command[end] == '_'))
        ++end;
      const std::string_view name = command.substr(at, end - at);
      const auto known = variables().find(name);
      if (known == variables().end() && !(prepared && name == "SLURM_RESTART_COUNT"))
        found[std::string(name)] = "not set";
      else if (!prepared)
        found[std::string(name)] = "$" + std::string(known->second);
    }
  }
  std::vector<std::string> out;
  for (const auto& [name, here] : found)
    out.push_back(fmt::format("the script uses {}; here: {}", name, here));
  return out;
}

std::string slurm_states(std::string_view states) {
  static const std::map<std::string_view, std::string_view> ours = {
      {"bf", "failed"},
      {"boot_fail", "failed"},
      {"ca", "stopped"},
      {"cancelled", "stopped"},
      {"cd", "succeeded"},
      {"completed", "succeeded"},
      {"cf", "running"},
      {"configuring", "running"},
      {"cg", "running"},
      {"completing", "running"},
      {"deadline", "failed"},
      {"dl", "failed"},
      {"f", "failed"},
      {"nf", "lost"},
      {"node_fail", "lost"},
      {"oom", "failed"},
      {"out_of_memory", "failed"},
      {"pd", "queued,held"},
      {"pending", "queued,held"},
      {"pr", "queued,suspended"},
      {"preempted", "queued,suspended"},
      {"r", "running"},
      {"s", "suspended"},
      {"timeout", "failed"},
      {"to", "failed"},
  };
  std::vector<std::string> here;
  bool slurm = false;
  for (const std::string& state : split(states, ',')) {
    const auto found = ours.find(lower(state));
    slurm = slurm || found != ours.end();
    here.push_back(found == ours.end() ? state : std::string(found->second));
  }
  return slurm ? fmt::format("these are Slurm's states; here: -s {}", join(here, ","))
               : std::string();
}

namespace {

// "squeue -j 12 -t PD": what its options ask for.
std::string queue_command(const std::vector<std::string>& args) {
  std::string ps = "billow ps";
  for (std::size_t i = 1; i + 1 < args.size(); ++i) {
    if (args[i] == "-j" || args[i] == "--job" || args[i] == "--jobs")
      return fmt::format("use `billow describe {0}`, or `billow explain {0}` while it waits",
                         args[i + 1]);
    if (args[i] == "-u" || args[i] == "--user")
      ps += " -u " + args[i + 1];
    if (args[i] == "-n" || args[i] == "--name")
      ps += " -n " + args[i + 1];
    if (args[i] == "-t" || args[i] == "--states") {
      const std::string here = slurm_states(args[i + 1]);
      const auto from = here.find("-s ");
      ps += " " + (from == here.npos ? "-s " + args[i + 1] : here.substr(from));
    }
  }
  return fmt::format("use `{}`", ps);
}

}  // namespace

std::string slurm_command(const std::vector<std::string>& args) {
  constexpr std::string_view hold_text =
      "a waiting job cannot be held: stop it and submit it again, with --after JOB or as a "
      "schedule; `billow suspend JOB` suspends one that runs";
  constexpr std::string_view release_text =
      "`billow resume JOB` resumes a suspended job; `billow explain JOB` says what a held one "
      "waits for";
  static const std::map<std::string_view, std::string_view> ours = {
      {"hold", hold_text},
      {"release", release_text},
      {"requeue", "use `billow rerun JOB`"},
      {"sacct", "use `billow ps -a`, or `billow cost --by job` for what jobs cost"},
      {"sacctmgr", "use `billow project` and `billow user`"},
      {"salloc", "use `billow shell --gpus 1`: a shell on a node"},
      {"sattach", "use `billow attach JOB`"},
      {"sbatch", "use `billow submit job.sh`: #SBATCH lines are translated"},
      {"sbcast", "use `billow cp FILE JOB:`, or --sync"},
      {"scancel", "use `billow stop JOB`"},
      {"scontrol", "use `billow describe JOB`, `billow nodes` or `billow pool list`"},
      {"scrontab", "use `billow schedule add`"},
      {"sdiag", "use `billow status`"},
      {"sinfo", "use `billow nodes`"},
      {"sprio", "use `billow explain JOB`"},
      {"squeue", "use `billow ps`"},
      {"sreport", "use `billow cost`"},
      {"srun", "use `billow run --gpus 1 -- COMMAND`"},
      {"sshare", "use `billow project list`"},
      {"sstat", "use `billow describe JOB` or `billow top`"},
      {"strigger", "use `billow webhook add`"},
      {"sview", "use `billow top` or `billow dashboard`"},
  };
  static const std::map<std::string_view, std::string_view> control = {
      {"create", "use `billow reserve`"},
      {"hold", hold_text},
      {"ping", "use `billow status`"},
      {"reboot", "use `billow drain NODE`, then restart it"},
      {"release", release_text},
      {"requeue", "use `billow rerun JOB`"},
      {"resume", "use `billow resume JOB`"},
      {"suspend", "use `billow suspend JOB`"},
      {"top", "submit the job with --priority N"},
      {"update",
       "use `billow drain NODE` and `billow undrain NODE` for nodes; a job keeps its options: stop "
       "it "
       "and submit it again"},
  };
  if (args.empty())
    return {};
  if (args[0] == "scontrol" && args.size() > 1) {
    if (const auto found = control.find(args[1]); found != control.end())
      return std::string(found->second);
    const std::string what = args[1] == "show" && args.size() > 2 ? args[2] : "";
    if (what.starts_with("job"))
      return fmt::format("use `billow describe {}`", args.size() > 3 ? args[3] : "JOB");
    if (what.starts_with("node"))
      return "use `billow nodes`";
    if (what.starts_with("part"))
      return "there are no partitions; use `billow pool list`";
    if (what.starts_with("res"))
      return "use `billow reserve list`";
  }
  if (args[0] == "squeue" || (args[0] == "sacct" && args.size() > 2))
    return queue_command(args);
  const auto found = ours.find(args[0]);
  return found == ours.end() ? std::string() : std::string(found->second);
}

}  // namespace billow::client
