// The part of a document that says what was asked for: jobs and arrays show it alike.
#pragma once

#include "base/json.h"
#include "core/model/job.h"

namespace billow::view {

void add_spec(Json& document, const JobSpec& spec);

// What readers see in place of a variable's value.
inline constexpr const char* covered = "…";
// Covers the values of variables in the `spec` of a document: variables hold passwords, so readers
// see only their names. The others of a job are not in its specification at all.
void cover_variables(Json& document);

}  // namespace billow::view
