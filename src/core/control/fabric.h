// Judges measured links and networks: when one is slow, and what to tell the user of a job that
// depends on it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/control/state.h"

namespace billow::control {

// A node's labels about its links: from the driver when it joins, and from the last `billow check
// fabric`.
inline constexpr std::string_view label_gpu_link = "gpu-link";         // "nvlink4", "pcie5"
inline constexpr std::string_view label_gpu_mb_s = "fabric-gpu-mb-s";  // the slowest pair
inline constexpr std::string_view label_gpu_fabric = "fabric-gpu";     // "ok", "slow"
inline constexpr std::string_view label_net_mbit_s = "fabric-net-mbit-s";
inline constexpr std::string_view label_net_us = "fabric-net-us";
inline constexpr std::string_view label_net_fabric = "fabric-net";  // "ok", "slow"
inline constexpr std::string_view label_fabric_at = "fabric-at";

// Copies and streams never reach the wire's nominal rate; below this fraction a link is slow.
bool is_slow(std::int64_t measured, std::int64_t expected);
// What a few TCP connections should reach on an interface; 0: unknown.
std::int64_t expected_stream_mbit_s(std::int64_t interface_mbit_s);
// What is wrong with a network for a gang; empty if nothing is.
std::string net_verdict(std::int64_t mbit_s, std::int64_t expected_mbit_s);

// Notes for the user of a job on several GPUs or nodes about the links between them, one sentence
// each: for its nodes, or for those it could get.
std::vector<std::string> fabric_notes(const State& state, const Job& job);
// Which links have not been measured yet; empty if all have been, or if it does not matter.
std::string fabric_unmeasured(const State& state, const Job& job);

}  // namespace billow::control
