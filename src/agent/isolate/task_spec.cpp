#include "agent/isolate/task_spec.h"

#include "core/model/held_variables.h"
#include "supervise/spec.h"

namespace billow::agent {
namespace {

using supervise::SpecTag;

class Writer {
 public:
  Writer() { out_.resize(sizeof(supervise::SpecHeader)); }

  void bytes(SpecTag tag, const void* data, std::size_t size) {
    const supervise::SpecEntry head{static_cast<std::uint16_t>(tag), 0,
                                    static_cast<std::uint32_t>(size)};
    out_.append(reinterpret_cast<const char*>(&head), sizeof(head));
    out_.append(static_cast<const char*>(data), size);
  }
  template <class T>
  void number(SpecTag tag, T value) {
    bytes(tag, &value, sizeof(value));
  }
  void text(SpecTag tag, const std::string& value) { bytes(tag, value.c_str(), value.size() + 1); }
  void text_if(SpecTag tag, const std::string& value) {
    if (!value.empty())
      text(tag, value);
  }
  void mark(SpecTag tag) { bytes(tag, nullptr, 0); }
  std::string finish() && {
    const supervise::SpecHeader header{supervise::spec_magic, supervise::protocol_version,
                                       static_cast<std::uint32_t>(out_.size()), 0};
    std::memcpy(out_.data(), &header, sizeof(header));
    return std::move(out_);
  }

 private:
  std::string out_;
};

bool has_nul(const std::string& s) {
  return s.find('\0') != std::string::npos;
}

Status check(const TaskSpec& spec) {
  if (spec.argv.empty() || spec.argv[0].empty())
    return fail(Code::invalid, "the task has no command", "give one after --");
  for (const auto& arg : spec.argv)
    if (has_nul(arg))
      return fail(Code::invalid, "an argument of the command holds a NUL byte");
  for (const auto& var : spec.env)
    if (has_nul(var) || var.find('=') == std::string::npos || var[0] == '=')
      return fail(Code::invalid, "an environment variable is not of the form NAME=value");
  if (spec.cwd.empty() || spec.cwd[0] != '/' || has_nul(spec.cwd))
    return fail(Code::invalid,
                fmt::format("the working directory '{}' is not an absolute path", spec.cwd));
  return {};
}

void write_identity(Writer& w, const TaskSpec& spec) {
  if (!spec.identity)
    return;
  w.number(SpecTag::uid, spec.identity->uid);
  w.number(SpecTag::gid, spec.identity->gid);
  w.bytes(SpecTag::groups, spec.identity->groups.data(),
          spec.identity->groups.size() * sizeof(std::uint32_t));
}

void write_isolation(Writer& w, const TaskSpec& spec) {
  w.text_if(SpecTag::cgroup_v2, spec.cgroup_v2);
  for (const auto& path : spec.cgroups_v1)
    w.text(SpecTag::cgroup_v1, path);
  w.text_if(SpecTag::cgroup_memory, spec.cgroup_memory);
  w.text_if(SpecTag::cgroup_freezer_v1, spec.cgroup_freezer_v1);
  for (const auto& name : spec.hide_devices)
    w.text(SpecTag::hide_device, name);
  for (const BoundVolume& bind : spec.binds)
    w.text(SpecTag::bind,
           fmt::format("{}\n{}\n{}", bind.read_only ? "ro" : "rw", bind.source, bind.path));
  if (spec.user_namespace)
    w.mark(SpecTag::user_namespace);
  w.text_if(SpecTag::private_tmp, spec.private_tmp);
  for (const std::string& path : spec.shown)
    w.text(SpecTag::shown, path);
  if (spec.own_network)
    w.mark(SpecTag::own_network);
  if (spec.private_proc)
    w.mark(SpecTag::private_proc);
  if (spec.no_new_privs)
    w.mark(SpecTag::no_new_privs);
  if (spec.refused_calls != 0)
    w.number(SpecTag::refused_calls, spec.refused_calls);
  for (const auto& limit : spec.resource_limits) {
    const struct {
      std::uint32_t resource, zero;
      std::uint64_t soft, hard;
    } wire{limit.resource, 0, limit.soft, limit.hard};
    w.bytes(SpecTag::rlimit, &wire, sizeof(wire));
  }
  if (spec.nice)
    w.number(SpecTag::nice, static_cast<std::int32_t>(*spec.nice));
  if (spec.oom_score_adj)
    w.number(SpecTag::oom_score_adj, static_cast<std::int32_t>(*spec.oom_score_adj));
}

}  // namespace

Result<std::string> encode_spec(const TaskSpec& spec) {
  BILLOW_TRY_VOID(check(spec));
  Writer w;
  for (const auto& arg : spec.argv)
    w.text(SpecTag::argv, arg);
  for (const auto& var : spec.env)
    w.text(SpecTag::env, var);
  w.text(SpecTag::cwd, spec.cwd);
  write_identity(w, spec);
  w.number(SpecTag::umask, spec.umask);
  if (spec.terminal) {
    const std::uint16_t size[2] = {spec.terminal->rows, spec.terminal->columns};
    w.bytes(SpecTag::pty, size, sizeof(size));
  }
  if (spec.stdin_open)
    w.mark(SpecTag::stdin_open);
  if (spec.one_stream)
    w.mark(SpecTag::one_stream);
  w.number(SpecTag::log_segment_bytes, spec.log_segment_bytes);
  w.number(SpecTag::log_segments_max, spec.log_segments_max);
  if (spec.time_limit.ns > 0)
    w.number(SpecTag::time_limit_ns, spec.time_limit.ns);
  if (spec.paid_until.ns > 0)
    w.number(SpecTag::paid_until_boot_ns, spec.paid_until.ns);
  w.number(SpecTag::stop_grace_ns, spec.stop_grace.ns);
  w.number(SpecTag::leftover_grace_ns, spec.leftover_grace.ns);
  write_isolation(w, spec);
  if (spec.die_with_pid > 0)
    w.number(SpecTag::die_with_pid, static_cast<std::int32_t>(spec.die_with_pid));
  w.number(SpecTag::subscription, static_cast<std::uint32_t>(spec.subscription));
  if (!spec.meta.empty())
    w.bytes(SpecTag::meta, spec.meta.data(), spec.meta.size());
  std::string out = std::move(w).finish();
  if (out.size() > supervise::spec_bytes_max)
    return fail(Code::too_large,
                fmt::format("the command and its environment take {} bytes; the limit is {}",
                            out.size(), supervise::spec_bytes_max));
  // The supervisor's own decoder decides: what it would refuse is refused here, before anything is
  // created.
  std::vector<const char*> pointers(supervise::spec_pointers_needed(out.size()));
  auto decoded = std::make_unique<supervise::Spec>();
  if (const char* wrong = supervise::decode_spec(out.data(), out.size(), pointers.data(),
                                                 pointers.size(), decoded.get()))
    return fail(Code::invalid, wrong);
  return out;
}

Result<TaskRecord> record_of_spec(const std::string& bytes) {
  std::vector<const char*> pointers(supervise::spec_pointers_needed(bytes.size()));
  auto decoded = std::make_unique<supervise::Spec>();
  if (const char* wrong = supervise::decode_spec(bytes.data(), bytes.size(), pointers.data(),
                                                 pointers.size(), decoded.get()))
    return fail(Code::invalid, wrong);
  TaskRecord out;
  out.cwd = decoded->cwd;
  out.meta = meta_of_spec(bytes);
  for (const char** variable = decoded->env; *variable != nullptr; ++variable)
    out.env.emplace_back(*variable);
  out.env = shown_variables(std::move(out.env));
  if (decoded->has_uid) {
    out.identity = Identity{decoded->uid, decoded->has_gid ? decoded->gid : decoded->uid, {}};
    out.identity->groups.assign(decoded->groups, decoded->groups + decoded->groups_count);
  }
  return out;
}

std::string TaskRecord::variable(std::string_view name) const {
  for (const std::string& one : env)
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return one.substr(name.size() + 1);
  return {};
}

std::string meta_of_spec(std::string_view bytes) {
  if (bytes.size() < sizeof(supervise::SpecHeader))
    return {};
  bytes.remove_prefix(sizeof(supervise::SpecHeader));
  while (bytes.size() >= sizeof(supervise::SpecEntry)) {
    supervise::SpecEntry head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    bytes.remove_prefix(sizeof(head));
    if (head.bytes > bytes.size())
      return {};
    if (static_cast<SpecTag>(head.tag) == SpecTag::meta)
      return std::string(bytes.substr(0, head.bytes));
    bytes.remove_prefix(head.bytes);
  }
  return {};
}

}  // namespace billow::agent
