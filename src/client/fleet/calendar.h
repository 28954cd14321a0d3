// Reservations as a calendar in a terminal: a line per node, a column per span of time, a letter
// per reservation.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "client/frame/table.h"

namespace billow::client {

std::string calendar_text(const std::vector<Json>& nodes,
                          const std::vector<Json>& reservations,
                          WallTime now,
                          int days,
                          const Look& look);
// One line about a project's quota.
std::string quota_text(const Json& project);

}  // namespace billow::client
