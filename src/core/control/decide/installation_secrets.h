// Secrets of the head itself, such as the settings of identity providers: sealed and journalled
// like those of projects, but of no project, so no job can ask for them and no listing shows them.
#pragma once

namespace billow::control {

// The project that SetSecret and RemoveSecret name for them. No project can have this name.
inline constexpr const char* installation_secrets = "*";

}  // namespace billow::control
