// An event of the journal as readers of the API see it.
#pragma once

#include "base/json.h"
#include "core/model/event.h"

namespace billow::view {

// Without hashes, environment values and other secrets.
Json event_document(const Event& event);

}  // namespace billow::view
