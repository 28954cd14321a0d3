// What `billow pool` and `billow cloud` share.
#pragma once

#include <string_view>

#include "base/result.h"
#include "client/frame/command.h"
#include "core/model/pool.h"

namespace billow::client {

inline constexpr OptionSpec pool_limit_options[] = {
    {"max-hourly", 0, "USD", "order no machine if all of the pool's would cost more per hour"},
    {"max-per-minute", 0, "N", "order at most N machines per minute (default: twice --max)"},
};
Status read_pool_limits(const Parsed& p, Pool& pool);
// `billow pool rm` and `billow cloud rm`; `what` is the word that the user used.
int remove_pool(const Parsed& p, std::string_view what);

}  // namespace billow::client
