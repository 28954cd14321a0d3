// Secrets of the head itself, such as the settings of identity providers: sealed and journalled
// like those of projects, but of no project, so no job can ask for them and no listing shows them.
#pragma once

#include <cstdint>
#include <string>

namespace billow::control {

// The project that SetSecret and RemoveSecret name for them. No project can have this name.
inline constexpr const char* installation_secrets = "*";

// The record with the keys of a webhook (ledger::WebhookKeys), if its first key was replaced.
inline std::string webhook_keys_record(std::uint64_t webhook) {
  return "webhook." + std::to_string(webhook);
}

}  // namespace billow::control
