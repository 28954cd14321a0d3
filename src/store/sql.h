// The store's SQL on either engine: SQLite in the data directory, or PostgreSQL. One text serves
// both, in their common dialect: `?` and `?N` for parameters, upserts with a named conflict target,
// and 64-bit integers and text as the only types (a flag is 0 or 1). These classes hide the
// differences. For this module's sources only.
//
// A Db is one connection, used by one thread at a time; it keeps its prepared statements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/result.h"

namespace billow::sql {

// An engine's prepared statement, ready for binding.
class Cursor {
 public:
  virtual ~Cursor() = default;
  virtual void bind(int parameter, std::int64_t value) = 0;  // parameters count from 1
  virtual void bind(int parameter, std::string_view value) = 0;
  virtual void bind_null(int parameter) = 0;
  virtual Result<bool> step() = 0;
  virtual Status run() = 0;
  virtual std::int64_t integer(int column) const = 0;
  virtual std::string_view text(int column) const = 0;
  virtual bool is_null(int column) const = 0;
  virtual void reset() = 0;
};

// One use of a prepared statement: bind, step, read; the destructor resets the statement for its
// next use. Text is bound without a copy, so it must outlive the Query.
class Query {
 public:
  explicit Query(Cursor* cursor) : cursor_(cursor) {}
  Query(Query&& o) noexcept : cursor_(o.cursor_), next_parameter_(o.next_parameter_) {
    o.cursor_ = nullptr;
  }
  Query& operator=(Query&&) = delete;
  ~Query() {
    if (cursor_)
      cursor_->reset();
  }

  void bind(std::int64_t value) { cursor_->bind(next_parameter_++, value); }
  void bind(std::string_view value) { cursor_->bind(next_parameter_++, value); }
  void bind_null() { cursor_->bind_null(next_parameter_++); }
  void bind(WallTime value) { bind(value.ns); }
  void bind(NanoUsd value) { bind(value.value); }
  template <class Tag>
  void bind(Id<Tag> id) {
    bind(static_cast<std::int64_t>(id.value));
  }
  template <class... Args>
  void bind_all(const Args&... args) {
    (bind(args), ...);
  }

  Result<bool> step() { return cursor_->step(); }  // false: no further row
  Status run() { return cursor_->run(); }          // steps to the end

  std::int64_t integer(int column) const { return cursor_->integer(column); }
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  std::string_view text(int column) const {
    return cursor_->text(column);
  }  // valid until the next step
  bool is_null(int column) const { return cursor_->is_null(column); }

 private:
  Cursor* cursor_;
  int next_parameter_ = 1;
};

enum class Engine { sqlite, postgres };

class Db {
 public:
  virtual ~Db() = default;
  virtual Engine engine() const = 0;
  virtual Status exec(const std::string& sql) = 0;  // may hold several statements
  // A statement from the cache. Concurrent queries with the same text need different slots.
  virtual Result<Query> query(std::string_view sql, int slot = 0) = 0;
  virtual void rollback() = 0;                  // ends a transaction if one is open
  virtual bool usable() const { return true; }  // false: must not be reused

  // Prepares, binds and runs.
  template <class... Args>
  Status run(std::string_view sql, const Args&... args) {
    auto prepared = query(sql);
    if (!prepared)
      return pass(std::move(prepared.error()));
    prepared->bind_all(args...);
    return prepared->run();
  }
  // The integer of the first row, or the fallback if there is no row.
  Result<std::int64_t> scalar(std::string_view sql, std::int64_t fallback = 0) {
    auto q = BILLOW_TRY(query(sql));
    if (!BILLOW_TRY(q.step()))
      return fallback;
    return q.is_null(0) ? fallback : q.integer(0);
  }
};

}  // namespace billow::sql
