#include "pool/pool.h"

#include <algorithm>

#include "base/text.h"

namespace billow::pool {

std::unexpected<Refusal> refusal(const Error& error) {
  const bool unknown = error.code == Code::unavailable || error.code == Code::timed_out;
  return std::unexpected(
      Refusal{unknown ? RefusalKind::no_answer : RefusalKind::capacity, error.message});
}

Result<std::vector<MachineOffer>> Pool::offers() {
  return std::vector<MachineOffer>{};
}

Status Pool::attach(const MachineSighting&, const MachineSighting&) {
  return fail(Code::unsupported, "pools of this kind have no cache disks");
}

Result<Account> Pool::account() {
  return fail(Code::unsupported, "pools of this kind have no account");
}

std::vector<MachineSighting> strays_in(const std::vector<MachineSighting>& listed,
                                       const std::set<std::string>& known) {
  std::vector<MachineSighting> strays;
  for (const MachineSighting& machine : listed)
    if (!machine.ended && !known.contains(machine.name))
      strays.push_back(machine);
  return strays;
}

MachineSighting member_of(const MachineSighting& machine, std::size_t number) {
  const auto slash = machine.external.find('/');
  if (slash == std::string::npos || machine.external.find(',') == std::string::npos)
    return machine;
  std::vector<std::string> ids = split(std::string_view(machine.external).substr(slash + 1), ',');
  std::ranges::sort(ids);
  MachineSighting out = machine;
  if (number < ids.size())
    out.external = machine.external.substr(0, slash + 1) + ids[number];
  return out;
}

bool named_after(const std::string& machine, const std::string& pool) {
  if (!machine.starts_with(pool + "-"))
    return false;
  const auto number = parse_int(std::string_view(machine).substr(pool.size() + 1), 1, INT64_MAX);
  return number.has_value();
}

bool is_cache_of(const std::string& disk, const std::string& pool) {
  return disk.starts_with(pool + "-cache-");
}

}  // namespace billow::pool
