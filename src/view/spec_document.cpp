// What a job asks for, in its document. The lines below show the members that readers use most;
// every other member that differs from its default goes into `options` under its own name. So the
// document is complete without a line for each new option (tests/unit/client/describe_test.cpp).
#include "view/spec_document.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "core/wire/codec.h"
#include "view/json_parts.h"

namespace billow::view {
namespace {

// Members with lines of their own here, by their path: of roles, and of jobs in addition.
constexpr std::string_view lines_of_roles[] = {
    "argv",
    "count",
    "env",  // only the names of the variables
    "name",
    "resources.cpu_milli",
    "resources.disk_mib",
    "resources.exclusive",
    "resources.gpu_types",
    "resources.gpus",
    "resources.mem_mib",
    "resources.mig_profile",
    "resources.share.mem_mib",
    "resources.share.milli",
    "resources.whole_node",
    "retries",
    "service",
    "surroundings.environment",
    "surroundings.environment_digest",
    "surroundings.image",
    "surroundings.inputs",
    "surroundings.isolation",
    "surroundings.network",
    "surroundings.outputs",
    "surroundings.processes_max",
    "surroundings.refused_calls",
    "surroundings.registry_secret",
    "surroundings.seccomp",
    "surroundings.secrets",
    "surroundings.volumes",
};
constexpr std::string_view lines_of_jobs[] = {
    "after", "cwd",  "labels", "nodes",         "priority",    "pty",
    "roles", "spot", "strict", "time_limit_ns", "time_sliced",
};
// Nobody asks for these: the head sets the digest, and a terminal follows the size of its window.
constexpr std::string_view no_options[] = {"cols", "env_digest", "rows"};

bool among(std::span<const std::string_view> paths, std::string_view path) {
  return std::ranges::find(paths, path) != paths.end();
}

// Collects the members that differ from those of `usual` and have no line of their own.
struct OtherMembers {
  const char* object;
  const char* usual;  // a struct of the same type: a member is at the same offset in both
  std::span<const std::string_view> own_lines;
  std::string path = {};
  Json found = Json::object();

  template <class T>
  void operator()(const char* name, const T& value) {
    const auto offset = reinterpret_cast<const char*>(&value) - object;
    const T& standard = *reinterpret_cast<const T*>(usual + offset);
    if (wire::same_as_default(value, standard))
      return;
    const std::string at = path.empty() ? name : path + "." + name;
    if (among(lines_of_roles, at) || among(own_lines, at) || among(no_options, at))
      return;
    if constexpr (wire::HasFields<T>) {
      OtherMembers inside{reinterpret_cast<const char*>(&value),
                          reinterpret_cast<const char*>(&standard), own_lines, at};
      T::fields(value, inside);
      if (inside.found.size() > 0)
        found.set(name, std::move(inside.found));
    } else {
      std::string text;
      wire::JsonWriter::write(text, value);
      found.set(name, parse_json(text).value_or(Json()));
    }
  }
};

template <class Spec>
void add_options(Json& document,
                 const Spec& spec,
                 const Spec& usual,
                 std::span<const std::string_view> own_lines) {
  OtherMembers others{reinterpret_cast<const char*>(&spec), reinterpret_cast<const char*>(&usual),
                      own_lines};
  Spec::fields(spec, others);
  if (others.found.size() > 0)
    document.set("options", std::move(others.found));
}

Json object_list(const std::vector<ObjectWish>& wishes) {
  Json out = Json::array();
  for (const ObjectWish& wish : wishes)
    out.push(Json::object({{"url", wish.url}, {"path", wish.path}}));
  return out;
}

void add_data(Json& document, const Surroundings& around) {
  Json volumes = Json::array();
  for (const VolumeWish& wish : around.volumes)
    volumes.push(
        Json::object({{"name", wish.name}, {"path", wish.path}, {"read_only", wish.read_only}}));
  if (!around.volumes.empty())
    document.set("volumes", std::move(volumes));
  if (!around.inputs.empty())
    document.set("inputs", object_list(around.inputs));
  if (!around.outputs.empty())
    document.set("outputs", object_list(around.outputs));
}

// Which secrets, and how the job gets them; never their values.
void add_secrets(Json& document, const Surroundings& around) {
  if (around.secrets.empty())
    return;
  Json secrets = Json::array();
  for (const SecretWish& wish : around.secrets) {
    Json one = Json::object({{"name", wish.name}});
    if (wish.file.empty())
      one.set("variable", wish.variable);
    else
      one.set("file", wish.file);
    secrets.push(std::move(one));
  }
  document.set("secrets", std::move(secrets));
}

void add_surroundings(Json& document, const Surroundings& around) {
  if (!around.image.empty())
    document.set("image", around.image);
  else if (!around.environment.empty())
    document.set("environment", Json::object({{"name", around.environment},
                                              {"digest", around.environment_digest}}));
  add_data(document, around);
  add_secrets(document, around);
  if (!around.registry_secret.empty())
    document.set("registry_secret", around.registry_secret);
  if (around.network != ContainerNetwork::host)
    document.set("network", enum_name(around.network));
  if (!around.allow.empty()) {
    Json blocks = Json::array();
    for (const std::string& block : around.allow)
      blocks.push(block);
    document.set("allow", std::move(blocks));
  }
  if (around.isolation != Isolation::plain)
    document.set("isolation", enum_name(around.isolation));
  if (around.seccomp != CallProfile::standard)
    document.set("seccomp", enum_name(around.seccomp));
  if (!around.refused_calls.empty()) {
    Json names = Json::array();
    for (const std::string& name : around.refused_calls)
      names.push(name);
    document.set("refused_calls", std::move(names));
  }
  if (around.processes_max > 0)
    document.set("processes_max", around.processes_max);
}

void add_node_wishes(Json& document, const Resources& wanted) {
  if (wanted.exclusive)
    document.set("exclusive", true);
  if (wanted.whole_node)
    document.set("whole_node", true);
  if (!wanted.mig_profile.empty())
    document.set("mig_profile", wanted.mig_profile);
}

// A group counts as one: its sums, and its roles one by one.
void add_group(Json& document, const JobSpec& spec) {
  const std::int64_t milli = asked_gpu_milli(spec);
  document.set("gpus", (milli + 999) / 1000);
  document.set("gpu_milli", milli);
  document.set("gpu_mem_mib", 0);
  document.set("gpu_types", Json::array());
  document.set("nodes", 1);
  document.set("members", spec.nodes);
  std::int64_t cpu_milli = 0, mem_mib = 0;
  Json roles = Json::array();
  for (const RoleSpec& role : spec.roles) {
    const Resources& r = role.resources;
    cpu_milli += r.cpu_milli * role.count;
    mem_mib += r.mem_mib * role.count;
    Json one = Json::object({{"name", role.name},
                             {"count", role.count},
                             {"command", shell_join(role.argv)},
                             {"gpus", r.gpus},
                             {"gpu_milli", r.gpus ? r.share.milli * r.gpus : 0},
                             {"gpu_mem_mib", r.share.mem_mib},
                             {"gpu_types", string_list(r.gpu_types)},
                             {"cpu_milli", r.cpu_milli},
                             {"mem_mib", r.mem_mib},
                             {"disk_mib", r.disk_mib},
                             {"retries", role.retries},
                             {"service", role.service}});
    add_node_wishes(one, r);
    add_surroundings(one, role.surroundings);
    if (!role.env.empty()) {
      Json names = Json::array();
      for (const auto& [name, value] : role.env)
        names.push(name);
      one.set("variables", std::move(names));
    }
    // A role begins as a copy of the job, so only what differs from the job is its own.
    RoleSpec usual;
    static_cast<TaskOptions&>(usual) = spec;
    add_options(one, role, usual, {});
    roles.push(std::move(one));
  }
  document.set("cpu_milli", cpu_milli);
  document.set("mem_mib", mem_mib);
  document.set("roles", std::move(roles));
}

}  // namespace

void cover_variables(Json& document) {
  if (!document["spec"]["roles"].is_array())
    return;
  Json spec = document["spec"];
  Json roles = Json::array();
  for (Json role : spec["roles"].items()) {
    Json names = Json::object();
    for (const auto& [name, value] : role["env"].members())
      names.set(name, covered);
    if (role["env"].is_object())
      role.set("env", std::move(names));
    roles.push(std::move(role));
  }
  spec.set("roles", std::move(roles));
  document.set("spec", std::move(spec));
}

void add_spec(Json& document, const JobSpec& spec) {
  const Resources& wanted = spec.resources;
  document.set("name", spec.name);
  document.set("command", shell_join(spec.argv));
  document.set("argv", string_list(spec.argv));
  document.set("cwd", spec.cwd);
  add_surroundings(document, spec.surroundings);
  document.set("retries", spec.retries);
  document.set("priority", spec.priority);
  document.set("spot", spec.spot);
  if (spec.strict)
    document.set("strict", true);
  if (spec.time_sliced)
    document.set("time_sliced", true);
  add_node_wishes(document, wanted);
  document.set("time_limit_s", spec.time_limit.ns / 1'000'000'000);
  document.set("gpus", wanted.gpus);
  document.set("gpu_milli", wanted.gpus ? wanted.share.milli * wanted.gpus : 0);
  document.set("gpu_mem_mib", wanted.share.mem_mib);
  document.set("gpu_types", string_list(wanted.gpu_types));
  document.set("nodes", spec.nodes);
  document.set("cpu_milli", wanted.cpu_milli);
  document.set("mem_mib", wanted.mem_mib);
  document.set("disk_mib", wanted.disk_mib);
  document.set("pty", spec.pty);
  if (!spec.roles.empty())
    add_group(document, spec);
  document.set("labels", string_map(spec.labels));
  Json after = Json::array();
  for (const Dependency& d : spec.after)
    after.push(Json::object({{"job", d.job.value}, {"kind", enum_name(d.kind)}}));
  document.set("after", std::move(after));
  static const JobSpec usual{};
  add_options(document, spec, usual, lines_of_jobs);
}

}  // namespace billow::view
