#include "client/top/update.h"

#include <algorithm>

namespace billow::client::top {
namespace {

constexpr std::int64_t message_ms_max = 12'000;
constexpr std::size_t gpus_unfolded_max = 64;

template <class... F>
struct Cases : F... {
  using F::operator()...;
};

void on_tick(State& state, const Tick& tick, Effects& out) {
  state.now_ms = tick.now_ms;
  if (!state.message.empty() && !state.acting && tick.now_ms - state.message_ms > message_ms_max)
    state.message.clear();
  if (tick.now_ms - state.sampled_ms >= sample_every.ms()) {
    state.sampled_ms = tick.now_ms;
    if (!state.away_ms)
      state.fleet.sample();
  }
  ask_for_what_is_shown(state, out);
  want_log(state, out);
}

}  // namespace

bool State::folded() const {
  if (by_node)
    return *by_node;
  std::size_t cards = 0;
  for (const auto& [id, node] : fleet.nodes)
    cards += node.cards.size();
  return cards > gpus_unfolded_max;
}

const Json& State::answer(const std::string& slot, const std::string& path) const {
  static const Json nothing;
  const auto found = asked.find(slot);
  return found != asked.end() && found->second.answered == path && !path.empty()
             ? found->second.answer
             : nothing;
}

void say_message(State& state, std::string text, bool bad) {
  state.message = std::move(text);
  state.message_bad = bad;
  state.message_ms = state.now_ms;
}

Effects update(State& state, const Event& event) {
  Effects out;
  std::visit(Cases{
                 [&](const Key& key) { on_key(state, key, out); },
                 [&](const Mouse& mouse) { on_mouse(state, mouse, out); },
                 [&](const Paste& paste) { on_paste(state, paste); },
                 [&](const Resize& resize) { state.size = resize.size; },
                 [&](const Tick& tick) { on_tick(state, tick, out); },
                 [&](const LiveBegins&) { state.fleet.begin_again(); },
                 [&](const LivePiece& live) {
                   state.away_ms.reset();
                   state.fleet.take(live.piece);
                 },
                 [&](const HeadAway&) {
                   if (!state.away_ms)
                     state.away_ms = state.now_ms;
                 },
                 [&](const Fetched& fetched) { on_fetched(state, fetched); },
                 [&](const Acted& acted) { on_acted(state, acted); },
                 [&](const LogRead& read) { on_log_read(state, read); },
             },
             event);
  settle(state);
  return out;
}

}  // namespace billow::client::top
