// A small fleet as the head describes it, and a screen on it without a terminal.
#pragma once

#include <string>
#include <vector>

#include "client/top/state.h"

namespace billow::client::top {

inline constexpr std::int64_t world_now_ms = 1'794'857'825'000;

inline Json json(const std::string& text) {
  auto parsed = parse_json(text);
  return parsed ? *parsed : Json();
}

// Three nodes: one in use with a sick card, one drained, one that does not answer; a running, an
// idle, a waiting, a held and a suspended job, and an array with one element.
Json world_piece();
// A state at this size that has seen the world, two minutes of samples, and the answers to what it
// asked for.
State world(Size size, const std::string& role = "admin");
// Answers everything the state asks for, as a head would.
void answer(State& state, const Effects& effects);
void press(State& state, const std::string& keys);  // letters, each a key
Effects press(State& state, KeyName key);
std::vector<std::string> lines(const State& state);
std::string text(const State& state);

}  // namespace billow::client::top
