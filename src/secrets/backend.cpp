#include "secrets/backend.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "pool/oauth/web.h"

namespace billow::secrets {
namespace {

constexpr std::size_t path_bytes_max = 512;
constexpr int tries_max = 3;
constexpr std::chrono::milliseconds first_pause{500};

// Parts of letters, digits and ._-@+= between slashes, none of which is . or ..
Status check_path(std::string_view path) {
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a path in a secret backend", shown(path)),
                "write parts of letters, digits and ._-@+= with / between them");
  };
  if (path.empty() || path.size() > path_bytes_max)
    return bad();
  for (const std::string& part : split(path, '/')) {
    if (part.empty() || part == "." || part == "..")
      return bad();
    for (const char c : part)
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            std::string_view("._-@+=").find(c) != std::string_view::npos))
        return bad();
  }
  return {};
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out(utf8_prefix(repaired_utf8(text), 200));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = ' ';
  return out;
}

Result<Reference> parse_reference(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos)
    return fail(Code::invalid, fmt::format("\"{}\" does not name a backend", shown(text)),
                "write BACKEND:PATH#KEY, such as vault:apps/train#token");
  Reference out;
  out.backend = text.substr(0, colon);
  const std::string_view rest = text.substr(colon + 1);
  const auto hash = rest.rfind('#');
  out.path = rest.substr(0, hash);
  if (hash != std::string_view::npos)
    out.key = rest.substr(hash + 1);
  BILLOW_TRY_VOID(check_name("secret backend", out.backend));
  BILLOW_TRY_VOID(check_path(out.path));
  if (hash != std::string_view::npos && (out.key.empty() || out.key.size() > 256))
    return fail(Code::invalid, "the key after # is empty or longer than 256 characters");
  return out;
}

std::string record_of(const std::string& backend) {
  return "backend/" + backend;
}

bool is_below(std::string_view path, std::string_view prefix) {
  while (prefix.ends_with('/'))
    prefix.remove_suffix(1);
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

bool opens(const BackendSettings& settings, const std::string& project, std::string_view path) {
  const auto allowed = settings.allow.find(project);
  return allowed != settings.allow.end() && is_below(path, allowed->second);
}

Status check_settings(const BackendSettings& s) {
  BILLOW_TRY_VOID(check_name("secret backend", s.name));
  if (!s.address.empty())
    BILLOW_TRY_VOID(pool::check_protected("the address", s.address));
  for (const auto& [project, prefix] : s.allow) {
    BILLOW_TRY_VOID(check_name("project", project));
    BILLOW_TRY_VOID(check_path(prefix));
  }
  switch (s.kind) {
    case BackendKind::vault:
      if (s.address.empty() || s.credential.empty())
        return fail(Code::invalid, "a Vault backend needs an address and a token",
                    "add --address https://VAULT:8200 --token-file FILE");
      return check_path(s.mount);
    case BackendKind::aws:
      return s.region.empty() ? Status(fail(Code::invalid, "an AWS backend needs a region",
                                            "add --region eu-west-1"))
                              : Status{};
    case BackendKind::google:
      return s.project.empty() ? Status(fail(Code::invalid, "a Google backend needs a project",
                                             "add --project my-project"))
                               : Status{};
  }
  return {};
}

Result<std::string> member_of(std::string value, const Reference& reference) {
  if (reference.key.empty())
    return value;
  const auto json = parse_json(value);
  const Json* member = json && json->is_object() ? json->find(reference.key) : nullptr;
  if (!member || !member->is_string())
    return fail(Code::not_found,
                fmt::format("{} has no text named \"{}\"", reference.path, reference.key));
  return member->as_string();
}

Result<std::unique_ptr<Backend>> make_backend(const BackendSettings& settings, const Clock& clock) {
  BILLOW_TRY_VOID(check_settings(settings));
  switch (settings.kind) {
    case BackendKind::vault:
      return make_vault(settings);
    case BackendKind::aws:
      return make_aws(settings);
    case BackendKind::google:
      return make_google(settings, clock);
  }
  return fail(Code::unsupported, "this kind of secret backend is not known");
}

Result<std::string> fetch_patiently(Backend& backend, const Reference& reference) {
  auto pause = first_pause;
  for (int i = 1;; ++i, pause *= 2) {
    auto value = backend.fetch(reference);
    const bool again = !value && (value.error().code == Code::unavailable ||
                                  value.error().code == Code::timed_out);
    if (!again || i == tries_max)
      return value;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace billow::secrets
