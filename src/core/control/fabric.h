// What measured links and networks mean: when one is slow, and what to tell whoever is about to run
// a job over it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/control/state.h"

namespace billow::control {

// Labels that a node has of its links: by what the driver says when it joins, and by the last
// `billow check fabric`.
inline constexpr std::string_view label_gpu_link = "gpu-link";         // "nvlink4", "pcie5"
inline constexpr std::string_view label_gpu_mb_s = "fabric-gpu-mb-s";  // the slowest pair
inline constexpr std::string_view label_gpu_fabric = "fabric-gpu";     // "ok", "slow"
inline constexpr std::string_view label_net_mbit_s = "fabric-net-mbit-s";
inline constexpr std::string_view label_net_us = "fabric-net-us";
inline constexpr std::string_view label_net_fabric = "fabric-net";  // "ok", "slow"
inline constexpr std::string_view label_fabric_at = "fabric-at";

// Copies and streams never reach the wire's figure; less than this part of it is slow.
bool is_slow(std::int64_t measured, std::int64_t expected);
// What a handful of TCP connections should make of an interface; 0: nothing is known of it.
std::int64_t expected_stream_mbit_s(std::int64_t interface_mbit_s);
// What is wrong with a network for a gang; empty: nothing.
std::string net_verdict(std::int64_t mbit_s, std::int64_t expected_mbit_s);

// What whoever runs this job over several GPUs or nodes should know of the ways between them, a
// sentence each: of the nodes it has, or of those it could get.
std::vector<std::string> fabric_notes(const State& state, const Job& job);
// And what nobody knows of them yet; empty: everything was measured, or it does not matter.
std::string fabric_unmeasured(const State& state, const Job& job);

}  // namespace billow::control
