// One random story of a pool: the real head::Pools and Engine against a provider that keeps a meter
// of its own (provider.h). Machines die or never join; agents and heads are killed; clocks are
// stepped. In the end no machine may be left, and the books must equal the meter.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/money.h"

namespace billow::sim {

struct StoryFigures {
  std::size_t machines = 0, unjoined = 0, heads = 0, steps = 0, clock_steps = 0, jobs = 0;
  Duration idle_max;  // the longest a machine was billed without a job in one stretch
  NanoUsd metered, booked;
  std::size_t left = 0;   // machines that still run in the end
  std::size_t twins = 0;  // machines whose name another one had too
  void add(const StoryFigures& other);
};

// Adds to the figures. Empty: all held; else what was broken.
std::string tell_pool_story(std::uint64_t seed, StoryFigures& figures);

}  // namespace billow::sim
