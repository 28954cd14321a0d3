// The options of `billow up` that say how long the journal keeps old events.
#pragma once

#include "base/result.h"
#include "client/frame/commands.h"
#include "store/retention.h"

namespace billow::client {

Status set_retention(const Parsed& parsed, Retention& retention);

}  // namespace billow::client
