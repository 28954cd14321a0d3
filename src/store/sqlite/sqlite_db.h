// A thin RAII layer over SQLite's C interface, for this module's sources only. A Db is one
// connection, used by one thread at a time; it keeps its prepared statements. Errors become our
// Error, and every form of a full disk becomes storage_full, to which the journal's writer reacts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/sql.h"

struct sqlite3;

namespace billow::sqlite {

using Query = sql::Query;

enum class Mode {
  read_write,
  read_only,
  // For a second writer in a process that has the database open. Does not create it, because that
  // opens and closes the file, which would drop the locks of the first.
  write_too,
};

class Db final : public sql::Db {
 public:
  // Sets WAL, synchronous=FULL, foreign keys off, a page cache of `cache_kib` and no automatic
  // checkpoint.
  static Result<std::unique_ptr<Db>> open(const std::string& path, Mode mode, int cache_kib);
  ~Db() override;
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  sql::Engine engine() const override { return sql::Engine::sqlite; }
  Status exec(const std::string& sql) override;
  Result<Query> query(std::string_view sql, int slot = 0) override;

  void rollback() override;
  void release_memory();  // frees the page cache, except pages of an open transaction
  Status checkpoint();    // as much as readers allow, without waiting for them
  std::int64_t wal_pages() const {
    return wal_pages_;
  }  // in the WAL after the last commit of this connection
  Status copy_to(
      const std::string& path) const;  // a consistent copy, by the online backup interface
  const std::string& path() const { return path_; }

 private:
  explicit Db(std::string path) : path_(std::move(path)) {}
  std::string path_;
  sqlite3* db_ = nullptr;
  struct TextHash {  // looks up a statement without constructing a string
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::unordered_map<std::string, std::unique_ptr<sql::Cursor>, TextHash, std::equal_to<>>
      statements_;
  std::int64_t wal_pages_ = 0;
};

}  // namespace billow::sqlite
