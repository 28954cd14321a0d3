#include "head/secrets/secret_keeper.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sealed.h"
#include "base/text.h"
#include "core/model/image_name.h"
#include "net/wipe.h"

namespace billow::head {
namespace {

std::string belongs_to(ProjectId project, const std::string& name) {
  return fmt::format("secret {} {}", project.value, name);
}

bool from_hex(std::string_view text, std::string& out) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() % 2 != 0)
    return false;
  out.clear();
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0)
      return false;
    out += static_cast<char>(high << 4 | low);
  }
  return true;
}

}  // namespace

// Whatever the key opens passes through memory that is overwritten when it is freed, and so do the
// keys.
Result<std::vector<std::string>> SecretKeeper::keys() const {
  net::wipe_freed_memory();
  if (!file_exists(path_))
    return fail(
        Code::not_found,
        fmt::format("the key of this installation's secrets is missing: {}", path_),
        "copy it from the head that created it (secrets.key in its data directory), readable "
        "by its owner only");
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return fail(Code::forbidden, fmt::format("{} can be read by other users", path_),
                fmt::format("chmod 600 {}", path_));
  std::vector<std::string> out;
  for (const std::string& line : split(BILLOW_TRY(read_file(path_, 4096)), '\n')) {
    if (trim(line).empty())
      continue;
    std::string key;
    if (!from_hex(trim(line), key) || key.size() != seal_key_bytes)
      return fail(Code::invalid, fmt::format("{} does not contain a key", path_),
                  "a key is one line of 64 hexadecimal digits");
    out.push_back(std::move(key));
  }
  if (out.empty())
    return fail(Code::invalid, fmt::format("{} does not contain a key", path_),
                "a key is one line of 64 hexadecimal digits");
  return out;
}

// With the key that it names, or the error of the first one.
Result<std::string> SecretKeeper::unsealed(const std::string& sealed,
                                           const std::string& owner) const {
  const auto all = BILLOW_TRY(keys());
  const std::string_view needs = seal_key_of(sealed);
  for (const std::string& key : all)
    if (seal_key_name(key) == needs)
      return unseal(key, sealed, owner);
  return unseal(all.front(), sealed, owner);
}

Result<std::string> SecretKeeper::sealed(const control::State& state,
                                         ProjectId project,
                                         const std::string& name,
                                         std::string_view value) {
  if (!file_exists(path_)) {
    for (const auto& [id, secret] : state.secrets)
      if (id != std::pair(project, name) && !secret.sealed.empty())
        return pass(keys().error());
    for (const auto& [id, pool] : state.pools)
      if (!pool.sealed_credential.empty())
        return pass(keys().error());
    BILLOW_TRY_VOID(write_file_atomic(path_, hex(random_bytes(seal_key_bytes)) + "\n", 0600, true));
    log_info("the key of this installation's secrets is {}: keep a copy apart from the backups",
             path_);
  }
  return seal(BILLOW_TRY(keys()).front(), value, belongs_to(project, name));
}

Result<std::string> SecretKeeper::opened(const std::string& name, const std::string& sealed) const {
  return unsealed(sealed, belongs_to(ProjectId{}, name));
}

Result<std::string> SecretKeeper::credential_of(const Pool& pool) const {
  if (pool.sealed_credential.empty())
    return std::string();
  auto value =
      unsealed(pool.sealed_credential, belongs_to(ProjectId{}, pool_secret_name(pool.name)));
  if (!value)
    return pass(std::move(value.error()), fmt::format("the API key of pool {}", pool.name));
  return value;
}

std::string SecretKeeper::trouble_with(const Secret& secret) const {
  if (!secret.reference.empty())
    return "";
  auto value = unsealed(secret.sealed, belongs_to(secret.project, secret.name));
  if (!value)
    return value.error().message;
  wipe(*value);
  return "";
}

Status SecretKeeper::check_login(const Secret& secret) const {
  if (!secret.reference.empty())
    return {};
  auto value = unsealed(secret.sealed, belongs_to(secret.project, secret.name));
  if (!value)
    return {};
  const Status checked = check_registry_login(secret.name, *value);
  wipe(*value);
  return checked;
}

// ---- values in backends

const Secret* SecretKeeper::in_backend(ProjectId project, const std::string& name) const {
  const auto found = durable_.find({project, name});
  return found == durable_.end() || found->second.reference.empty() ? nullptr : &found->second;
}

void SecretKeeper::forget(TaskId task) {
  const auto found = fetched_.find(task);
  if (found == fetched_.end())
    return;
  for (auto& [name, value] : found->second)
    if (value)
      wipe(*value);
  fetched_.erase(found);
}

// ---- a new key

bool SecretKeeper::is_rotating() const {
  const auto all =
      file_exists(path_) ? keys() : Result<std::vector<std::string>>(std::vector<std::string>{});
  return all && all->size() > 1;
}

Status SecretKeeper::begin_rotation() {
  const auto all = BILLOW_TRY(keys());
  if (all.size() > 1)
    return {};
  return write_file_atomic(
      path_, hex(random_bytes(seal_key_bytes)) + "\n" + hex(all.front()) + "\n", 0600, true);
}

namespace {

constexpr std::size_t resealed_at_once = 50;

// The same value under the first key. None: it is already, or it cannot be opened.
std::optional<std::string> under_first(const std::vector<std::string>& keys,
                                       const std::string& sealed,
                                       const std::string& owner,
                                       std::size_t& lost) {
  const std::string_view needs = seal_key_of(sealed);
  if (sealed.empty() || needs == seal_key_name(keys.front()))
    return std::nullopt;
  for (const std::string& key : keys)
    if (seal_key_name(key) == needs)
      if (auto anew = rewrap(key, keys.front(), sealed, owner))
        return std::move(*anew);
  ++lost;
  return std::nullopt;
}

}  // namespace

ResealSecrets SecretKeeper::next_to_reseal(const control::State& state, std::size_t& lost) const {
  ResealSecrets out;
  lost = 0;
  const auto all = keys();
  if (!all)
    return out;
  for (const auto& [id, secret] : state.secrets) {
    if (out.secrets.size() == resealed_at_once)
      return out;
    if (auto anew = under_first(*all, secret.sealed, belongs_to(id.first, id.second), lost)) {
      out.was.push_back({id.first, id.second, secret.sealed});
      out.secrets.push_back({id.first, id.second, std::move(*anew)});
    }
  }
  for (const auto& [id, pool] : state.pools)
    if (auto anew = under_first(*all, pool.sealed_credential,
                                belongs_to(ProjectId{}, pool_secret_name(pool.name)), lost)) {
      out.pools_were.push_back({id, pool.sealed_credential});
      out.pools.push_back({id, std::move(*anew)});
    }
  return out;
}

Status SecretKeeper::end_rotation(const control::State& state) {
  const auto all = BILLOW_TRY(keys());
  if (all.size() == 1)
    return {};
  // What no key here opens does not keep any.
  const auto needs_another = [&](const std::string& sealed) {
    return std::any_of(all.begin() + 1, all.end(), [&](const std::string& key) {
      return seal_key_of(sealed) == seal_key_name(key);
    });
  };
  for (const auto& [id, secret] : state.secrets)
    if (needs_another(secret.sealed))
      return fail(Code::conflict, fmt::format("secret {} still needs an old key", secret.name));
  for (const auto& [id, secret] : durable_)
    if (needs_another(secret.sealed))
      return fail(Code::conflict, fmt::format("secret {} still needs an old key", secret.name));
  for (const auto& [id, pool] : state.pools)
    if (needs_another(pool.sealed_credential))
      return fail(Code::conflict, fmt::format("pool {} still needs an old key", pool.name));
  return write_file_atomic(path_, hex(all.front()) + "\n", 0600, true);
}

Result<std::string> SecretKeeper::value_of(const control::State& state,
                                           ProjectId project,
                                           TaskId task,
                                           const std::string& name) const {
  const auto found = durable_.find({project, name});
  if (found == durable_.end())
    return fail(
        Code::not_found,
        fmt::format("project {} no longer has the secret {}; to set it again: billow secret set {}",
                    state.projects.at(project).name, name, name));
  Result<std::string> value = fail(Code::unavailable, "its value was not fetched");
  if (found->second.reference.empty()) {
    value = unsealed(found->second.sealed, belongs_to(project, name));
  } else if (const auto given = fetched_.find(task); given != fetched_.end()) {
    if (const auto one = given->second.find(name); one != given->second.end())
      value = one->second;
  }
  if (!value)
    return pass(std::move(value.error()), fmt::format("secret {}", name));
  return value;
}

std::function<void()> SecretKeeper::heard(const Event& event) {
  if (const auto* e = get_if<TaskEnded>(&event.body))
    forget(e->task);
  if (const auto* e = get_if<SecretSet>(&event.body))
    return [this, secret = e->secret] {
      durable_[{secret.project, secret.name}] = secret;
    };
  if (const auto* e = get_if<SecretsResealed>(&event.body))
    return [this, secrets = e->secrets] {
      for (const ResealedSecret& each : secrets)
        if (const auto found = durable_.find({each.project, each.name}); found != durable_.end())
          found->second.sealed = each.sealed;
    };
  if (const auto* e = get_if<SecretRemoved>(&event.body))
    return [this, of = std::pair(e->project, e->name)] {
      durable_.erase(of);
    };
  return {};
}

void SecretKeeper::fill(const control::State& state,
                        wire::agent_v1::Start& start,
                        bool confidential) {
  start.secrets.clear();
  start.registry_login = {};
  const Job* job = state.find_job(start.job);
  const std::string& registry_secret = start.surroundings.registry_secret;
  if (!job || (start.surroundings.secrets.empty() && registry_secret.empty()))
    return forget(start.task);
  // Neither a variable nor a file: why there is none. The agent ends the task with that, and
  // nothing runs.
  const auto refuse = [&](std::string why) {
    start.secrets = {{"", "", std::move(why)}};
    start.registry_login = {};
    forget(start.task);
  };
  if (!confidential)
    return refuse(
        "its secrets cannot be sent: the connection between the head and this node is not "
        "encrypted");
  for (const SecretWish& wish : start.surroundings.secrets) {
    auto value = value_of(state, job->project, start.task, wish.name);
    if (!value)
      return refuse(value.error().message);
    if (wish.file.empty() && value->find('\0') != std::string::npos)
      return refuse(
          fmt::format("secret {} contains a zero byte and cannot be a variable; use it as a file: "
                      "--secret {}:file",
                      wish.name, wish.name));
    start.secrets.push_back({wish.variable, wish.file,
                             base64(*value)});  // a value may be any bytes, and the frame is text
    wipe(*value);
  }
  if (!registry_secret.empty()) {
    auto value = value_of(state, job->project, start.task, registry_secret);
    if (!value)
      return refuse(value.error().message);
    start.registry_login = {registry_secret, base64(*value)};
    wipe(*value);
  }
  forget(start.task);
}

}  // namespace billow::head
