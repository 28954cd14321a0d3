// Starting a task: what its supervisor runs, and how a task ends that could not be started.
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "agent/content/file_service.h"
#include "agent/content/project_leftovers.h"
#include "agent/content/volume_source.h"
#include "agent/isolate/look_as_user.h"
#include "agent/isolate/secret_files.h"
#include "agent/isolate/users.h"
#include "agent/reach/keepalive.h"
#include "agent/task/gang.h"
#include "agent/task/order_check.h"
#include "agent/task/redacted.h"
#include "agent/task/simulated_cards.h"
#include "agent/task/task_link.h"
#include "agent/task/task_status.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/model/held_variables.h"
#include "core/model/quota.h"
#include "core/model/surroundings.h"
#include "core/model/system_calls.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"
#include "core/wire/log_record.h"
#include "gpu/topology.h"
#include "process/call_filter_linux.h"

namespace billow::agent {
namespace {

// Of a segment of a log, besides the output: so that a small one, too, holds whole pieces of it.
constexpr std::uint64_t record_heads_bytes = 1024;

// On the node's own file system a secret is shown by mounting a whole directory, at a path that
// does not exist or is empty: mounting over a directory would hide its files. The check runs as the
// job's user, so that it reveals nothing that the user cannot see.
Status add_secret_directory(UserLooks& looks,
                            const SecretFiles::Written& secret,
                            const std::optional<Identity>& user,
                            std::vector<BoundVolume>& mounts) {
  const std::string at = secret.wanted_directory();
  // Mounted without following links (supervise/binds.cpp); /dev/shm may be one.
  std::error_code unknown;
  const auto real = std::filesystem::canonical(secret.directory(), unknown);
  const BoundVolume mount{
      .source = unknown ? secret.directory() : real.native(), .path = at, .read_only = true};
  if (std::find(mounts.begin(), mounts.end(), mount) != mounts.end())
    return {};
  const auto refuse = [&](std::string_view why) {
    return fail(
        Code::conflict,
        fmt::format("secret {} cannot be put at {}: {}. Choose another directory, such as "
                    "/run/secrets/{}, or --secret {}:file, whose path is in ${}",
                    secret.name, secret.wanted, why, secret.name, secret.name, secret.variable()));
  };
  if (at.empty() ||
      std::any_of(mounts.begin(), mounts.end(), [&](const BoundVolume& m) { return m.path == at; }))
    return refuse(fmt::format("{} exists and is not empty", at.empty() ? "/" : at));
  switch (looks.look(user, at)) {
    case Sight::nothing:
    case Sight::empty:
      break;
    case Sight::used:
      return refuse(fmt::format("{} exists and is not empty", at));
    case Sight::closed:
      return refuse(fmt::format("the job's user may not look into the directory above {}", at));
    case Sight::silent:
      return refuse("the file system there does not answer");
  }
  mounts.push_back(mount);
  return {};
}

bool brings_files(const Start& start) {
  return start.env.contains(surroundings::files);
}
std::vector<std::string> stage_words() {
  return {executable_dir() + "/billow", "stage", "--"};
}

// Whether the job asks for more than the jobs of its user get anyway.
bool asks_for_filter(const Surroundings& asked) {
  return asked.seccomp != CallProfile::standard || !asked.refused_calls.empty();
}
// A call that this machine does not have needs no refusal.
std::vector<std::uint32_t> refused_numbers(const Surroundings& asked) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : asked.refused_calls)
    if (const auto number = system_call_number(name))
      numbers.push_back(static_cast<std::uint32_t>(*number));
  return numbers;
}

// Each ends in a zero byte. Like the job's other variables, those of a container do not reach
// Billow's own programs outside it: OPENSSL_CONF, for example, names libraries to load.
std::string secret_variables(const std::vector<GivenSecret>& secrets, bool in_container) {
  std::vector<std::string> variables;
  for (const GivenSecret& secret : secrets)
    if (std::string value; !secret.variable.empty() && base64_decode(secret.value, value))
      variables.push_back(secret.variable + "=" + value);
  if (in_container)
    variables = hold_variables(std::move(variables));
  std::string out;
  for (const std::string& variable : variables)
    out.append(variable).push_back('\0');
  return out;
}

// From the inside out: the job's command, the ranks of a gang, the container. With an image each
// rank has its own container, because Billow's programs are not in the image. An environment is
// mounted once for all ranks.
std::vector<std::string> command_of(const Start& start, const Containers::Prepared* prepared) {
  const std::vector<std::string> enter = {executable_dir() + "/billow", "box", "--"};
  const auto before = [](std::vector<std::string> argv, const std::vector<std::string>& words) {
    argv.insert(argv.begin(), words.begin(), words.end());
    return argv;
  };
  Start inner = start;
  if (const auto numbers = refused_numbers(start.surroundings);
      !numbers.empty() && !(prepared && prepared->plan.root && !prepared->plan.node_root))
    inner.argv = before(
        start.argv, {prepared && prepared->plan.node_root ? container::as_user_path
                                                          : executable_dir() + "/billow-supervise",
                     container::confine_word, container::confinement(0, numbers)});
  if (!prepared)
    return gang_argv(inner);
  // In a root made of the node's directories Billow's programs exist, and nothing of the job may
  // run outside it: there the container is the outermost.
  if (prepared->plan.node_root && brings_files(start))
    return before(before(gang_argv(inner), stage_words()), enter);
  if (!prepared->plan.root || prepared->plan.node_root)
    return before(gang_argv(inner), enter);
  inner.argv = before(inner.argv, enter);
  return gang_argv(inner);
}

}  // namespace

// No account has a colon in its name: such names mean a confined job, which must not become one of
// an ordinary user.
Result<UserRecord> Tasks::account(const std::string& name) const {
  auto found = name.empty() ? current_user() : look_up_user(name);
  const bool missing = !found && found.error().code == Code::not_found;
  if (missing && options_.without_account && name.find(':') == std::string::npos)
    return *options_.without_account;
  return found;
}

// The user a job runs as. A confined job never runs as its owner's account if the agent can prevent
// it.
Result<UserRecord> Tasks::user_of(const Start& start) const {
  if (const std::string owner = wire::confined_for(start); !owner.empty())
    return confined_user(owner);
  return rights_->permitted(BILLOW_TRY(account(start.unix_user)), start.unix_user == "root");
}

Result<Tasks::Granted> Tasks::claim_gpus(const Start& start) {
  Granted out;
  for (const GpuGrant& grant : start.gpus) {
    const auto index = static_cast<std::size_t>(grant.gpu);
    if (index >= options_.gpus.size())
      return fail(Code::conflict, fmt::format("this node has no GPU {}", grant.gpu));
    out.cards.push_back(options_.gpus[index]);
    out.indices.push_back(grant.gpu);
    if (grant.mig_start >= 0)
      out.mig_uuids.push_back(BILLOW_TRY(migs_.claim(start.task, out.cards.back(), grant)));
  }
  return out;
}

void Tasks::describe_gpus(const Start& start, const Granted& granted, Environment& env) {
  for (const auto& [name, value] :
       visibility({.gpus = granted.cards, .mig_uuids = granted.mig_uuids}).env)
    env[name] = value;
  if (start.gpus.empty())
    return;
  std::string indices;
  for (int gpu : granted.indices)
    indices += (indices.empty() ? "" : ",") + std::to_string(gpu);
  env["BILLOW_GPUS"] = indices;
  env["BILLOW_GPU_MILLI"] = std::to_string(start.gpus.front().share.milli);
}

// The job's environment, except its container's; registers it for suspend and checkpoints on the
// way.
Result<Environment> Tasks::environment_of(Starting& s) {
  const Start& start = s.start;
  Environment env = start.env;
  if (s.confined())
    env["HOME"] = s.user.home;
  if (!s.other_root()) {
    env.try_emplace("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    env["HOME"] = s.user.home;
    env["USER"] = env["LOGNAME"] = s.user.name;
  }
  describe_gpus(start, s.granted, env);
  if (!options_.sim_state_dir.empty() && !s.other_root() && !start.gpus.empty())
    add_simulated_smi(start, {s.granted.cards, s.granted.mig_uuids, temporary_.path()}, env);
  if (const std::string hosts = write_hostfile(temporary_.path(), start); !hosts.empty())
    env["BILLOW_HOSTFILE"] = hosts;
  // A job that submits another passes its own environment on.
  for (const char* name :
       {"BILLOW_VAULT_SOCKET", "BILLOW_JOB_TOKEN", "BILLOW_TASK_KEY", "BILLOW_CHECKPOINT_DIR",
        wire::confined_variable, container::plan_variable})
    env.erase(name);
  // Without root nothing takes the GPU memory of other accounts.
  Start prepared = start;
  prepared.suspendable = start.suspendable && !rights_->of_helper();
  s.plan = suspender_.prepare(prepared, s.granted.cards, !options_.sim_state_dir.empty(), env);
  if (rights_->of_helper() && s.plan.gpus)
    s.plan.unsuspendable = "this node's agent is not root";
  s.plan.mig_uuids = s.granted.mig_uuids;
  if (s.spec.identity) {
    s.plan.other_user = true;
    s.plan.uid = s.spec.identity->uid;
    s.plan.gid = s.spec.identity->gid;
    s.plan.groups = s.spec.identity->groups;
  }
  BILLOW_TRY_VOID(checkpointer_.prepare(s.plan, start.task, start.job, temporary_.path(), env));
  BILLOW_TRY_VOID(
      add_file_variables(start, {options_.files_socket, cache_, options_.kept_dir}, env));
  if (rights_->of_helper())  // it would be the agent's, and the job could not write it
    env.erase("BILLOW_CACHE");
  if (!options_.keepalive_socket.empty())
    env[net::keepalive_variable] = options_.keepalive_socket;
  return env;
}

// A /tmp of the task's own, unless the machine's owner wants the node's. Directories below /tmp
// that the job was given stay visible: its own, and those of Billow.
Status Tasks::make_private_tmp(Starting& s, const Environment& env) {
  if (s.prepared || !s.spec.identity || s.start.bare || s.rules.private_tmp == false)
    return {};
  if (!sandbox_.makes_private_tmp() && !s.rules.private_tmp)
    return {};
  if (!sandbox_.makes_private_tmp())
    return fail(Code::unsupported,
                "this node's policy gives jobs a private /tmp, and its agent may not mount one",
                "run the agent as root with CAP_SYS_ADMIN, or remove `tmp private`");
  s.spec.private_tmp = BILLOW_TRY(rights_->make_private_tmp(s.start.task, s.user));
  s.spec.shown = {s.spec.cwd,        s.user.home,    work_.path(),     cache_.path(),
                  temporary_.path(), memory_.path(), executable_dir(), options_.sim_state_dir,
                  "/tmp/nvidia-mps"};
  for (const BoundVolume& volume : s.start.volumes)
    s.spec.shown.push_back(volume.source);
  for (const char* variable :
       {"BILLOW_CHECKPOINT_DIR", "BILLOW_CHECKPOINT", "BILLOW_CACHE", "TMPDIR"})
    if (const auto found = env.find(variable); found != env.end())
      s.spec.shown.push_back(found->second);
  for (const char* variable :
       {"BILLOW_VAULT_SOCKET", files_socket_variable, net::keepalive_variable})
    if (const auto found = env.find(variable); found != env.end())
      s.spec.shown.push_back(found->second.substr(0, found->second.rfind('/')));
  std::erase_if(s.spec.shown, [](const std::string& path) { return !path.starts_with('/'); });
  for (std::string& path : s.spec.shown)
    path = std::filesystem::path(path).lexically_normal().native();
  return {};
}

// Command lines of other users are nobody's business. Containers have a /proc of their own.
void Tasks::hide_processes(Starting& s) const {
  s.spec.private_proc = !s.prepared && s.spec.identity && !s.start.bare && s.rules.private_proc &&
                        sandbox_.hides_processes();
}

// Environment, secrets, volumes and, for a job with an image, its container.
Status Tasks::furnish(Starting& s) {
  Environment env = BILLOW_TRY(environment_of(s));
  BILLOW_TRY_VOID(make_network(s, env));
  const auto secrets = BILLOW_TRY(rights_->write_secrets(s.start, s.user));
  std::vector<BoundVolume> mounts = s.start.volumes;
  for (const SecretFiles::Written& secret : secrets) {
    env[secret.variable()] = !secret.wanted.empty() ? secret.wanted
                             : s.other_root()       ? SecretFiles::usual_place(secret.name)
                                                    : secret.file;
    if (!s.other_root() && !secret.wanted.empty())
      BILLOW_TRY_VOID(add_secret_directory(looks_, secret, s.spec.identity, mounts));
  }
  for (const auto& [name, value] : env)
    s.spec.env.push_back(name + "=" + value);
  s.spec.env.push_back(task_key(owner_, s.start.task));
  if (s.prepared) {
    std::vector<std::uint32_t> numbers;
    for (const GpuGrant& grant : s.start.gpus)
      numbers.push_back(card_index(grant));
    Containers::InMemory in_memory{.secrets = secrets, .shared = {}};
    if (s.other_root() && Containers::works_together(s.start))
      in_memory.shared =
          BILLOW_TRY(secret_files_.make_shared_memory(memory_, s.start.task, s.user));
    if (s.spec.identity || s.other_root() || asks_for_filter(s.start.surroundings))
      in_memory.refused_calls = refused_calls(s.start.surroundings);
    // An image has process ids of its own.
    if (s.spec.identity && !s.other_root())
      in_memory.refused_calls |= own_domain();
    if (s.confined())
      in_memory.refused_calls |= process::no_namespaces | process::no_outside_peers;
    if (s.strict())
      in_memory.refused_calls |= process::strict_rules;
    in_memory.refused_numbers = refused_numbers(s.start.surroundings);
    if (s.network)
      in_memory.network = s.network->inode;
    if (s.network && !s.network->address.empty())
      in_memory.hosts = hosts_file(env.at("BILLOW_PROJECT"));
    BILLOW_TRY_VOID(containers_.wrap_command(*s.prepared, s.start, numbers, in_memory, s.spec));
  }
  // A job that has the whole node has nothing between it and the hardware.
  if (options_.sim_state_dir.empty() && !s.start.bare) {
    std::vector<std::vector<std::string>> files;
    for (const GpuInfo& gpu : options_.gpus)
      files.push_back(gpu.device_files);
    sandbox_.apply_to(s.spec, device_nodes(files), s.granted.indices);
  }
  BILLOW_TRY_VOID(make_private_tmp(s, env));
  hide_processes(s);
  // In a container the runtime mounts them.
  return s.other_root() ? Status{} : sandbox_.bind_to(s.spec, mounts);
}

// A directory with most of the job's files in it, if an earlier job left one. A confined job takes
// and leaves none: what it tells of its files is not to be believed by jobs of its owner.
Result<std::string> Tasks::work_dir_of(const Starting& s) {
  const Start& start = s.start;
  if (!brings_files(start))
    return rights_->make_work_dir(start.task, s.user);
  const auto tree = files::parse_digest(start.env.at(surroundings::files));
  const auto project = start.env.find("BILLOW_PROJECT");
  std::string path = work_.below(std::to_string(start.task.value));
  if (options_.spares && !rights_->of_helper() && tree && project != start.env.end() &&
      !s.confined() &&
      options_.spares->take({s.user.identity.uid, start.owner, project->second}, *tree, start.task,
                            path))
    return path;
  return rights_->make_work_dir(start.task, s.user);
}

// Whose process it is, what it runs and in which directory.
Status Tasks::specify_command(Starting& s) {
  const Start& start = s.start;
  TaskSpec& spec = s.spec;
  spec.argv = command_of(start, s.prepared);
  spec.cwd = start.cwd.empty() ? "/" : start.cwd;
  s.user = BILLOW_TRY(user_of(start));
  BILLOW_TRY_VOID(rights_->reserve(start.task, s.user, limits_of(start), brings_files(start)));
  for (BoundVolume& volume : s.start.volumes)
    volume.source = BILLOW_TRY(volume_source(volume.source, s.user.identity.uid));
  if (brings_files(start) && options_.files_socket.empty())
    return fail(Code::unavailable, "files cannot follow a job to this node: see the agent's log");
  // A confined job never begins in a directory of its user.
  if (brings_files(start) || s.confined())
    spec.cwd = BILLOW_TRY(work_dir_of(s));
  if (s.confined())
    s.user.home = spec.cwd;
  if (brings_files(start) && !(s.prepared && s.prepared->plan.node_root)) {
    const auto words = stage_words();
    spec.argv.insert(spec.argv.begin(), words.begin(), words.end());
  }
  return {};
}

// What the process may not do.
Status Tasks::specify_rights(Starting& s) {
  const Surroundings& surroundings = s.start.surroundings;
  TaskSpec& spec = s.spec;
  if (s.confined() && !s.prepared)
    return fail(Code::internal, "a confined job was to run without a container");
  const UserRecord self = BILLOW_TRY(current_user());
  const bool other_user = s.user.identity.uid != self.identity.uid;
  if (other_user)
    spec.identity = s.user.identity;
  // What makes a container needs namespaces; its command is confined when it is in it.
  const bool filtered = !s.prepared && (other_user || asks_for_filter(surroundings));
  if (filtered)
    spec.refused_calls = refused_calls(surroundings) | (other_user ? own_domain() : 0);
  spec.no_new_privs = other_user || filtered;
  return {};
}

// Its terminal, its log, and when it ends.
static void specify_run(const Start& start, SteadyTime paid_until, TaskSpec& spec) {
  if (start.pty)
    spec.terminal = TerminalSize{start.rows, start.cols};
  spec.stdin_open = start.use_stdin;
  if (const auto output = start.env.find(wire::output_variable); output != start.env.end())
    spec.one_stream = output->second == wire::output_merged;
  if (const auto most = start.env.find(wire::log_limit_variable); most != start.env.end())
    if (const auto bytes = parse_int(most->second, limits::task_log_bytes_min, INT64_MAX))
      spec.log_segment_bytes =
          static_cast<std::uint64_t>(*bytes) / spec.log_segments_max + record_heads_bytes;
  spec.time_limit = start.time_limit;
  spec.paid_until = paid_until;
  // A fenced task must end soon after its fence: the head relies on it.
  spec.stop_grace =
      start.fenced ? std::min(start.stop_grace, limits::fence_grace) : start.stop_grace;
}

// What the supervisor is to run: the command, its user and directory, its GPUs, variables and
// mounts (furnish), its terminal, log and deadlines, and its control group (limit). Later steps
// need earlier ones: the directory belongs to the user, and the variables name directory and GPUs.
Status Tasks::specify(Starting& s, SteadyTime paid_until) {
  BILLOW_TRY_VOID(check_system_calls(s.start.surroundings.refused_calls));
  BILLOW_TRY_VOID(specify_command(s));
  BILLOW_TRY_VOID(specify_rights(s));
  TaskSpec& spec = s.spec;
  // An image has its own directories, and need not have this one.
  if (s.other_root() && !file_exists(spec.cwd))
    spec.cwd = "/";
  s.granted = BILLOW_TRY(claim_gpus(s.start));
  BILLOW_TRY_VOID(furnish(s));
  specify_run(s.start, paid_until, spec);
  BILLOW_TRY_VOID(limit(s));
  s.plan.env = spec.env;
  s.plan.cwd = spec.cwd;
  if (s.prepared)
    spec.env = hold_variables(std::move(spec.env));
  return {};
}

void Tasks::perform(const effect::StartTask& e) {
  for (const GivenSecret& secret : e.start.secrets)
    if (secret.variable.empty() && secret.file.empty())  // the head says here why it has no value
      return end_unstarted(
          e.start.task,
          {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = secret.value});
  // The file server of a volume may be gone: nothing may look at it on this thread then.
  for (const BoundVolume& volume : e.start.volumes)
    if (e.start.volumes.size() <= limits::surroundings_max && !looks_.answers(volume.source))
      return end_unstarted(
          e.start.task,
          {.kind = ExitKind::exec_failed,
           .code = 126,
           .signal = 0,
           .message = fmt::format("the volume {} does not answer: is its file server reachable?",
                                  volume.source)});
  if (const Status sane = check_order(e.start); !sane)
    return refuse(e.start.task, sane.error());
  if (const Status enough = rights_->suffice_for(e.start); !enough)
    return refuse(e.start.task, enough.error());
  if (const Status noted = note_leftovers(options_.kept_dir, e.start);
      !noted)  // files that could not be found again must not be fetched
    return end_unstarted(e.start.task, {.kind = ExitKind::exec_failed,
                                        .code = 125,
                                        .signal = 0,
                                        .message = noted.error().message});
  const auto rules = this->rules();
  if (!rules)
    return refuse(e.start.task, rules.error());
  if (!Containers::needed(e.start) && wire::confined_for(e.start).empty())
    return begin(e, *rules, nullptr);
  const auto user = user_of(e.start);
  if (!user)
    return end_unstarted(
        e.start.task,
        {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = user.error().message});
  if (!Containers::needed(e.start)) {
    const auto prepared = containers_.prepare_confined(e.start, *user);
    return prepared ? begin(e, *rules, &*prepared) : refuse(e.start.task, prepared.error(), 125);
  }
  containers_.prepare(e.start, *user,
                      [this, e, rules = *rules](Result<Containers::Prepared> prepared) {
                        if (prepared)
                          return begin(e, rules, &*prepared);
                        refuse(e.start.task, prepared.error(), 125);
                      });
}

// What the owner says, and whether this node can keep to it: asked before anything is fetched,
// because what is fetched comes from servers that the job's user names.
Result<NodeRules> Tasks::rules() const {
  NodeRules rules;
  if (options_.rules)
    rules = BILLOW_TRY(options_.rules());
  if (rights_->of_helper() && options_.metadata_closed && !rules.metadata_closed)
    return fail(Code::unsupported,
                "jobs must not reach the cloud's metadata service, and the root helper goes by the "
                "node's policy alone",
                "write `metadata closed` into the node's policy");
  if (!rules.metadata_closed)
    rules.metadata_closed = options_.metadata_closed;
  if (*rules.metadata_closed && !rights_->of_helper())
    BILLOW_TRY_VOID(can_close_metadata());
  return rules;
}

// Before its first process. A root helper has done it, as the node's policy says.
Status Tasks::guard(const Starting& starting) {
  if (rights_->of_helper())
    return {};
  const std::string& group = starting.group.v2;
  const NodeRules& rules = starting.rules;
  const Status closed = close_metadata(group);
  if (!closed && *rules.metadata_closed)
    return closed;
  if (!closed)
    log_debug("task {}: {}", starting.start.task.value, closed.error().message);
  return close_replica_port(starting.start.port, rules, group);
}

void Tasks::begin(const effect::StartTask& e,
                  const NodeRules& rules,
                  const Containers::Prepared* prepared) {
  const TaskId id = e.start.task;
  const auto could_not = [&](const Error& error) {
    end_unstarted(
        id, {.kind = ExitKind::exec_failed, .code = 126, .signal = 0, .message = error.message});
  };
  Starting starting{.start = e.start, .prepared = prepared, .rules = rules};
  if (const Status specified = specify(starting, e.ends_at); !specified) {
    // The root helper refuses to prepare what was started before.
    if (rights_->of_helper() && specified.error().code == Code::conflict && dirs_.find(id))
      return log_warn("task {} was started before", id.value);
    return could_not(specified.error());
  }
  const TaskCgroup& group = starting.group;
  if (const Status guarded = guard(starting); !guarded)
    return could_not(guarded.error());
  const auto disk = disk_limit(starting);
  if (!disk)
    return could_not(disk.error());
  const TaskMeta meta{e.start.fenced, e.paid_until,         e.start.gpus, e.start.bare,
                      e.start.port,   input_terms(e.start), *disk};
  // Of a gang the head sets them; otherwise they are a variable of the job.
  const auto gang = e.start.gang ? e.start.env.find("BILLOW_ADDRESSES") : e.start.env.end();
  bool is_new = false;
  auto launched = rights_->launch(
      {.task = id,
       .spec = starting.spec,
       .meta = wire::to_json_text(meta),
       .secrets = secret_variables(e.start.secrets, prepared),
       .redacted = redacted_values(e.start.secrets),
       .network = starting.network ? &*starting.network : nullptr,
       .made = [&] {
         is_new = true;
         count_egress(id, group.v2, gang == e.start.env.end() ? std::string() : gang->second);
         born_here_.insert(id);
       }});
  if (!launched && !is_new && launched.error().code == Code::conflict) {
    // An earlier agent started it, and the core knows it from recovery: this start crossed that.
    log_warn("task {} was started before", id.value);
    return;
  }
  if (!launched) {
    if (is_new)
      (void)all_sent(id, group.v2);
    return could_not(launched.error());
  }
  checkpointer_.began(id, starting.plan);
  suspender_.began(id, std::move(starting.plan));
  watch(id, std::move(*launched));
  Link* l = link(id);
  l->cgroup = group.v2;
  l->uid = starting.user.identity.uid;
  l->gpus = e.start.gpus;
  watch_port(id, e.start.port);
  disk_guard_.watch(id, *disk);
}

void Tasks::perform(const effect::RecordEnd& e) {
  const Status recorded = rights_->record_end(e.status.task, record_of(e.status));
  if (!recorded)
    log_warn("task {}: {}", e.status.task.value, recorded.error().message);
}

}  // namespace billow::agent
