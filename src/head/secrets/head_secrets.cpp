// The head's part in secrets: what start orders are completed with.
#include "base/log.h"
#include "head/head.h"
#include "head/secrets/gang_start.h"
#include "net/wipe.h"

namespace billow::head {

// When the engine is restored, before an agent is connected.
void Head::prepare_secrets() {
  if (!state().secrets.empty())
    net::wipe_freed_memory();
  fetcher_ = std::make_unique<SecretFetcher>(
      loop_, SecretFetcher::Options{&clock_, &keeper_,
                                    [this]() -> const control::State& { return state(); },
                                    [this](const control::Effect& e) {
                                      agents_->deliver(e);
                                    }});
  keeper_.begin(state());
  rotation_ =
      std::make_unique<KeyRotation>(loop_, KeyRotation::Options{&keeper_, [this]() -> Engine& {
                                                                  return *engine_;
                                                                }});
  warn_of_lost_secrets();
}

void Head::warn_of_lost_secrets() const {
  for (const auto& [id, secret] : state().secrets)
    if (const std::string trouble = keeper_.trouble_with(secret); !trouble.empty()) {
      log_warn("secret {} cannot be used: {}", secret.name, trouble);
      return;
    }
}

void Head::complete_start(wire::agent_v1::Start& start, bool confidential) {
  keeper_.fill(state(), start, confidential);
  complete_gang_start(notify_key_, start);
}

}  // namespace billow::head
