// Buying, replayed: Philly's demand at a year of spot prices. See report_portfolio for the mapping.
#pragma once

#include <string>

namespace billow::advise {
void report_portfolio(const std::string& data);
}
