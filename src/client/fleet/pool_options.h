// What `billow pool` and `billow cloud` share.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/command.h"
#include "core/model/pool.h"

namespace billow::client {

inline constexpr OptionSpec pool_limit_options[] = {
    {"max-hourly", 0, "USD",
     "order no machine that would raise the pool's cost per hour above this"},
    {"max-per-minute", 0, "N", "order at most N machines per minute (default: twice --max)"},
};
// How many machines a pool has, by its document; disks do not count.
std::int64_t machines_in(const Json& pool);
// Why a pool orders no machines now, from its document; empty: it orders some.
std::string pool_remark(const Json& pool);
// Whose credentials a pool has, and what is wrong with them.
void print_account(const Json& account);
// --cache SIZE: the size of the disks that keep caches.
Status read_cache(const Parsed& p, Pool& pool);
Status read_pool_limits(const Parsed& p, Pool& pool);
// `billow pool rm` and `billow cloud rm`; `what` is the word that the user used.
int remove_pool(const Parsed& p, std::string_view what);

}  // namespace billow::client
