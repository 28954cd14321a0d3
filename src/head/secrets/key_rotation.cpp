#include "head/secrets/key_rotation.h"

#include "base/log.h"

namespace billow::head {
namespace {

// Longer than any request may take from sealing a value to journalling it.
constexpr Duration old_key_kept = minutes(2);

}  // namespace

void KeyRotation::start(control::Cause cause, OnDone done) {
  if (running_)
    return done(fail(Code::conflict, "the key is already being replaced", "wait until it is done"));
  if (const Status begun = options_.keeper->begin_rotation(); !begun)
    return done(pass(begun.error()));
  running_ = true;
  cause_ = std::move(cause);
  on_done_ = std::move(done);
  count_ = {};
  reseal_some();
}

void KeyRotation::resume() {
  if (!options_.keeper->is_rotating())
    return;
  log_info("resuming an interrupted rotation of the secrets key");
  start({"head", ""}, [](const Result<Done>& done) {
    if (!done)
      log_warn("some secrets are not encrypted with the new key yet: {}", done.error().message);
  });
}

void KeyRotation::reseal_some() {
  Engine& engine = options_.engine();
  ResealSecrets next = options_.keeper->next_to_reseal(engine.state(), count_.lost);
  if (next.secrets.empty() && next.pools.empty())
    return finish(count_);
  engine.execute(std::move(next), cause_, [this, here = here_](Result<std::vector<Event>> events) {
    if (!*here)
      return;
    if (!events)
      return finish(pass(events.error()));
    for (const Event& event : *events)
      if (const auto* e = get_if<SecretsResealed>(&event.body))
        count_.resealed += e->secrets.size() + e->pools.size();
    reseal_some();
  });
}

void KeyRotation::finish(Result<Done> result) {
  running_ = false;
  if (result)
    again_ = loop_.after(old_key_kept, [this] { drop_old_keys(); });
  if (const OnDone done = std::exchange(on_done_, {}))
    done(std::move(result));
}

void KeyRotation::drop_old_keys() {
  if (running_)
    return;
  const Status ended = options_.keeper->end_rotation(options_.engine().state());
  if (ended)
    return log_info("the old secrets key is no longer needed");
  log_warn("the old secrets key is kept: {}", ended.error().message);
  // What came meanwhile with the old key is wrapped too. What no key opens keeps the old ones.
  std::size_t lost = 0;
  const ResealSecrets more = options_.keeper->next_to_reseal(options_.engine().state(), lost);
  if (!more.secrets.empty() || !more.pools.empty())
    start({"head", ""}, [](const Result<Done>&) {});
}

}  // namespace billow::head
