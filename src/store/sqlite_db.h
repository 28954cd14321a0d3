// A thin RAII layer over SQLite's C interface, for this module's sources only. A Db is one connection, used by one thread at a
// time; it keeps its prepared statements. Errors become our Error, and every way a full disk shows becomes storage_full, which
// the journal's writer acts on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"
#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace billow::sqlite {

// One use of a prepared statement: bound, stepped, read; the destructor makes the statement ready for its next use.
// Text is bound without a copy, so it must outlive the Query.
class Query {
 public:
  Query(sqlite3* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}
  Query(Query&& o) noexcept : db_(o.db_), stmt_(o.stmt_), next_parameter_(o.next_parameter_) { o.stmt_ = nullptr; }
  Query& operator=(Query&&) = delete;
  ~Query();

  void bind(std::int64_t value);
  void bind(std::string_view value);
  void bind_null();
  void bind(WallTime value) { bind(value.ns); }
  void bind(NanoUsd value) { bind(value.value); }
  template <class Tag>
  void bind(Id<Tag> id) { bind(static_cast<std::int64_t>(id.value)); }
  template <class... Args>
  void bind_all(const Args&... args) { (bind(args), ...); }

  Result<bool> step();  // false: no further row
  Status run();         // steps to the end

  std::int64_t integer(int column) const;
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  std::string_view text(int column) const;  // valid until the next step
  bool is_null(int column) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* stmt_;
  int next_parameter_ = 1;
};

enum class Mode { read_write, read_only };

class Db {
 public:
  // Sets up WAL, synchronous=FULL, foreign keys off, a page cache of `cache_kib` and no checkpoint on its own.
  static Result<std::unique_ptr<Db>> open(const std::string& path, Mode mode, int cache_kib);
  ~Db();
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  Status exec(const std::string& sql);
  // A statement from the cache. Queries that run at once with the same text need different slots.
  Result<Query> query(std::string_view sql, int slot = 0);
  // Prepares, binds and runs.
  template <class... Args>
  Status run(std::string_view sql, const Args&... args) {
    auto prepared = query(sql);
    if (!prepared) return pass(std::move(prepared.error()));
    prepared->bind_all(args...);
    return prepared->run();
  }
  // The integer of a statement's first row, or the fallback where there is none.
  Result<std::int64_t> scalar(std::string_view sql, std::int64_t fallback = 0);

  void rollback();                                // ends a transaction if one is open
  void release_memory();                          // gives the page cache back, as far as no transaction holds it
  Status checkpoint();                            // as much as readers allow, without waiting for them
  std::int64_t wal_pages() const { return wal_pages_; }  // in the WAL after the last commit of this connection
  Status copy_to(const std::string& path) const;  // a consistent copy, by the online backup interface
  const std::string& path() const { return path_; }

 private:
  explicit Db(std::string path) : path_(std::move(path)) {}
  std::string path_;
  sqlite3* db_ = nullptr;
  struct TextHash {  // looks a statement up without making a string of it
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, sqlite3_stmt*, TextHash, std::equal_to<>> statements_;
  std::int64_t wal_pages_ = 0;
};

}  // namespace billow::sqlite
