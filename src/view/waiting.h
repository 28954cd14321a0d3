// Why a job does not run, in words for people.
#pragma once

#include <string>

#include "base/json.h"
#include "core/control/state.h"

namespace billow::view {

struct Moment;

// Whether the job waits for capacity: it is queued, or suspended and to be resumed.
bool waits(const Job& job);
// Why a waiting job waits; for other jobs their recorded reason, which may be empty.
std::string waiting_reason(const control::State& state, const Job& job, WallTime now);
// Puts that reason into the job's document.
void add_waiting_reason(Json& document, const control::State& state, const Job& job, WallTime now);

// For a job on nodes that do not answer: which nodes, since when, and what that means for the bill.
// Empty if all its nodes answer. `billed`, because nodes go out of reach by the clock of bills.
std::string away_note(const control::State& state, const Job& job, WallTime billed);
// How long a node has not answered; zero while it answers, and for the first seconds, because a
// head that has just started has not heard from its nodes yet.
Duration away_for(const Node& node, WallTime billed);

// For a job that asks for a small share with much memory: the share that it gets and pays for, by
// its own card or the largest that it may use. Empty: it gets what it asked for.
std::string larger_slice(const control::State& state, const Job& job);

// All reasons, the expected start, and what would let the job start now. With `for_array` the job
// is the first waiting element of an array, and the reasons cover all elements that wait for the
// same.
Json explain_document(const control::State& state,
                      const Job& job,
                      const Moment& at,
                      bool for_array = false);

}  // namespace billow::view
