// How errors are shown: as text for people, or as JSON for programs.
#pragma once

namespace billow::client {

// From now on, errors are JSON objects on stderr: {"error", "hint", "code"}.
void report_as_json();

}  // namespace billow::client
