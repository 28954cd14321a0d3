// What the store keeps of a job or array that has ended: the text in JobRow::doc. The public
// document is built from it when it is read, so that the API can change its document without
// rewriting the store, and the store never depends on the API.
//
// `form` tells the records apart. Version 0.1 stored the public document itself, which has no
// `form`; such rows are read as they are and are never rewritten.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/control/core.h"

namespace billow::view {

inline constexpr std::uint32_t stored_form = 2;

// A task and the names that only the state of that time could tell.
struct StoredTask {
  Task task;
  std::string node;
  std::string gpu_type;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("node", s.node);
    v("gpu_type", s.gpu_type);
  }
};

struct StoredJob {
  std::uint32_t form = 0;  // stored_form when written: a default would be left out
  std::string command;     // the store reads it for runs of jobs without a name (Queries::runs)
  Job job;
  std::string user;
  std::string unix_user;  // empty: the same as `user`
  std::string project;
  std::vector<StoredTask> tasks;  // of the last attempt
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("form", s.form);
    v("command", s.command);
    v("job", s.job);
    v("user", s.user);
    v("unix_user", s.unix_user);
    v("project", s.project);
    v("tasks", s.tasks);
  }
};

struct StoredArray {
  std::uint32_t form = 0;
  std::string command;
  control::ArrayState array;
  std::string user;
  std::string project;
  WallTime ended_at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("form", s.form);
    v("command", s.command);
    v("array", s.array);
    v("user", s.user);
    v("project", s.project);
    v("ended_at_ns", s.ended_at);
  }
};

// Also made of a live job, so that live and finished jobs get their document from one function.
StoredJob stored_job(const control::State& state, const Job& job, const std::vector<Task>& tasks);
StoredArray stored_array(const control::State& state,
                         const control::ArrayState& array,
                         WallTime ended_at);

// The public document of a stored row, of either form.
Result<Json> stored_document(std::string_view doc);

}  // namespace billow::view
