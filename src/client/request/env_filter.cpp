#include "client/request/env_filter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.h"

extern char** environ;  // which not every system's headers declare

namespace billow::client {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z')
      c = static_cast<char>(c - 32);
  return out;
}

bool valid_variable_name(std::string_view name) {
  return !name.empty() && name.find('=') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && valid_utf8(name);
}

// Sockets and files of this session: no job misses them.
bool is_session_handle(std::string_view name) {
  constexpr std::array<std::string_view, 8> exactly = {"SSH_AUTH_SOCK",  "SSH_AGENT_PID",
                                                       "GPG_AGENT_INFO", "KRB5CCNAME",
                                                       "XAUTHORITY",     "DBUS_SESSION_BUS_ADDRESS",
                                                       "NETRC",          "KUBECONFIG"};
  const std::string text = upper(name);
  return std::find(exactly.begin(), exactly.end(), text) != exactly.end();
}

// …TOKEN, …SECRET…, …_KEY: the name of something that a program may need.
bool names_a_secret(std::string_view name) {
  constexpr std::array<std::string_view, 11> inside = {
      "SECRET",  "PASSWORD",    "PASSWD",     "PASSPHRASE",    "CREDENTIAL", "APIKEY",
      "API_KEY", "PRIVATE_KEY", "ACCESS_KEY", "AUTHORIZATION", "COOKIE"};
  // "TOKEN" only at the end: TOKENIZERS_PARALLELISM is a setting, not a secret.
  constexpr std::array<std::string_view, 9> at_end = {
      "TOKEN", "TOKENS", "_KEY", "_KEYS", "_PASS", "_PWD", "_PAT", "_DSN", "DATABASE_URL"};
  const std::string text = upper(name);
  return std::ranges::any_of(inside,
                             [&](auto part) { return text.find(part) != std::string::npos; }) ||
         std::ranges::any_of(at_end, [&](auto end) { return text.ends_with(end); });
}

}  // namespace

bool looks_like_credential(std::string_view name) {
  constexpr std::array<std::string_view, 5> at_start = {"AWS_", "AZURE_", "GCP_", "VAULT_",
                                                        "OP_SESSION"};
  const std::string text = upper(name);
  return names_a_secret(name) || is_session_handle(name) ||
         std::ranges::any_of(at_start, [&](auto start) { return text.starts_with(start); });
}

bool belongs_to_this_place(std::string_view name) {
  constexpr std::array<std::string_view, 12> here = {"_",
                                                     "SHLVL",
                                                     "OLDPWD",
                                                     "PWD",
                                                     "COLUMNS",
                                                     "LINES",
                                                     "CUDA_VISIBLE_DEVICES",
                                                     "NVIDIA_VISIBLE_DEVICES",
                                                     "HIP_VISIBLE_DEVICES",
                                                     "ROCR_VISIBLE_DEVICES",
                                                     "BILLOW_NVML",
                                                     "LISTEN_FDS"};
  for (const auto whole : here)
    if (name == whole)
      return true;
  // A job that submits jobs must not hand its own identity on.
  return name.starts_with("BILLOW_JOB") || name.starts_with("BILLOW_TASK") ||
         name.starts_with("BILLOW_RANK") || name.starts_with("BILLOW_ARRAY") ||
         name.starts_with("BILLOW_ROLE") || name.starts_with("BILLOW_GROUP_") ||
         name == "BILLOW_PORT";
}

Result<Environment> job_environment(const std::vector<std::string>& environment,
                                    const EnvChoice& choice) {
  Environment all, chosen;
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || equals == 0)
      continue;
    all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  for (const std::string& name : choice.always)
    if (const auto found = all.find(name); found != all.end() && valid_utf8(found->second))
      chosen.emplace(name, found->second);
  if (!choice.none)
    for (const auto& [name, value] : all)
      // What is not UTF-8 cannot be stored or sent; dropping one odd variable beats refusing the
      // job.
      if (!looks_like_credential(name) && !belongs_to_this_place(name) && valid_utf8(name) &&
          valid_utf8(value))
        chosen.emplace(name, value);
  for (const std::string& text : choice.named) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (!valid_variable_name(name))
      return fail(Code::invalid, fmt::format("--env-var {}: not a variable name", text),
                  "write --env-var NAME=value or --env-var NAME");
    if (equals != std::string::npos) {
      chosen[name] = text.substr(equals + 1);
    } else {
      const auto found = all.find(name);
      if (found == all.end())
        return fail(Code::invalid, fmt::format("--env-var {}: no such variable is set here", name),
                    fmt::format("give it a value: --env-var {}=…", name));
      chosen[name] = found->second;
    }
    if (!valid_utf8(chosen[name]))
      return fail(Code::invalid, fmt::format("--env-var {}: the value is not UTF-8 text", name));
  }
  return chosen;
}

std::vector<std::string> held_back(const std::vector<std::string>& environment,
                                   const Environment& chosen,
                                   const EnvChoice& choice) {
  std::vector<std::string> names;
  if (choice.none)
    return names;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (names_a_secret(name) && !chosen.contains(name) && valid_utf8(name) &&
        !name.starts_with("BILLOW_"))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** entry = ::environ; entry && *entry; ++entry)
    out.emplace_back(*entry);
  return out;
}

}  // namespace billow::client
