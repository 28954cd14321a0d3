#include "gateway/door/certificates.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "net/certs.h"

namespace billow::gateway {
namespace {

constexpr std::size_t pairs_max = 10'000;

std::string stamp_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return "";
  return fmt::format("{}:{}:{}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

}  // namespace

Result<std::unique_ptr<Certificates>> Certificates::create(Options options) {
  auto out = std::unique_ptr<Certificates>(new Certificates(std::move(options)));
  out->default_stamp_ = stamp_of(out->options_.cert) + stamp_of(out->options_.key);
  out->look();
  return out;
}

bool Certificates::look() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> here;
  bool changed = false;
  for (const std::string& directory : options_.directories) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
      const std::string kind = entry.path().extension();
      if ((kind != ".pem" && kind != ".crt") || here.size() >= pairs_max)
        continue;
      auto key = entry.path();
      key.replace_extension(".key");
      here.insert(entry.path());
      changed |= look_at(entry.path(), key);
    }
  }
  changed |=
      std::erase_if(pairs_, [&](const auto& each) { return !here.contains(each.first); }) > 0;
  if (changed)
    index();
  const std::string stamp = stamp_of(options_.cert) + stamp_of(options_.key);
  if (stamp == default_stamp_)
    return false;
  default_stamp_ = stamp;
  auto context = net::TlsContext::server({options_.cert, options_.key, true});
  if (!context) {
    log_warn("{}; the previous certificate stays in use", context.error().message);
    return false;
  }
  default_ = std::move(*context);
  log_info("the certificate {} has changed and is in use", options_.cert);
  return true;
}

// True: another pair is in use for it.
bool Certificates::look_at(const std::string& cert, const std::string& key) {
  const std::string stamp = stamp_of(cert) + stamp_of(key);
  Pair& pair = pairs_[cert];
  if (pair.stamp == stamp)
    return false;
  const bool before = !pair.stamp.empty();
  pair.stamp = stamp;  // one that is wrong is reported once
  const auto load = [&]() -> Result<Pair> {
    const std::string pem = BILLOW_TRY(read_file(cert, 1 << 20));
    const auto dates = BILLOW_TRY(net::cert_dates(pem));
    return Pair{stamp,
                BILLOW_TRY(net::cert_names(pem)),
                {dates.not_before, dates.not_after},
                BILLOW_TRY(net::TlsContext::server({cert, key, true}))};
  };
  auto loaded = load();
  if (!loaded) {
    log_warn("{}: {}{}", cert, loaded.error().message,
             pair.context ? "; the previous certificate stays in use" : "");
    return false;
  }
  pair = std::move(*loaded);
  log_info("the certificate {} {} for {}, until {}", cert,
           before ? "has changed and is in use" : "is in use", join(pair.names, ", "),
           format_utc(pair.life.until));
  return true;
}

void Certificates::index() {
  by_name_.clear();
  for (const auto& [path, pair] : pairs_) {
    if (!pair.context)
      continue;
    for (const std::string& name : pair.names) {
      const Pair*& best = by_name_[name];
      if (!best || pair.life.until > best->life.until)
        best = &pair;
    }
  }
}

// An exact name wins over a wildcard. "*.example.org" is for names with exactly one label more.
const Certificates::Pair* Certificates::best(std::string_view name) const {
  if (const auto exact = by_name_.find(name); exact != by_name_.end())
    return exact->second;
  const auto dot = name.find('.');
  if (dot == name.npos || dot == 0)
    return nullptr;
  const auto wildcard = by_name_.find("*" + std::string(name.substr(dot)));
  return wildcard == by_name_.end() ? nullptr : wildcard->second;
}

std::shared_ptr<net::TlsContext> Certificates::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const Pair* found = name.empty() ? nullptr : best(name);
  return found ? found->context : default_;
}

std::optional<Certificates::Life> Certificates::life_of(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const Pair* found = best(name);
  return found ? std::optional(found->life) : std::nullopt;
}

}  // namespace billow::gateway
