// A new signing key for a webhook of the installation.
#pragma once

#include "api/call.h"

namespace billow::api::money {

void rotate_webhook(CallPtr call);

}  // namespace billow::api::money
