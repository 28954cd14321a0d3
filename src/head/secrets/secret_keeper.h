// The installation's key, and what is sealed with it: the secrets of projects. The key lies in the
// data directory (or where --secrets-key says), readable by its owner only, and in nothing else:
// not in the store, so not in a backup, and not in PostgreSQL. To restore a backup elsewhere, or
// to run a standby head, copy the key too.
//
// The file has one line per key. The first one seals; others are there only while the key is being
// replaced (key_rotation.h), so that what they sealed can be opened at every moment of it.
//
// Values leave as the journal has them: the state may know of a change that a crash would still
// take back.
//
// What holds: a value is in plain only in the request that sets it and in the start order on its
// way to an agent, over a connection that nobody else can read. What cannot be given (removed,
// sealed with a key that is not here, a connection in plain) keeps the task from starting, and the
// job says why.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/control/state.h"
#include "core/model/event.h"
#include "core/wire/agent_v1.h"

namespace billow::head {

class SecretKeeper {
 public:
  explicit SecretKeeper(std::string key_path) : path_(std::move(key_path)) {}

  // Makes the key at the first secret. Never where the state has secrets of another one: those
  // would be lost silently.
  Result<std::string> sealed(const control::State& state,
                             ProjectId project,
                             const std::string& name,
                             std::string_view value);
  // What was sealed under this name for no project.
  Result<std::string> opened(const std::string& name, const std::string& sealed) const;
  // The API key of a pool (Pool::sealed_credential); empty: it has none.
  Result<std::string> credential_of(const Pool& pool) const;
  // Why it cannot be opened here; empty: it can.
  std::string trouble_with(const Secret& secret) const;
  // An error if its value cannot be the login of a registry. What is in a backend, or cannot be
  // opened, is judged when a job starts.
  Status check_login(const Secret& secret) const;
  // ---- values in backends (secret_fetcher.h)
  // Null: its value is here, or it does not exist.
  const Secret* in_backend(ProjectId project, const std::string& name) const;
  // What was fetched for the next start order of this task, by the names of its secrets.
  using Fetched = std::map<std::string, Result<std::string>>;
  void give(TaskId task, Fetched values) { fetched_[task] = std::move(values); }
  bool was_given(TaskId task) const { return fetched_.contains(task); }
  void forget(TaskId task);

  // ---- a new key
  // Puts a new key before the present one, unless a new one is there already.
  Status begin_rotation();
  bool is_rotating() const;
  // Values that are not sealed with the first key yet: some of them, sealed anew. Empty: there are
  // none left. What cannot be opened is counted and stays as it is.
  ResealSecrets next_to_reseal(const control::State& state, std::size_t& lost) const;
  // Removes the old keys from the file, if nothing durable needs them.
  Status end_rotation(const control::State& state);

  // What is durable: all of a state that was just read from the journal, then each event when it
  // is.
  void begin(const control::State& state) { durable_ = state.secrets; }
  // Answers what to call when it is durable; empty: it changes no secret. What was fetched for a
  // task that ends is forgotten at once.
  std::function<void()> heard(const Event& event);
  // Puts the values that the job asks for into its start order, or why it cannot start.
  void fill(const control::State& state, wire::agent_v1::Start& start, bool confidential);

 private:
  Result<std::vector<std::string>> keys() const;
  Result<std::string> unsealed(const std::string& sealed, const std::string& owner) const;
  Result<std::string> value_of(const control::State& state,
                               ProjectId project,
                               TaskId task,
                               const std::string& name) const;
  std::string path_;
  std::map<std::pair<ProjectId, std::string>, Secret> durable_;
  std::map<TaskId, Fetched> fetched_;
};

}  // namespace billow::head
