#include "agent/task/order_check.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "agent/content/volume_source.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/model/address_block.h"
#include "core/model/catalogue.h"
#include "core/model/quota.h"
#include "core/model/surroundings.h"
#include "core/wire/confined.h"
#include "core/wire/log_record.h"

namespace billow::agent {
namespace {

using wire::agent_v1::Start;

constexpr std::size_t name_bytes_max = 256;
constexpr std::size_t path_bytes_max = 4096;
constexpr std::size_t digest_hex_digits = 64;
// Billow's own variables are beside those of the job: the addresses of a gang, for example.
constexpr std::size_t env_bytes_of_order_max = 4 * limits::env_bytes_max;
constexpr std::size_t refused_calls_max = 256;
constexpr std::size_t base64_bytes_max = limits::secret_bytes_max / 3 * 4 + 8;
// Larger amounts overflow when they become bytes, or parts of a second.
constexpr std::int64_t mib_max = INT64_MAX >> 20;
constexpr std::int64_t cpu_milli_max = 1'000'000'000;
constexpr std::int64_t processes_max = 4'194'304;
constexpr std::int32_t signal_max = 64;

auto refused(std::string why) {
  return fail(Code::forbidden, "this node refuses the order of its head: " + std::move(why),
              "no head of Billow sends such an order: check the head");
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// Absolute, and without parts that lead elsewhere than the text says.
bool is_plain_path(std::string_view path) {
  if (!path.starts_with('/') || path.size() > path_bytes_max || has_control(path))
    return false;
  const auto parts = split(path, '/');
  return std::ranges::none_of(parts,
                              [](const std::string& part) { return part == "." || part == ".."; });
}

// Several slashes are one, as in is_the_systems.
bool is_within(const std::string& path, std::string_view top) {
  const std::size_t at = std::min(path.find_first_not_of('/'), path.size());
  const std::string_view rest = std::string_view(path).substr(at == 0 ? 0 : at - 1);
  return rest.starts_with(top) && (rest.size() == top.size() || rest[top.size()] == '/');
}

// Variables that change how a program is loaded, or what Billow's own programs do.
bool is_ours(std::string_view variable) {
  return variable.starts_with("BILLOW_") || variable.starts_with("LD_");
}

bool is_variable(std::string_view name) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9';
  };
  return !name.empty() && name.size() <= name_bytes_max && !digit(name.front()) &&
         std::ranges::all_of(name, [&](char c) {
           return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
         });
}

bool is_digest(std::string_view text) {
  return text.size() == digest_hex_digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status check_amount(const char* what, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most)
    return {};
  return refused(fmt::format("{} cannot be {}", what, value));
}

Status check_count(const char* what, std::size_t count, std::size_t most) {
  if (count <= most)
    return {};
  return refused(fmt::format("it has {} {}, more than {}", count, what, most));
}

// The agent allocates, repeats or multiplies by each of these numbers.
Status check_numbers(const Start& start) {
  if (start.procs < 1)
    return refused("a job has at least one process");
  const Surroundings& asked = start.surroundings;
  const std::int64_t time_max = limits::time_named_max.ns;
  const std::tuple<const char*, std::int64_t, std::int64_t> amounts[] = {
      {"the number of a task", static_cast<std::int64_t>(start.task.value), INT64_MAX},
      {"the number of a job", static_cast<std::int64_t>(start.job.value), INT64_MAX},
      {"the number of processes with a rank", start.procs, limits::procs_per_node_max},
      {"the limit of processes", asked.processes_max, processes_max},
      {"the CPUs", start.cpu_milli, cpu_milli_max},
      {"the memory", start.mem_mib, mib_max},
      {"the disk", start.disk_mib, mib_max},
      {"the time limit", start.time_limit.ns, time_max},
      {"the grace period", start.stop_grace.ns, limits::stop_grace_max.ns},
      {"the paid time", start.paid_for.ns, INT64_MAX},
      {"the time between checkpoints", start.checkpoint_every.ns, time_max},
      {"the signal for checkpoints", start.checkpoint_signal, signal_max},
  };
  for (const auto& [what, value, most] : amounts)
    BILLOW_TRY_VOID(check_amount(what, value, most));
  const std::tuple<const char*, std::size_t, std::size_t> counts[] = {
      {"volumes", start.volumes.size(), limits::surroundings_max},
      {"secrets", start.secrets.size(), limits::surroundings_max},
      {"wished volumes", asked.volumes.size(), limits::surroundings_max},
      {"wished secrets", asked.secrets.size(), limits::surroundings_max},
      {"inputs", asked.inputs.size(), limits::surroundings_max},
      {"outputs", asked.outputs.size(), limits::surroundings_max},
      {"refused calls", asked.refused_calls.size(), refused_calls_max},
      {"allowed networks", asked.allow.size(), 2 * limits::allowed_blocks_max},
      {"bytes in the login for a registry", start.registry_login.value.size(), base64_bytes_max},
  };
  for (const auto& [what, count, most] : counts)
    BILLOW_TRY_VOID(check_count(what, count, most));
  return {};
}

Status check_grants(const std::vector<GpuGrant>& gpus) {
  BILLOW_TRY_VOID(check_count("GPUs", gpus.size(), limits::gpus_per_node_max));
  for (const GpuGrant& grant : gpus) {
    BILLOW_TRY_VOID(check_amount("a GPU's number", grant.gpu, INT32_MAX));
    BILLOW_TRY_VOID(check_amount("a share", grant.share.milli, whole_gpu_milli));
    BILLOW_TRY_VOID(check_amount("the GPU memory", grant.share.mem_mib, mib_max));
  }
  return {};
}

// Visits the fields of a struct.
struct LongestText {
  std::size_t bytes = 0;
  template <class T>
  void operator()(const char*, const T& field) {
    if constexpr (std::is_same_v<T, std::string>)
      bytes = std::max(bytes, field.size());
  }
};

Status check_words(const Start& start) {
  std::size_t bytes = 0;
  for (const std::string& word : start.argv)
    bytes += word.size() + 1;
  // A replica's port may be written into its command.
  BILLOW_TRY_VOID(check_count("bytes in its command", bytes, 2 * limits::argv_bytes_max));
  for (const std::string& call : start.surroundings.refused_calls)
    BILLOW_TRY_VOID(check_count("bytes in the name of a call", call.size(), name_bytes_max));
  LongestText longest;
  TaskOptions::fields(start, longest);
  Surroundings::fields(start.surroundings, longest);
  return check_count("bytes in one text", longest.bytes, limits::job_texts_bytes_max);
}

Status check_users(const Start& start) {
  const auto confined = start.env.find(wire::confined_variable);
  for (const std::string& name :
       {start.unix_user, start.owner, confined == start.env.end() ? "" : confined->second})
    if (name.size() > name_bytes_max || has_control(name))
      return refused("a user's name is too long or contains a control character");
  return {};
}

// Variables that the agent itself reads.
Status check_own_variables(const Start& start) {
  const auto value = [&](const char* name) -> const std::string* {
    const auto found = start.env.find(name);
    return found == start.env.end() ? nullptr : &found->second;
  };
  // Otherwise it is a variable of the job.
  const bool together = start.gang || start.procs > 1;
  if (const auto* addresses = value("BILLOW_ADDRESSES"); addresses && together)
    BILLOW_TRY_VOID(check_count("addresses",
                                static_cast<std::size_t>(std::ranges::count(*addresses, ',')) + 1,
                                limits::nodes_per_job_max));
  if (const auto* tree = value(surroundings::files); tree && !is_digest(*tree))
    return refused("the digest of a tree is not a digest");
  for (const char* name : {"BILLOW_PROJECT", "BILLOW_JOB_NAME"})
    if (const auto* text = value(name);
        text && (text->size() > path_bytes_max || has_control(*text)))
      return refused("the name of a project or job is too long or contains a control character");
  if (const auto* most = value(wire::log_limit_variable))
    if (!parse_int(*most, limits::task_log_bytes_min, limits::task_log_bytes_max))
      return refused("the limit of a log is out of range");
  return {};
}

Status check_variables(const Start& start) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : start.env) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos ||
        value.find('\0') != std::string::npos)
      return refused("a variable's name is empty or contains =, or a variable has a zero byte");
    bytes += name.size() + value.size() + 2;
  }
  BILLOW_TRY_VOID(check_count("bytes in its variables", bytes, env_bytes_of_order_max));
  return check_own_variables(start);
}

Status check_secret(const SecretWish& wish, const GivenSecret& secret) {
  if (const Status name = check_name("secret", wish.name); !name)
    return refused(name.error().message);
  if (secret.variable.empty() == secret.file.empty())
    return refused(fmt::format("secret {} must be either a variable or a file", wish.name));
  if (secret.file.empty()) {
    if (!is_variable(secret.variable) || is_ours(secret.variable))
      return refused(fmt::format("secret {} cannot be a variable of this name", wish.name));
    return {};
  }
  if (!is_plain_path(secret.file) || secret.file.ends_with('/') ||
      is_within(secret.file, "/proc") || is_within(secret.file, "/sys") ||
      is_within(secret.file, "/dev"))
    return refused(fmt::format("secret {} cannot be a file of this path", wish.name));
  return {};
}

Status check_secrets(const Start& start) {
  for (const GivenSecret& secret : start.secrets)
    BILLOW_TRY_VOID(check_count("bytes in a secret", secret.value.size(), base64_bytes_max));
  const auto& wishes = start.surroundings.secrets;
  if (!start.secrets.empty() && start.secrets.size() != wishes.size())
    return refused(fmt::format("it has {} secrets, and the job asks for {}", start.secrets.size(),
                               wishes.size()));
  for (std::size_t i = 0; i < start.secrets.size(); ++i)
    BILLOW_TRY_VOID(check_secret(wishes[i], start.secrets[i]));
  return {};
}

// Early, before an image is fetched: the start decides (content/volume_source.h). A volume that is
// missing is reported there.
Status check_volume(const BoundVolume& volume) {
  if (!is_plain_path(volume.path))
    return refused("a volume cannot be mounted at this path");
  if (!is_plain_path(volume.source))
    return refused(fmt::format("the volume for {} is not an absolute path", volume.path));
  std::error_code missing;
  const auto real = std::filesystem::canonical(volume.source, missing);
  if (is_the_systems(missing ? volume.source : real.native()))
    return fail(Code::forbidden,
                fmt::format("the volume for {} cannot be {}: it leads to files of the system ({})",
                            volume.path, volume.source, missing ? volume.source : real.native()),
                "a volume is a directory of data, not /, /proc, /sys, /dev or /run");
  return {};
}

}  // namespace

Status check_order(const Start& start) {
  BILLOW_TRY_VOID(check_numbers(start));
  BILLOW_TRY_VOID(check_grants(start.gpus));
  BILLOW_TRY_VOID(check_words(start));
  BILLOW_TRY_VOID(check_users(start));
  BILLOW_TRY_VOID(check_variables(start));
  BILLOW_TRY_VOID(check_secrets(start));
  for (const BoundVolume& volume : start.volumes)
    BILLOW_TRY_VOID(check_volume(volume));
  const std::string& digest = start.surroundings.environment_digest;
  if (!digest.empty() && !is_digest(digest))
    return refused("the digest of an environment is not a digest");
  return {};
}

}  // namespace billow::agent
