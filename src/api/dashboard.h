// Parts of the dashboard that the browser loads when a page needs them.
#pragma once

#include "api/call.h"

namespace billow::api::dashboard {

void asset(CallPtr call);

}  // namespace billow::api::dashboard
