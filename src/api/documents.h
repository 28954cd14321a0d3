// What the API shows of jobs, nodes and people: one function per document, used for live jobs, for
// the rows of finished ones, and for every stream.
#pragma once

#include <string>

#include "base/json.h"
#include "core/control/core.h"
#include "core/wire/agent_v1.h"
#include "store/rows.h"

namespace billow::api {

class Host;

Json job_document(const control::State& state,
                  const Job& job,
                  const std::vector<Task>& tasks,
                  WallTime now);
Json live_job_document(const Host& host, const Job& job);
Json array_document(const control::State& state,
                    const control::ArrayState& array,
                    WallTime ended_at);
// A queued job's document says why it waits.
// Why a job that waits does; of others what is said of them, if anything is.
std::string waiting_reason(const control::State& state, const Job& job, WallTime now);
void add_waiting_reason(Json& document, const control::State& state, const Job& job, WallTime now);
// Why a job does not run; of an array, said of its element that waits first, for all that wait for
// the same where that can be told.
Json explain_document(const control::State& state,
                      const Job& job,
                      WallTime now,
                      bool for_array = false);
Json node_document(const control::State& state,
                   const Node& node,
                   const wire::agent_v1::Heartbeat* readings);
// What a project is promised and held to, and what it uses now.
void add_quota(Json& document, const control::State& state, const Project& project, WallTime now);
Json reservation_document(const control::State& state,
                          const Reservation& reservation,
                          WallTime now);
Json event_document(const Event& event);

// The rows a step leaves in the store.
JobRow job_row(const control::State& state, const control::FinishedJob& finished);
JobRow array_row(const control::State& state, const control::FinishedArray& finished);
LeaseRow lease_row(const control::ClosedLease& lease);
EntryRow entry_row(const ledger::Entry& entry);
NodeDayRow node_day_row(const control::NodeDay& day);

std::string job_label(const Job& job);

}  // namespace billow::api
