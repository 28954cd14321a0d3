#include "head/secret_keeper.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sealed.h"
#include "base/text.h"

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

Result<std::string> SecretKeeper::key() const {
  if (!file_exists(path_))
    return fail(
        Code::not_found,
        fmt::format("the key of this installation's secrets is missing: {}", path_),
        "copy it from the head that created it (secrets.key in its data directory), readable "
        "by its owner only");
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return fail(Code::forbidden, fmt::format("{} can be read by others", path_),
                fmt::format("chmod 600 {}", path_));
  std::string out;
  if (!from_hex(trim(BILLOW_TRY(read_file(path_, 4096))), out) || out.size() != seal_key_bytes)
    return fail(Code::invalid, fmt::format("{} does not contain a key", path_),
                "a key is one line of 64 hexadecimal digits");
  return out;
}

Result<std::string> SecretKeeper::sealed(const control::State& state,
                                         ProjectId project,
                                         const std::string& name,
                                         std::string_view value) {
  if (!file_exists(path_)) {
    for (const auto& [id, secret] : state.secrets)
      if (id != std::pair(project, name))
        return pass(key().error());
    for (const auto& [id, pool] : state.pools)
      if (!pool.sealed_credential.empty())
        return pass(key().error());
    BILLOW_TRY_VOID(write_file_atomic(path_, hex(random_bytes(seal_key_bytes)) + "\n", 0600, true));
    log_info("the key of this installation's secrets is {}: keep a copy apart from the backups",
             path_);
  }
  return seal(BILLOW_TRY(key()), value, belongs_to(project, name));
}

Result<std::string> SecretKeeper::opened(const std::string& name, const std::string& sealed) const {
  return unseal(BILLOW_TRY(key()), sealed, belongs_to(ProjectId{}, name));
}

Result<std::string> SecretKeeper::credential_of(const Pool& pool) const {
  if (pool.sealed_credential.empty())
    return std::string();
  auto value = unseal(BILLOW_TRY(key()), pool.sealed_credential,
                      belongs_to(ProjectId{}, pool_secret_name(pool.name)));
  if (!value)
    return pass(std::move(value.error()), fmt::format("the API key of pool {}", pool.name));
  return value;
}

std::string SecretKeeper::trouble_with(const Secret& secret) const {
  const auto k = key();
  if (!k)
    return k.error().message;
  const auto value = unseal(*k, secret.sealed, belongs_to(secret.project, secret.name));
  return value ? "" : value.error().message;
}

Result<std::string> SecretKeeper::value_of(const control::State& state,
                                           ProjectId project,
                                           const SecretWish& wish) const {
  const auto found = durable_.find({project, wish.name});
  if (found == durable_.end())
    return fail(
        Code::not_found,
        fmt::format("project {} no longer has the secret {}; to set it again: billow secret set {}",
                    state.projects.at(project).name, wish.name, wish.name));
  auto value = unseal(BILLOW_TRY(key()), found->second.sealed, belongs_to(project, wish.name));
  if (!value)
    return pass(std::move(value.error()), fmt::format("secret {}", wish.name));
  if (wish.file.empty() && value->find('\0') != std::string::npos)
    return fail(Code::invalid, fmt::format("secret {} has a zero byte and cannot be a variable; "
                                           "ask for it as a file: --secret {}:file",
                                           wish.name, wish.name));
  return value;
}

std::function<void()> SecretKeeper::heard(const Event& event) {
  if (const auto* e = get_if<SecretSet>(&event.body))
    return [this, secret = e->secret] {
      durable_[{secret.project, secret.name}] = secret;
    };
  if (const auto* e = get_if<SecretRemoved>(&event.body))
    return [this, of = std::pair(e->project, e->name)] {
      durable_.erase(of);
    };
  return {};
}

void SecretKeeper::fill(const control::State& state,
                        wire::agent_v1::Start& start,
                        bool confidential) const {
  start.secrets.clear();
  const Job* job = state.find_job(start.job);
  if (!job || start.surroundings.secrets.empty())
    return;
  // Neither a variable nor a file: why there is none. The agent ends the task with that, and
  // nothing runs.
  const auto refuse = [&](std::string why) {
    start.secrets = {{"", "", std::move(why)}};
  };
  if (!confidential)
    return refuse(
        "its secrets cannot be sent: the connection between the head and this node is not "
        "encrypted");
  for (const SecretWish& wish : start.surroundings.secrets) {
    auto value = value_of(state, job->project, wish);
    if (!value)
      return refuse(value.error().message);
    start.secrets.push_back({wish.variable, wish.file,
                             base64(*value)});  // a value may be any bytes, and the frame is text
    wipe(*value);
  }
}

}  // namespace billow::head
