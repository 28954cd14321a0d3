// How much of asynchronous calls may wait and be kept, and how much of them may be on the line
// between a gateway and the head at once. Callers of an open endpoint are anybody: together they
// get a part of what the others get, so that they cannot use it up.
//
// Bodies are in the head's memory as base64 text (4 bytes for 3), which is what is counted here,
// headers included.
#pragma once

#include <cstddef>

namespace billow::limits {

// Waiting, async_calls_max at most. Who is beyond one of these is told to come back; a project has
// its sure part whatever others have filled.
inline constexpr std::size_t async_waiting_bytes_max = 256 << 20;
inline constexpr std::size_t async_waiting_of_endpoint_max = 2'500;
inline constexpr std::size_t async_waiting_of_endpoint_bytes_max = 64 << 20;
inline constexpr std::size_t async_waiting_of_open_max = 2'500;  // all open endpoints together
inline constexpr std::size_t async_waiting_of_open_bytes_max = 64 << 20;
inline constexpr std::size_t async_waiting_of_open_endpoint_max = 500;
inline constexpr std::size_t async_waiting_of_open_endpoint_bytes_max = 16 << 20;
inline constexpr std::size_t async_sure_of_project = 100;
inline constexpr std::size_t async_sure_of_project_bytes = 4 << 20;

// Kept answers, async_calls_max at most. Beyond it the endpoint that has most loses its oldest.
inline constexpr std::size_t async_kept_bytes_max = 256 << 20;

// Carried out at once by the gateway; the head shows it no more of one endpoint.
inline constexpr std::size_t async_under_way_of_endpoint_max = 256;
inline constexpr std::size_t async_under_way_max = 1024;

// On the line: 64 MiB may be queued there, and base64 makes three bytes four.
inline constexpr std::size_t async_accepted_at_once_bytes_max = 24 << 20;
inline constexpr std::size_t async_accepted_at_once_first_bytes_max =
    40 << 20;  // for endpoints that have nothing on it yet
inline constexpr std::size_t async_accepted_at_once_of_endpoint_bytes_max = 16 << 20;
inline constexpr std::size_t async_accepted_at_once_of_open_endpoint_bytes_max = 4 << 20;
inline constexpr std::size_t async_recorded_at_once_bytes_max = 8 << 20;
inline constexpr std::size_t async_fetched_at_once_max = 8;  // calls from the head, a body each
inline constexpr std::size_t async_asked_at_once_max = 16;   // answers for clients
inline constexpr std::size_t async_asking_max = 1'000;  // clients who wait for their turn to ask

}  // namespace billow::limits
