// Amounts as the files of bills write them: decimal dollars, exact.
#pragma once

#include <string>
#include <string_view>

#include "base/money.h"
#include "base/result.h"

namespace billow::ledger {

// "12.5", "-0.000000001": exact, without trailing zeros.
std::string decimal_usd(NanoUsd amount);
// Reads amounts as billing files write them, including "1.2E-7" and more than nine decimals (which
// are rounded half away from zero).
Result<NanoUsd> parse_decimal_usd(std::string_view text);

}  // namespace billow::ledger
