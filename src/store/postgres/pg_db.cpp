#include "store/postgres/pg_db.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <algorithm>
#include <cctype>

#include <array>

#include "base/text.h"
#include "store/postgres/pg_library.h"

namespace billow::pg {
namespace {

// Commits are synchronous whatever the server's default is; all our tables are in a separate
// schema. A head that stops in the middle of a transaction (asleep, disconnected) keeps the
// leader's row locked: the server ends its session well before the lease expires.
constexpr const char* writer_settings =
    "SET synchronous_commit = on; SET client_min_messages = warning; SET search_path = billow; "
    "SET idle_in_transaction_session_timeout = '3s'";
constexpr const char* reader_settings =
    "SET client_min_messages = warning; SET search_path = billow; SET "
    "default_transaction_read_only = on; SET statement_timeout = '20s'";

constexpr int pipeline_statements_max = 256;  // their answers wait in the socket, a few kilobytes

std::string one_line(std::string_view text) {
  std::string out(trim(text));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

}  // namespace

class Statement final : public sql::Cursor {
 public:
  Statement(Db& db, std::string sql, std::string name)
      : db_(db), sql_(std::move(sql)), name_(std::move(name)) {}
  ~Statement() override { forget(); }

  void bind(int parameter, std::int64_t value) override {
    Parameter& p = at(parameter);
    p.type = type_integer;
    for (int i = 0; i < 8; ++i)
      p.number[static_cast<std::size_t>(i)] =
          static_cast<char>(static_cast<std::uint64_t>(value) >> (56 - 8 * i));
    p.data = p.number.data();
    p.size = 8;
  }
  void bind(int parameter, std::string_view value) override {
    Parameter& p = at(parameter);
    p.type = type_text;
    p.own = repaired_text(value);
    p.data = p.own.empty() ? (value.data() ? value.data() : "") : p.own.data();
    p.size = static_cast<int>(p.own.empty() ? value.size() : p.own.size());
  }
  void bind_bytes(int parameter, std::string_view value) {
    Parameter& p = at(parameter);
    p.type = type_bytes;
    p.data = value.data() ? value.data() : "";
    p.size = static_cast<int>(value.size());
  }
  void bind_null(int parameter) override {
    Parameter& p = at(parameter);
    p.type = type_integer;  // only number columns may be null
    p.data = nullptr;
    p.size = 0;
  }
  Result<bool> step() override {
    if (!result_) {
      BILLOW_TRY_VOID(ask());
      row_ = -1;
    }
    return ++row_ < library().ntuples(result_);
  }
  Status run() override {
    if (!db_.pipelined_)
      return ask();
    BILLOW_TRY_VOID(send());
    return db_.unsynced_ >= pipeline_statements_max ? db_.sync() : Status();
  }
  std::int64_t integer(int column) const override {
    return is_null(column) ? 0 : ::strtoll(library().getvalue(result_, row_, column), nullptr, 10);
  }
  std::string_view text(int column) const override {
    return {library().getvalue(result_, row_, column),
            static_cast<std::size_t>(library().getlength(result_, row_, column))};
  }
  bool is_null(int column) const override {
    return library().getisnull(result_, row_, column) != 0;
  }
  void reset() override { forget(); }

 private:
  struct Parameter {
    unsigned type = type_text;
    const char* data = nullptr;
    int size = 0;
    std::array<char, 8> number{};
    std::string own;
  };
  Parameter& at(int parameter) {
    const auto index = static_cast<std::size_t>(parameter);
    while (parameters_.size() < index)
      parameters_.push_back(std::make_unique<Parameter>());  // each keeps its address
    return *parameters_[index - 1];
  }
  void forget() {
    if (result_)
      library().clear(result_);
    result_ = nullptr;
  }
  int count() const { return static_cast<int>(parameters_.size()); }
  void collect() {
    types_.clear();
    values_.clear();
    sizes_.clear();
    for (const auto& p : parameters_) {
      types_.push_back(p->type);
      values_.push_back(p->data);
      sizes_.push_back(p->size);
    }
    binary_.assign(parameters_.size(), 1);
  }

  // Sends the statement and waits for the answer.
  Status ask() {
    forget();
    if (db_.pipelined_) {
      BILLOW_TRY_VOID(send());
      result_ = BILLOW_TRY(db_.drain());
      return {};
    }
    const bool may_repeat =
        !db_.alive() || library().transaction_status(db_.conn_) == transaction_idle;
    if (!db_.alive())
      BILLOW_TRY_VOID(db_.reconnect());
    auto answer = ask_once();
    if (!answer && may_repeat && !db_.alive() && db_.reconnect())
      answer = ask_once();
    if (!answer)
      return pass(std::move(answer.error()));
    result_ = *answer;
    return {};
  }
  Result<pg_result*> ask_once() {
    collect();
    if (prepared_on_ != db_.connection_) {
      pg_result* made =
          library().prepare(db_.conn_, name_.c_str(), sql_.c_str(), count(), types_.data());
      if (!made || library().result_status(made) != command_ok)
        return db_.failed(made, sql_);
      library().clear(made);
      prepared_on_ = db_.connection_;
    }
    pg_result* answer = library().exec_prepared(db_.conn_, name_.c_str(), count(), values_.data(),
                                                sizes_.data(), binary_.data(), 0);
    const int status = answer ? library().result_status(answer) : -1;
    if (status != command_ok && status != tuples_ok)
      return db_.failed(answer, sql_);
    return answer;
  }
  Status send() {
    if (!db_.alive())
      return db_.failed(nullptr, sql_);
    collect();
    if (prepared_on_ != db_.connection_) {
      if (library().send_prepare(db_.conn_, name_.c_str(), sql_.c_str(), count(), types_.data()) !=
          1)
        return db_.failed(nullptr, sql_);
      prepared_on_ = db_.connection_;
      db_.unprepared_.push_back(this);
      ++db_.unsynced_;
    }
    if (library().send_prepared(db_.conn_, name_.c_str(), count(), values_.data(), sizes_.data(),
                                binary_.data(), 0) != 1)
      return db_.failed(nullptr, sql_);
    ++db_.unsynced_;
    return {};
  }

  friend class Db;
  Db& db_;
  const std::string sql_, name_;
  std::uint64_t prepared_on_ = 0;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<unsigned> types_;
  std::vector<const char*> values_;
  std::vector<int> sizes_, binary_;
  pg_result* result_ = nullptr;
  int row_ = -1;
};

Db::Db(std::string url, Mode mode) : url_(std::move(url)), mode_(mode) {}

Result<std::unique_ptr<Db>> Db::connect(const std::string& url, Mode mode) {
  if (!library().problem.empty())
    return fail(Code::unsupported, library().problem,
                "install it (Debian: apt install libpq5), or keep the store in the data directory");
  std::unique_ptr<Db> db(new Db(url, mode));
  BILLOW_TRY_VOID(db->open());
  return db;
}

namespace {
// libpq repeats text that it cannot parse, which may be a password: such a URL never reaches it.
bool readable(const std::string& url) {
  const auto scheme = url.find("://");
  if (scheme == std::string::npos)
    return false;
  const std::string authority =
      url.substr(scheme + 3, url.find_first_of("/?", scheme + 3) - scheme - 3);
  for (std::size_t i = 0; i < authority.size(); ++i)
    if (authority[i] == '%' && (i + 2 >= authority.size() ||
                                !std::isxdigit(static_cast<unsigned char>(authority[i + 1])) ||
                                !std::isxdigit(static_cast<unsigned char>(authority[i + 2]))))
      return false;
  return std::count(authority.begin(), authority.end(), '@') <= 1;
}
}  // namespace

Status Db::open() {
  if (!readable(url_))
    return fail(Code::invalid, "the store's URL cannot be read",
                "write special characters of a password as %XX: @ is %40, % is %25, / is %2F");
  // Notices an unreachable server within seconds, because a standby may be waiting. Settings in the
  // URL come last and win.
  constexpr const char* keys[] = {"connect_timeout",
                                  "keepalives_idle",
                                  "keepalives_interval",
                                  "keepalives_count",
                                  "tcp_user_timeout",
                                  "fallback_application_name",
                                  "dbname",
                                  nullptr};
  const char* const values[] = {"5", "3", "1", "3", "6000", "billow", url_.c_str(), nullptr};
  conn_ = library().connect(keys, values, 1);
  ++connection_;
  unsynced_ = 0;
  if (!alive()) {
    return fail(Code::unavailable,
                fmt::format("cannot connect to {}: {}", shown(url_),
                            conn_ ? one_line(library().error_message(conn_)) : "out of memory"),
                "is PostgreSQL running there, and does it let this user in?");
  }
  BILLOW_TRY_VOID(exec(mode_ == Mode::read_only ? reader_settings : writer_settings));
  if (pipelined_ && library().enter_pipeline(conn_) != 1)
    return failed(nullptr, "entering the pipeline");
  return {};
}
Db::~Db() {
  statements_.clear();
  if (conn_)
    library().finish(conn_);
}
bool Db::alive() const {
  return conn_ && library().status(conn_) == connection_ok;
}

bool Db::in_transaction() const {
  return alive() && library().transaction_status(conn_) != transaction_idle;
}

Status Db::reconnect() {
  if (conn_)
    library().finish(conn_);
  conn_ = nullptr;
  unprepared_.clear();
  return open();
}
Status Db::pipeline() {
  pipelined_ = true;
  return library().enter_pipeline(conn_) == 1 ? Status() : failed(nullptr, "entering the pipeline");
}

std::unexpected<Error> Db::failed(pg_result* result, std::string_view doing) {
  const char* state = result ? library().result_error_field(result, sqlstate_field) : nullptr;
  const std::string code = state ? state : "";
  std::string message = one_line(result  ? library().result_error(result)
                                 : conn_ ? library().error_message(conn_)
                                         : "not connected");
  if (result)
    library().clear(result);
  // 53100 is a full disk; 57P0x and 08xxx are a lost server or connection; serialization, deadlock
  // and lock timeouts can be retried.
  if (code == "53100")
    return fail(Code::storage_full, fmt::format("no space left on PostgreSQL's disk ({})", message),
                "free some space there");
  const bool again = !alive() || code.starts_with("57P") || code.starts_with("08") ||
                     code.starts_with("53") || code == "40001" || code == "40P01" ||
                     code == "55P03" || code == "25P03";
  if (code == "25006")
    return fail(Code::unavailable,
                "PostgreSQL answers, but takes no writes: it is a replica, or read-only",
                "name the primary, or promote this one");
  return fail(again ? Code::unavailable : Code::internal,
              fmt::format("PostgreSQL: {}{}", message,
                          again ? "" : fmt::format(" (at: {})", doing.substr(0, 120))));
}

Result<pg_result*> Db::drain() {
  if (library().pipeline_sync(conn_) != 1)
    return failed(nullptr, "sending");
  Status status;
  pg_result* last = nullptr;
  for (int nothing = 0;;) {
    pg_result* result = library().get_result(conn_);
    if (!result) {  // separates two statements; several in a row mean a broken connection
      if (!alive() || ++nothing > 3) {
        if (status)
          status = fail(
              Code::unavailable,
              fmt::format("PostgreSQL: {}", alive() ? "the connection is out of step"
                                                    : one_line(library().error_message(conn_))));
        break;
      }
      continue;
    }
    nothing = 0;
    const int kind = library().result_status(result);
    if (kind == pipeline_synced) {
      library().clear(result);
      break;
    }
    if (kind == command_ok || kind == tuples_ok) {
      if (last)
        library().clear(last);
      last = result;
    } else if (kind == pipeline_aborted || !status) {
      library().clear(result);
    } else {
      status = failed(result, "writing");
    }
  }
  unsynced_ = 0;
  // Statements queued for preparation behind a failed one were not prepared.
  if (!status)
    for (Statement* statement : unprepared_)
      statement->prepared_on_ = 0;
  unprepared_.clear();
  if (status && last)
    return last;
  if (last)
    library().clear(last);
  if (!status)
    return pass(std::move(status.error()));
  return fail(Code::internal, "PostgreSQL gave no answer");
}
Status Db::sync() {
  if (unsynced_ == 0)
    return {};
  pg_result* last = BILLOW_TRY(drain());
  library().clear(last);
  return {};
}

Status Db::exec(const std::string& sql) {
  if (!alive())
    BILLOW_TRY_VOID(reconnect());
  pg_result* result = library().exec(conn_, sql.c_str());
  const int status = result ? library().result_status(result) : -1;
  if (status != command_ok && status != tuples_ok && status != empty_query)
    return failed(result, sql);
  library().clear(result);
  return {};
}

Result<sql::Query> Db::query(std::string_view sql, int slot) {
  std::string key = slot == 0 ? std::string(sql) : fmt::format("{} --{}", sql, slot);
  auto found = statements_.find(key);
  if (found == statements_.end()) {
    auto made = std::make_unique<Statement>(*this, numbered_parameters(sql),
                                            fmt::format("s{}", statements_.size()));
    found = statements_.emplace(std::move(key), std::move(made)).first;
  }
  return sql::Query(found->second.get());
}

Status Db::run_with_bytes(std::string_view sql,
                          std::int64_t first,
                          std::int64_t second,
                          std::string_view bytes) {
  auto q = BILLOW_TRY(query(sql));
  q.bind_all(first, second);
  statements_.at(std::string(sql))->bind_bytes(3, bytes);
  return q.run();
}

void Db::rollback() {
  if (!alive())
    return;
  if (pipelined_)
    (void)sync();
  if (!alive() || library().transaction_status(conn_) == transaction_idle)
    return;
  if (pipelined_) {
    if (run("ROLLBACK"))
      (void)sync();
  } else {
    (void)exec("ROLLBACK");
  }
}

Status Db::copy_out(const std::string& sql,
                    const std::function<Status(std::string_view line)>& take) {
  pg_result* begun = library().exec(conn_, sql.c_str());
  if (!begun || library().result_status(begun) != pg::copy_out)
    return failed(begun, sql);
  library().clear(begun);
  Status status;
  while (true) {
    char* line = nullptr;
    const int size = library().get_copy_data(conn_, &line, 0);
    if (size < 0)
      break;
    if (status)
      status = take({line, static_cast<std::size_t>(size)});
    library().free_memory(line);
  }
  while (pg_result* result = library().get_result(conn_)) {
    if (library().result_status(result) == command_ok)
      library().clear(result);
    else if (auto error = failed(result, sql); status)
      status = std::move(error);
  }
  return status;
}
Status Db::copy_in_begin(const std::string& sql) {
  pg_result* begun = library().exec(conn_, sql.c_str());
  if (!begun || library().result_status(begun) != pg::copy_in)
    return failed(begun, sql);
  library().clear(begun);
  return {};
}
Status Db::copy_in(std::string_view lines) {
  if (library().put_copy_data(conn_, lines.data(), static_cast<int>(lines.size())) != 1)
    return failed(nullptr, "copying");
  return {};
}
Status Db::copy_in_end() {
  if (library().put_copy_end(conn_, nullptr) != 1)
    return failed(nullptr, "copying");
  Status status;
  while (pg_result* result = library().get_result(conn_)) {
    if (library().result_status(result) == command_ok)
      library().clear(result);
    else if (auto error = failed(result, "copying"); status)
      status = std::move(error);
  }
  return status;
}

std::string shown(const std::string& url) {
  std::string out = url;
  const auto scheme = out.find("://"),
             slash = scheme == std::string::npos ? scheme : out.find_first_of("/?", scheme + 3);
  const auto at = out.rfind('@', slash);
  if (scheme != std::string::npos && at != std::string::npos && at > scheme) {
    const auto colon = out.find(':', scheme + 3);
    if (colon < at)
      out.erase(colon, at - colon);
  }
  if (const auto password = out.find("password="); password != std::string::npos)
    out.replace(password + 9,
                out.find('&', password) == std::string::npos
                    ? std::string::npos
                    : out.find('&', password) - password - 9,
                "…");
  return out;
}

std::string numbered_parameters(std::string_view sql) {
  std::string out;
  bool quoted = false;
  int highest = 0;
  for (std::size_t i = 0; i < sql.size(); ++i) {
    if (sql[i] == '\'')
      quoted = !quoted;
    if (sql[i] != '?' || quoted) {
      out += sql[i];
      continue;
    }
    int number = 0;
    while (i + 1 < sql.size() && sql[i + 1] >= '0' && sql[i + 1] <= '9')
      number = number * 10 + (sql[++i] - '0');
    if (number == 0)
      number = highest + 1;
    highest = std::max(highest, number);
    out += fmt::format("${}", number);
  }
  return out;
}

std::string repaired_text(std::string_view text) {
  if (valid_utf8(text) && text.find('\0') == std::string_view::npos)
    return {};
  std::string out;
  for (const char c : repaired_utf8(text)) {
    if (c == 0)
      out += "\xef\xbf\xbd";
    else
      out += c;
  }
  return out;
}

std::string bytes_of_hex(std::string_view text) {
  std::string out;
  if (!text.starts_with("\\x"))
    return out;
  const auto digit = [](char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
  };
  out.reserve(text.size() / 2);
  for (std::size_t i = 2; i + 1 < text.size(); i += 2)
    out += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return out;
}

}  // namespace billow::pg
