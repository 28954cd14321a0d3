#include "client/money/hourly_rate.h"

#include <string>

#include "base/money.h"

namespace billow::client {

Result<std::optional<std::int64_t>> per_second(const Parsed& p, const char* name) {
  if (!p.has(name))
    return std::optional<std::int64_t>();
  auto amount = parse_usd(p.get(name));
  if (!amount)
    return pass(amount.error(), std::string("--") + name);
  return std::optional<std::int64_t>((amount->value + 1800) / 3600);
}

}  // namespace billow::client
