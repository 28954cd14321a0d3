// The part of a document that says what was asked for: jobs and arrays show it alike.
#pragma once

#include "base/json.h"
#include "core/model/job.h"

namespace billow::view {

void add_spec(Json& document, const JobSpec& spec);

}  // namespace billow::view
