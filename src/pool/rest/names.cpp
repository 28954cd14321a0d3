#include "pool/rest/names.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"

namespace billow::pool::rest {
namespace {

constexpr std::size_t digits_max = 10;  // of a machine's number

bool plain(std::string_view text) {
  for (const char c : text)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
      return false;
  return true;
}

}  // namespace

MachineNames::MachineNames(const std::string& installation, std::string pool, std::size_t bytes_max)
    : pool_(std::move(pool)), prefix_(fmt::format("billow-{}-{}-", installation, pool_)) {
  if (prefix_.size() + digits_max > bytes_max || !plain(prefix_))
    prefix_ = fmt::format("billow-{}-", sha256_hex(installation + "/" + pool_).substr(0, 14));
}

std::string MachineNames::provider_name(std::string_view machine) const {
  return prefix_ + std::string(machine.substr(std::min(machine.size(), pool_.size() + 1)));
}

std::string MachineNames::machine_name(std::string_view provider_name) const {
  if (!provider_name.starts_with(prefix_))
    return {};
  const std::string_view number = provider_name.substr(prefix_.size());
  const auto parsed = parse_int(number, 1, INT64_MAX);
  if (!parsed || std::to_string(*parsed) != number)
    return {};
  return fmt::format("{}-{}", pool_, number);
}

}  // namespace billow::pool::rest
