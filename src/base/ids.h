// Ids are 64-bit numbers of distinct types: a JobId is not a NodeId. Zero means "none".
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace billow {

template <class Tag>
struct Id {
  std::uint64_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(std::uint64_t v) : value(v) {}
  constexpr explicit operator bool() const { return value != 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

using JobId = Id<struct JobTag>;    // a job, an array, or one element of an array: one number space
using TaskId = Id<struct TaskTag>;  // one process tree of a job on one node; a retry is a new task
using NodeId = Id<struct NodeTag>;
using PoolId = Id<struct PoolTag>;
using ProjectId = Id<struct ProjectTag>;
using UserId = Id<struct UserTag>;
using TokenId = Id<struct TokenTag>;
using LeaseId = Id<struct LeaseTag>;
using ScheduleId = Id<struct ScheduleTag>;
using ReservationId = Id<struct ReservationTag>;
using Seq = std::uint64_t;    // position in the journal, from 1
using Epoch = std::uint64_t;  // of the leading head; agents refuse lower ones

}  // namespace billow

template <class Tag>
struct std::hash<billow::Id<Tag>> {
  std::size_t operator()(billow::Id<Tag> id) const noexcept {
    std::uint64_t x = id.value * 0x9e3779b97f4a7c15ull;  // consecutive ids land far apart
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};
