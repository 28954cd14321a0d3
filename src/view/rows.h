// The rows that a step of the core leaves in the store's query tables.
#pragma once

#include "core/control/core.h"
#include "store/rows.h"

namespace billow::view {

JobRow job_row(const control::State& state, const control::FinishedJob& finished);
// Changes the labels of an ended job: its columns, its record and its words.
Status relabel(JobRow& row, const JobsLabelled& change);
JobRow array_row(const control::State& state, const control::FinishedArray& finished);
// The words by which a job is searched, live or ended (store/job_words.h).
std::string words_of(const control::State& state, const Job& job, const std::vector<Task>& tasks);
std::string words_of(const control::State& state, const control::ArrayState& array);
LeaseRow lease_row(const control::ClosedLease& lease);
EntryRow entry_row(const ledger::Entry& entry);
NodeDayRow node_day_row(const control::NodeDay& day);

}  // namespace billow::view
