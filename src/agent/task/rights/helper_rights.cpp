// The rights of the node's root helper, for an agent without root. What the helper does not do yet
// is refused before anything is made for the job: it never runs with fewer walls than it asked for.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <unordered_map>

#include "agent/content/containers.h"
#include "agent/task/rights/task_rights.h"
#include "agent/task/task_link.h"
#include "base/crypto.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"
#include "privileged/client.h"

namespace billow::agent {
namespace {

// Both may start with the machine.
constexpr Duration hello_patience = seconds(10);
constexpr int hello_again_ms = 100;

using privileged::Request;
using privileged::Verb;

// What a job may ask for that the helper has no verb for, in the words of the command line.
std::string asked_in_vain(const Start& start) {
  const Surroundings& s = start.surroundings;
  const bool placed = std::ranges::any_of(start.secrets, [&](const GivenSecret& secret) {
    const auto at = static_cast<std::size_t>(&secret - start.secrets.data());
    return !secret.file.empty() && at < s.secrets.size() &&
           secret.file != SecretFiles::usual_place(s.secrets[at].name);
  });
  const bool part = std::ranges::any_of(start.gpus, [](const GpuGrant& grant) {
    return grant.mig_start >= 0 || !grant.share.whole();
  });
  const struct {
    bool asked;
    const char* what;
  } all[] = {
      {!s.image.empty(), "--image"},
      {!s.environment_digest.empty() || !s.environment.empty(), "--env"},
      {s.isolation == Isolation::strict || wire::strict_isolation(start), "--isolation strict"},
      {!wire::confined_for(start).empty(), "jobs of agents, which are confined"},
      {s.network != ContainerNetwork::host, "--network"},
      {!start.volumes.empty() || !s.volumes.empty(), "--volume"},
      {!s.inputs.empty() || !s.outputs.empty(), "--input and --output"},
      {placed, "--secret NAME:/PATH"},
      {part, "shares of a GPU and MIG instances"},
      {start.bare, "--whole-node"},
      {start.port != 0, "replicas of endpoints"},
      {start.disk_mib > 0, "--disk"},
      {static_cast<const TaskHooks&>(start) != TaskHooks{},
       "checkpoints, and hooks for suspend and resume"},
      {s.seccomp != CallProfile::standard || !s.refused_calls.empty(), "--seccomp"},
  };
  for (const auto& one : all)
    if (one.asked)
      return one.what;
  return {};
}

privileged::Order order_of(const TaskRights::Launch& launch) {
  const TaskSpec& spec = launch.spec;
  privileged::Order order;
  order.argv = spec.argv;
  order.env = spec.env;
  order.cwd = spec.cwd;
  order.umask = spec.umask;
  order.terminal = spec.terminal.has_value();
  if (spec.terminal) {
    order.rows = spec.terminal->rows;
    order.columns = spec.terminal->columns;
  }
  order.one_stream = spec.one_stream;
  order.stdin_open = spec.stdin_open;
  order.log_segment_bytes = spec.log_segment_bytes;
  order.log_segments_max = spec.log_segments_max;
  order.time_limit = spec.time_limit;
  order.paid_until = spec.paid_until;
  order.stop_grace = spec.stop_grace;
  order.leftover_grace = spec.leftover_grace;
  order.hide_devices = spec.hide_devices;
  order.shown = spec.shown;
  order.refused_calls = spec.refused_calls;
  order.meta = launch.meta;
  return order;
}

class OfHelper final : public TaskRights {
 public:
  OfHelper(std::unique_ptr<privileged::Client> helper, std::string notes_dir)
      : helper_(std::move(helper)), notes_dir_(std::move(notes_dir)) {}

  bool of_helper() const override { return true; }
  Status suffice_for(const Start& start) const override {
    const std::string what = asked_in_vain(start);
    if (what.empty())
      return {};
    return fail(Code::unsupported,
                fmt::format("this node's agent is not root and does not offer: {}", what),
                "leave it out, or choose a node whose agent is root (billow-node.service)");
  }
  // Who the account is, and whether the policy allows it, the helper looks up itself.
  Result<UserRecord> permitted(UserRecord user, bool) const override {
    if (user.identity.uid == 0 || user.identity.uid == ::geteuid())
      return fail(
          Code::forbidden,
          fmt::format("jobs do not run as '{}' on a node whose agent is not root", user.name),
          "map the Billow user to an ordinary account, or choose another node");
    return user;
  }
  Status reserve(TaskId task,
                 const UserRecord& user,
                 const CgroupLimits& limits,
                 bool needs_work_dir) override {
    Request request = asking(Verb::prepare, task);
    request.uid = user.identity.uid;
    request.work = needs_work_dir;
    request.cpu_milli = limits.cpu_milli;
    request.mem_mib = limits.mem_mib;
    request.pids_max = limits.pids_max;
    const privileged::Reply reply = BILLOW_TRY(helper_->call(request)).reply;
    reserved_[task] = {reply.tmp, reply.work};
    return {};
  }
  Result<std::string> make_work_dir(TaskId task, const UserRecord&) override {
    return reserved_[task].work;
  }
  Result<std::string> make_private_tmp(TaskId task, const UserRecord&) override {
    return reserved_[task].tmp;
  }
  Result<std::vector<SecretFiles::Written>> write_secrets(const Start& start,
                                                          const UserRecord&) override {
    std::vector<SecretFiles::Written> out;
    for (std::size_t i = 0; i < start.secrets.size() && i < start.surroundings.secrets.size();
         ++i) {
      if (start.secrets[i].file.empty())
        continue;
      Request request = asking(Verb::secret, start.task);
      request.name = start.surroundings.secrets[i].name;
      std::string value;
      if (!base64_decode(start.secrets[i].value, value))
        return fail(Code::internal, fmt::format("the value of secret {} is damaged", request.name));
      const auto answer = BILLOW_TRY(helper_->call(request, {value}));
      out.push_back({request.name, answer.reply.path, {}});
    }
    return out;
  }
  Result<SupervisorLink> launch(const Launch& launch) override {
    reserved_.erase(launch.task);
    BILLOW_TRY_VOID(make_directories(notes(launch.task), 0700));
    launch.made();
    const std::string order = wire::to_json_text(order_of(launch));
    auto answer =
        helper_->call(asking(Verb::start, launch.task), {order, launch.secrets, launch.redacted});
    if (answer)
      return link_of(*answer);
    // It may have started the task and not have come to answer.
    if (answer.error().code == Code::unavailable)
      if (auto runs = connect(launch.task, {}))
        return runs;
    return pass(answer.error());
  }
  Result<SupervisorLink> connect(TaskId task, Duration) override {
    auto answer = BILLOW_TRY(helper_->call(asking(Verb::connect, task)));
    return link_of(answer);
  }
  void end_leftovers(TaskId task, const TaskCgroup&) override { tell(Verb::end, task); }
  Status release(TaskId task, const TaskCgroup&) override {
    reserved_.erase(task);
    return done(Verb::clear, task);
  }
  Status record_end(TaskId task, const supervise::ExitRecord& record) override {
    const std::string_view bytes(reinterpret_cast<const char*>(&record), sizeof record);
    BILLOW_TRY(helper_->call(asking(Verb::record, task), {bytes}));
    return {};
  }
  Status acknowledge(TaskId task) override { return done(Verb::acknowledge, task); }
  Status forget(TaskId task) override {
    BILLOW_TRY_VOID(done(Verb::forget, task));
    return remove_tree(notes(task));
  }
  void signal(TaskId task, int pid, int number) override {
    Request request = asking(Verb::signal, task);
    request.pid = pid;
    request.number = number;
    if (const auto answer = helper_->call(request); !answer)
      log_debug("task {}: {}", task.value, answer.error().message);
  }
  std::string notes(TaskId task) const override {
    return notes_dir_ + "/" + std::to_string(task.value);
  }

 private:
  static Request asking(Verb verb, TaskId task) {
    Request request;
    request.verb = verb;
    request.task = task.value;
    return request;
  }
  Status done(Verb verb, TaskId task) {
    BILLOW_TRY(helper_->call(asking(verb, task)));
    return {};
  }
  void tell(Verb verb, TaskId task) {
    if (const Status told = done(verb, task); !told)
      log_warn("task {}: {}", task.value, told.error().message);
  }
  static Result<SupervisorLink> link_of(privileged::Client::Answer& answer) {
    if (answer.descriptors.size() != 1)
      return fail(Code::internal, "the root helper gave no connection to the supervisor");
    return SupervisorLink(std::move(answer.descriptors.front()));
  }
  std::unique_ptr<privileged::Client> helper_;
  std::string notes_dir_;
  struct Reserved {
    std::string tmp, work;
  };
  std::unordered_map<TaskId, Reserved> reserved_;
};

}  // namespace

Result<HelperRights> helper_rights(const std::string& socket, const std::string& notes_dir) {
  auto helper = std::make_unique<privileged::Client>(socket);
  const SteadyTime give_up = system_clock().steady() + hello_patience;
  auto answer = helper->call(Request{});
  while (!answer && answer.error().code == Code::unavailable && system_clock().steady() < give_up) {
    ::poll(nullptr, 0, hello_again_ms);
    answer = helper->call(Request{});
  }
  const privileged::Reply hello = BILLOW_TRY(std::move(answer)).reply;
  BILLOW_TRY_VOID(make_directories(notes_dir, 0700));
  return HelperRights{{hello.tasks, hello.groups_owner,
                       Sandbox::of_helper(hello.private_dev, hello.seen_processes)},
                      std::make_unique<OfHelper>(std::move(helper), notes_dir)};
}

}  // namespace billow::agent
