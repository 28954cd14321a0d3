// What a task gets before it starts: whose it is, its control groups and directories, and the
// rights it does not have. Nothing of this is the agent's choice.
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "agent/isolate/device_guard.h"
#include "base/log.h"
#include "privileged/helper/helper.h"
#include "process/call_filter_linux.h"
#include "supervise/spec.h"

namespace billow::privileged {
namespace {

constexpr std::size_t prepared_max = 4096;
constexpr std::uint32_t always_refused =
    process::no_kernel_doors | process::no_namespaces | process::own_domain;
// Of the filters that exist, those that only take rights away from the job itself.
constexpr std::uint32_t may_be_refused = always_refused | process::no_privileged_files |
                                         process::no_rare_calls | process::no_outside_peers |
                                         process::no_capabilities | process::no_machine_events;

std::string tmp_name(TaskId task) {
  return std::to_string(task.value) + ".tmp";
}

}  // namespace

// Root is refused whatever the policy says of it: which Billow user a job belongs to is only the
// agent's word. The agent's own account would let a job speak to this helper.
Result<agent::UserRecord> Helper::permitted(std::uint32_t uid,
                                            const agent::NodePolicy& policy) const {
  if (uid == 0)
    return fail(Code::forbidden, "jobs do not run as root on a node whose agent is not root",
                "map the Billow user to an ordinary account, or run this job on another node");
  if (uid == options_.agent_uid)
    return fail(Code::forbidden, "jobs do not run as the account of the agent",
                "map the Billow user to another account");
  agent::UserRecord user = BILLOW_TRY(agent::look_up_uid(uid));
  BILLOW_TRY_VOID(agent::check_policy(policy, "", user));
  // Who is in the agent's group reads the logs of all jobs.
  std::erase(user.identity.groups, options_.agent_gid);
  if (user.identity.gid == options_.agent_gid)
    return fail(Code::forbidden,
                fmt::format("the group of account {} is that of the agent", user.name),
                "give the agent a group of its own");
  return user;
}

Result<Reply> Helper::prepare(const Request& request) {
  const TaskId task(request.task);
  const agent::NodePolicy policy = BILLOW_TRY(agent::load_node_policy(options_.policy_file));
  if (policy.strict_only)
    return fail(Code::unsupported,
                "this node's policy demands strict isolation, which an agent without root does not "
                "offer",
                "run the agent as root (billow-node.service)");
  if (policy.rules.disk_bytes.value_or(0) > 0)
    return fail(Code::unsupported,
                "this node's policy limits the disk of jobs, which an agent without root does not "
                "offer",
                "remove the line `disk`, or run the agent as root (billow-node.service)");
  Prepared prepared{.user = BILLOW_TRY(permitted(request.uid, policy)),
                    .group = {},
                    .rules = policy.rules,
                    .tmp = {},
                    .memory = {}};
  const auto found = dirs_.find(task);
  if (found || found.error().code != Code::not_found)
    return fail(Code::conflict, fmt::format("task {} was started on this node before", task.value));
  if (prepared_.size() >= prepared_max)
    return fail(Code::exhausted,
                fmt::format("{} tasks are prepared and not started", prepared_max));
  BILLOW_TRY_VOID(clear(task));  // what an earlier attempt made
  const agent::CgroupLimits limits{
      .cpu_milli = request.cpu_milli,
      .mem_mib = request.mem_mib,
      .pids_max = request.pids_max > 0 ? request.pids_max : agent::default_processes_max()};
  prepared.group = BILLOW_TRY(cgroups_.create(task, limits));
  BILLOW_TRY_VOID(guard(prepared));
  BILLOW_TRY_VOID(make_tmp(task, prepared));
  Reply reply;
  reply.tmp = prepared.tmp;
  if (request.work) {
    const std::string name = std::to_string(task.value);
    BILLOW_TRY(work_.directory({.relative = name,
                                .mode = 0700,
                                .owner = prepared.user.identity,
                                .existing = agent::OwnPlace::If::exists_fail}));
    reply.work = work_.below(name);
  }
  prepared_.insert_or_assign(task.value, std::move(prepared));
  return reply;
}

// From the cloud's metadata service, as the policy says.
Status Helper::guard(const Prepared& prepared) const {
  Status closed;
  if (!network_guard_)
    closed = pass(network_guard_.error());
  else if (prepared.group.v2.empty())
    closed = fail(Code::unsupported, "this node has no writable cgroup v2");
  else
    closed = network_guard_->attach(prepared.group.v2);
  if (!closed && prepared.rules.metadata_closed == true)
    return fail(Code::unsupported,
                "this node cannot keep jobs from the cloud's metadata service, as its policy "
                "demands: " +
                    closed.error().message);
  if (!closed)
    log_debug("the cloud's metadata service stays open: {}", closed.error().message);
  return {};
}

Status Helper::make_tmp(TaskId task, Prepared& prepared) const {
  if (prepared.rules.private_tmp == false)
    return {};
  if (!sandbox_.makes_private_tmp() && !prepared.rules.private_tmp)
    return {};
  if (!sandbox_.makes_private_tmp())
    return fail(Code::unsupported,
                "this node's policy gives jobs a private /tmp, and its root helper may not mount "
                "one",
                "run the helper with CAP_SYS_ADMIN, or remove `tmp private`");
  const std::string name = tmp_name(task);
  BILLOW_TRY(work_.directory({.relative = name,
                              .mode = 0700,
                              .owner = std::nullopt,
                              .existing = agent::OwnPlace::If::exists_fail}));
  BILLOW_TRY(work_.directory({.relative = name + "/tmp",
                              .mode = 0700,
                              .owner = prepared.user.identity,
                              .existing = agent::OwnPlace::If::exists_fail}));
  prepared.tmp = work_.below(name + "/tmp");
  return {};
}

// The agent knows which GPUs the job has; that it cannot open the others is enforced here.
Status Helper::close_devices(TaskId task, const agent::TaskSpec& spec, Prepared& prepared) const {
  const auto denied = agent::device_numbers(spec.hide_devices);
  if (denied.empty())
    return {};
  const std::string& v2 = prepared.group.v2;
  Status closed = v2.empty() ? fail(Code::unsupported, "this node has no writable cgroup v2")
                             : agent::deny_devices(v2, denied);
  if (!closed)
    closed = cgroups_.deny_devices(task, denied, prepared.group);
  if (!closed && prepared.rules.devices_closed)
    return fail(Code::unsupported,
                "this node cannot keep the job from GPUs that it does not have, as its policy "
                "demands: " +
                    closed.error().message);
  if (!closed)
    log_warn("task {}: only its private /dev keeps it from other GPUs: {}", task.value,
             closed.error().message);
  return {};
}

Result<agent::TaskSpec> Helper::spec_of(const Order& order, const Prepared& prepared) const {
  agent::TaskSpec spec;
  spec.argv = order.argv;
  spec.env = order.env;
  spec.cwd = order.cwd;
  spec.identity = prepared.user.identity;
  spec.umask = order.umask;
  if (order.terminal)
    spec.terminal = agent::TerminalSize{order.rows, order.columns};
  spec.one_stream = order.one_stream;
  spec.stdin_open = order.stdin_open;
  spec.log_segment_bytes = order.log_segment_bytes;
  spec.log_segments_max = order.log_segments_max;
  spec.time_limit = order.time_limit;
  spec.paid_until = order.paid_until;
  spec.stop_grace = order.stop_grace;
  spec.leftover_grace = order.leftover_grace;
  spec.hide_devices = order.hide_devices;
  spec.no_new_privs = true;
  if ((order.refused_calls & ~may_be_refused) != 0)
    return fail(Code::invalid,
                fmt::format("{:#x} are not rules for system calls", order.refused_calls));
  spec.refused_calls = order.refused_calls | always_refused;
  spec.private_tmp = prepared.tmp;
  if (!prepared.tmp.empty()) {
    spec.shown = order.shown;
    spec.shown.push_back(work_.path());
    spec.shown.push_back(memory_.path());
  }
  spec.private_proc = prepared.rules.private_proc && sandbox_.hides_processes();
  // As the supervisor will read it: what it would refuse is refused before anything is made.
  const std::string bytes = BILLOW_TRY(agent::encode_spec(spec));
  std::vector<const char*> pointers(supervise::spec_pointers_needed(bytes.size()));
  const auto read = std::make_unique<supervise::Spec>();
  if (const char* wrong = supervise::decode_spec(bytes.data(), bytes.size(), pointers.data(),
                                                 pointers.size(), read.get()))
    return fail(Code::invalid, wrong);
  return spec;
}

}  // namespace billow::privileged
