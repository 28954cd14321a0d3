// Limits of asynchronous calls: how many may wait, how many answers are kept, and how much may be
// in transit between a gateway and the head at once. Anybody can call an open endpoint, so all open
// endpoints together get only a part of the capacity and cannot exhaust it.
//
// The head holds bodies as base64 text (4 bytes for 3). Sizes here count that text and the headers.
#pragma once

#include <cstddef>

namespace billow::limits {

// Waiting calls, async_calls_max in all. A caller beyond one of these limits is asked to retry
// later; each project has a guaranteed part that others cannot fill.
inline constexpr std::size_t async_waiting_bytes_max = 256 << 20;
inline constexpr std::size_t async_waiting_of_endpoint_max = 2'500;
inline constexpr std::size_t async_waiting_of_endpoint_bytes_max = 64 << 20;
inline constexpr std::size_t async_waiting_of_open_max = 2'500;  // all open endpoints together
inline constexpr std::size_t async_waiting_of_open_bytes_max = 64 << 20;
inline constexpr std::size_t async_waiting_of_open_endpoint_max = 500;
inline constexpr std::size_t async_waiting_of_open_endpoint_bytes_max = 16 << 20;
inline constexpr std::size_t async_sure_of_project = 100;
inline constexpr std::size_t async_sure_of_project_bytes = 4 << 20;

// Kept answers, async_calls_max in all. Beyond it the endpoint with the most loses its oldest.
inline constexpr std::size_t async_kept_bytes_max = 256 << 20;

// Calls that the gateway executes concurrently; the head hands it no more of one endpoint.
inline constexpr std::size_t async_under_way_of_endpoint_max = 256;
inline constexpr std::size_t async_under_way_max = 1024;

// In transit: the connection queues at most 64 MiB, and base64 turns three bytes into four.
inline constexpr std::size_t async_accepted_at_once_bytes_max = 24 << 20;
// For endpoints that have nothing in transit yet.
inline constexpr std::size_t async_accepted_at_once_first_bytes_max = 40 << 20;
inline constexpr std::size_t async_accepted_at_once_of_endpoint_bytes_max = 16 << 20;
inline constexpr std::size_t async_accepted_at_once_of_open_endpoint_bytes_max = 4 << 20;
inline constexpr std::size_t async_recorded_at_once_bytes_max = 8 << 20;
inline constexpr std::size_t async_fetched_at_once_max = 8;  // calls from the head, a body each
inline constexpr std::size_t async_asked_at_once_max = 16;   // answers for clients
inline constexpr std::size_t async_asking_max = 1'000;       // clients that wait to ask

}  // namespace billow::limits
