// One connection to PostgreSQL behind the store's SQL interface, for this module's sources only.
// Values never become part of a statement.
//
// A pipelined connection sends statements that return nothing (Query::run) without waiting for the
// answer; the first error among them comes with the next step or sync. Thus a commit of a thousand
// rows costs a few round trips.
//
// Outside a transaction, a connection that finds the server gone reconnects and asks once more;
// inside one it fails with Code::unavailable: reconnect and repeat the transaction.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/sql.h"

struct pg_conn;
struct pg_result;

namespace billow::pg {

enum class Mode { read_write, read_only };

class Statement;

class Db final : public sql::Db {
 public:
  static Result<std::unique_ptr<Db>> connect(const std::string& url, Mode mode = Mode::read_write);
  ~Db() override;
  Db(const Db&) = delete;

  sql::Engine engine() const override { return sql::Engine::postgres; }
  Status exec(const std::string& sql) override;  // not on a pipelined connection
  Result<sql::Query> query(std::string_view sql, int slot = 0) override;
  void rollback() override;
  bool usable() const override { return alive(); }

  bool alive() const;
  bool in_transaction() const;
  Status reconnect();
  Status pipeline();  // from now on, also after a reconnect
  Status sync();      // waits for everything sent; returns the first error

  // For snapshots: the last parameter of the statement is bytes.
  Status run_with_bytes(std::string_view sql,
                        std::int64_t first,
                        std::int64_t second,
                        std::string_view bytes);

  // COPY … TO STDOUT and COPY … FROM STDIN, in PostgreSQL's text format; a line ends with a
  // newline.
  Status copy_out(const std::string& sql, const std::function<Status(std::string_view line)>& take);
  Status copy_in_begin(const std::string& sql);
  Status copy_in(std::string_view lines);
  Status copy_in_end();

  const std::string& url() const { return url_; }

 private:
  friend class Statement;
  Db(std::string url, Mode mode);
  Status open();
  std::unexpected<Error> failed(pg_result* result, std::string_view doing);  // takes the result
  Result<pg_result*> drain();  // reads a pipeline up to its sync: the last statement's result

  const std::string url_;
  const Mode mode_;
  pg_conn* conn_ = nullptr;
  bool pipelined_ = false;
  int unsynced_ = 0;                    // statements sent and not yet answered
  std::uint64_t connection_ = 0;        // counts connections: prepared statements belong to one
  std::vector<Statement*> unprepared_;  // sent to be prepared, not yet answered
  std::unordered_map<std::string, std::unique_ptr<Statement>> statements_;
};

// A URL without its password, for messages.
std::string shown(const std::string& url);
// "?" and "?2" in PostgreSQL's form: "$1", "$2".
std::string numbered_parameters(std::string_view sql);
// PostgreSQL's text is valid UTF-8 without zero bytes; other bytes become U+FFFD. Empty if the text
// is already valid.
std::string repaired_text(std::string_view text);
std::string bytes_of_hex(std::string_view text);  // "\x…", as bytea is shown

}  // namespace billow::pg
