#include "core/model/image_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr std::size_t name_bytes_max = 512, tag_bytes_max = 128;
constexpr const char* example =
    "write it like docker.io/pytorch/pytorch:2.4, ubuntu:24.04 or host:5000/team/image@sha256:…";

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// "a", "a-b", "a__b", "a.b": separators stand between letters and digits only.
bool good_component(std::string_view text) {
  if (text.empty() || !lower_or_digit(text.front()) || !lower_or_digit(text.back()))
    return false;
  return std::all_of(
             text.begin(), text.end(),
             [](char c) { return lower_or_digit(c) || c == '.' || c == '_' || c == '-'; }) &&
         text.find("..") == std::string_view::npos;
}
bool good_registry(std::string_view text) {
  const auto colon = text.find(':');
  if (colon != std::string_view::npos && !parse_int(text.substr(colon + 1), 1, 65535))
    return false;
  const std::string_view host = text.substr(0, colon);
  if (host.empty() || !std::isalnum(static_cast<unsigned char>(host.front())) ||
      !std::isalnum(static_cast<unsigned char>(host.back())))
    return false;
  return std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-';
  });
}
bool good_tag(std::string_view text) {
  return !text.empty() && text.size() <= tag_bytes_max && word(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return word(c) || c == '.' || c == '-'; });
}
// A printable form of a name that may contain anything.
std::string shown_name(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > 80 ? "…" : "");
}

}  // namespace

bool is_image_digest(std::string_view text) {
  if (!text.starts_with("sha256:") || text.size() != 7 + 64)
    return false;
  return std::all_of(text.begin() + 7, text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<ImageName> parse_image_name(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::invalid,
                fmt::format("\"{}\" is not the name of an image: {}", shown_name(text), why),
                example);
  };
  if (text.empty())
    return refuse("it is empty");
  if (text.size() > name_bytes_max)
    return refuse("it is too long");
  if (text.front() == '-')
    return refuse("it begins with a dash, as an option does");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x21 || c == 0x7f)
      return refuse("it holds a space or a control character");
    if (static_cast<unsigned char>(c) > 0x7e)
      return refuse("it holds a character beyond ASCII");
  }
  if (text.find("://") != std::string_view::npos)
    return refuse("name the image alone, without docker:// or the like before it");
  ImageName name;
  std::string_view rest = text;
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    name.digest = rest.substr(at + 1);
    if (!is_image_digest(name.digest))
      return refuse("after @, use sha256: and 64 hexadecimal digits");
    rest = rest.substr(0, at);
  }
  // A first part with a dot, a colon or the name localhost is a registry.
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view first = rest.substr(0, slash);
    if (first == "localhost" || first.find('.') != std::string_view::npos ||
        first.find(':') != std::string_view::npos) {
      if (!good_registry(first))
        return refuse(fmt::format("\"{}\" is not a registry", shown_name(first)));
      name.registry = first;
      rest = rest.substr(slash + 1);
    }
  }
  if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
    name.tag = rest.substr(colon + 1);
    if (!good_tag(name.tag))
      return refuse(fmt::format("\"{}\" is not a tag", shown_name(name.tag)));
    rest = rest.substr(0, colon);
  }
  for (const std::string& part : split(rest, '/'))
    if (!good_component(part))
      return refuse(part.empty() ? "a part of its path is empty"
                                 : fmt::format("\"{}\" cannot be part of a path: use lower "
                                               "case letters and digits, with . _ - between",
                                               shown_name(part)));
  name.repository = rest;
  // Also in full: a name that is accepted must be one wherever it is written so.
  if (name.qualified().size() > name_bytes_max)
    return refuse("it is too long");
  return name;
}

std::string ImageName::text() const {
  return registry + (registry.empty() ? "" : "/") + repository + (tag.empty() ? "" : ":") + tag +
         (digest.empty() ? "" : "@") + digest;
}

std::string ImageName::qualified() const {
  ImageName full = *this;
  if (full.registry.empty())
    full.registry = "docker.io";
  if (full.registry == "docker.io" && full.repository.find('/') == std::string::npos)
    full.repository = "library/" + full.repository;
  if (!full.digest.empty())
    full.tag.clear();  // podman refuses both, and the digest decides
  else if (full.tag.empty())
    full.tag = "latest";
  return full.text();
}

std::string ImageName::pinned(std::string_view image_digest) const {
  ImageName full = *this;
  full.tag.clear();
  full.digest = image_digest;
  return full.text();
}

bool ImageName::on_loopback() const {
  const std::string_view host = std::string_view(registry).substr(0, registry.find(':'));
  return host == "localhost" || host.starts_with("127.");
}

Status check_registry_login(const std::string& secret, std::string_view value) {
  value = trim(value);
  const auto refused = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("secret {} {}", secret, why),
                fmt::format("set it to USER:PASSWORD: billow secret set {}", secret));
  };
  if (value.starts_with('{')) {
    const auto logins = parse_json(value);
    if (!logins || !logins->find("auths"))
      return refused("begins like an auth.json of podman or docker, but cannot be read as one");
    return {};
  }
  const auto colon = value.find(':');
  if (colon == 0 || colon == value.npos || colon + 1 == value.size() ||
      value.find_first_of(std::string_view("\n\r\0", 3)) != value.npos)
    return refused(
        "is not a login for a registry: it must be USER:PASSWORD, or an auth.json of podman or "
        "docker");
  return {};
}

}  // namespace billow
