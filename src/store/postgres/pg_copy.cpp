// Fills a PostgreSQL store from SQLite, writes it to a file, and fills it from one. The tables and
// columns are read from the databases, so a new one needs no change here. The receiving side keeps
// every head out with one lock and does everything in one transaction.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/restored.h"
#include "base/text.h"
#include "store/data_dir.h"
#include "store/postgres/pg_schema.h"
#include "store/queued_journal.h"
#include "store/sqlite/migrations.h"
#include "store/sqlite/sqlite_db.h"
#include "store/store_copy.h"

namespace billow {
namespace {

constexpr std::size_t block_bytes = 1 << 20;  // hashed and sent at a time
constexpr std::string_view magic = "billow-backup 2";
constexpr std::string_view older_magic = "billow-backup 1";  // without limits of the journal
constexpr std::string_view end_word = "billow-backup-end ";
constexpr std::size_t end_bytes = end_word.size() + 64 + 1;

void note(CopyReport& report, std::string_view table, std::uint64_t rows) {
  if (table == "events")
    report.events = rows;
  if (table == "jobs")
    report.jobs = rows;
  if (table == "leases")
    report.leases = rows;
}

bool plain_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// A value as a cell of COPY's text form.
void append_cell(std::string& line, std::string_view value) {
  for (const char c : value) {
    if (c == '\\')
      line += "\\\\";
    else if (c == '\n')
      line += "\\n";
    else if (c == '\r')
      line += "\\r";
    else if (c == '\t')
      line += "\\t";
    else
      line += c;
  }
}

// The receiving side: empty, locked against heads, with tables of the given format, in an open
// transaction.
Result<std::unique_ptr<pg::Db>> open_empty(const std::string& url, std::int64_t format) {
  auto db = BILLOW_TRY(pg::Db::connect(url));
  BILLOW_TRY_VOID(pg::prepare_lease(*db));
  const auto occupied = [&] {
    return fail(Code::conflict, fmt::format("{} holds a store already", pg::shown(url)),
                "use an empty database: nothing is written over");
  };
  if (BILLOW_TRY(pg::checked_format(*db)) > 0 &&
      BILLOW_TRY(db->scalar("SELECT count(*) FROM (SELECT 1 FROM events LIMIT 1) AS any_event")) >
          0)
    return occupied();
  BILLOW_TRY_VOID(
      db->exec("SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '3s'; BEGIN; LOCK "
               "TABLE leader IN ACCESS EXCLUSIVE MODE"));
  if (BILLOW_TRY(db->scalar("SELECT count(*) FROM leader WHERE until > clock_timestamp()")) > 0)
    return fail(Code::conflict, fmt::format("a head leads on {}", pg::shown(url)),
                "end it first, or use another database");
  BILLOW_TRY_VOID(pg::migrate(*db, format));
  if (BILLOW_TRY(db->scalar("SELECT count(*) FROM (SELECT 1 FROM events LIMIT 1) AS any_event")) >
      0)
    return occupied();
  return db;
}

// Of `meta` the limits that an operator chose; the rest is of one store alone.
std::string rows_of(const std::string& table) {
  return table == "meta" ? table + " WHERE key NOT IN ('format', 'epoch')" : table;
}

// Writes rows into one table, a block at a time.
class Loader {
 public:
  static Result<Loader> begin(pg::Db& db, const std::string& table, const std::string& columns) {
    // At most the initial sums of a new store.
    BILLOW_TRY_VOID(db.exec(fmt::format("DELETE FROM {}", rows_of(table))));
    BILLOW_TRY_VOID(db.copy_in_begin(fmt::format("COPY {} ({}) FROM STDIN", table, columns)));
    return Loader(db);
  }
  Status line(std::string_view text) {  // with its newline
    lines_ += text;
    ++rows;
    return lines_.size() < block_bytes ? Status() : send();
  }
  Status end() {
    BILLOW_TRY_VOID(send());
    return db_->copy_in_end();
  }
  std::uint64_t rows = 0;

 private:
  explicit Loader(pg::Db& db) : db_(&db) {}
  Status send() {
    if (lines_.empty())
      return {};
    BILLOW_TRY_VOID(db_->copy_in(lines_));
    lines_.clear();
    return {};
  }
  pg::Db* db_;
  std::string lines_;
};

Result<std::vector<std::string>> column(sql::Db& db, const std::string& sql) {
  std::vector<std::string> out;
  auto q = BILLOW_TRY(db.query(sql));
  while (BILLOW_TRY(q.step()))
    out.emplace_back(q.text(0));
  return out;
}

Result<std::uint64_t> copy_table(sqlite::Db& from, pg::Db& to, const std::string& table) {
  const auto columns = BILLOW_TRY(
      column(from, fmt::format("SELECT name FROM pragma_table_info('{}') ORDER BY cid", table)));
  auto loader = BILLOW_TRY(Loader::begin(to, table, join(columns, ", ")));
  auto q =
      BILLOW_TRY(from.query(fmt::format("SELECT {} FROM {}", join(columns, ", "), rows_of(table))));
  std::string line;
  while (BILLOW_TRY(q.step())) {
    line.clear();
    for (int i = 0; i < static_cast<int>(columns.size()); ++i) {
      if (i > 0)
        line += '\t';
      if (q.is_null(i)) {
        line += "\\N";
        continue;
      }
      const std::string repaired = pg::repaired_text(q.text(i));
      append_cell(line, repaired.empty() ? q.text(i) : std::string_view(repaired));
    }
    line += '\n';
    BILLOW_TRY_VOID(loader.line(line));
  }
  BILLOW_TRY_VOID(loader.end());
  return loader.rows;
}

// The body of a file, written and read in blocks whose hashes are chained.
class Hashed {
 public:
  void add(std::string_view text) {
    block_ += text;
    while (block_.size() >= block_bytes)
      take(block_bytes);
  }
  std::string finish() {
    if (!block_.empty())
      take(block_.size());
    return chain_;
  }

 private:
  void take(std::size_t bytes) {
    chain_ = sha256_hex(chain_ + block_.substr(0, bytes));
    block_.erase(0, bytes);
  }
  std::string block_, chain_;
};

Status write_backup(pg::Db& db, int fd, CopyReport& report) {
  Hashed hash;
  std::string pending;
  const auto put = [&](std::string_view text) -> Status {
    hash.add(text);
    pending += text;
    if (pending.size() < block_bytes)
      return {};
    BILLOW_TRY_VOID(write_all(fd, pending));
    pending.clear();
    return {};
  };
  // One snapshot of the database for all tables; the head continues to write.
  BILLOW_TRY_VOID(db.exec("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"));
  const auto format = BILLOW_TRY(pg::checked_format(db));
  if (format == 0)
    return fail(Code::not_found, fmt::format("there is no store in {}", pg::shown(db.url())),
                "has a head run on it?");
  report.last_seq = static_cast<Seq>(BILLOW_TRY(db.scalar("SELECT max(seq) FROM events")));
  BILLOW_TRY_VOID(
      put(fmt::format("{} {} {} {}\n", magic, format,
                      BILLOW_TRY(db.scalar("SELECT epoch FROM leader")), report.last_seq)));
  for (const std::string& table :
       BILLOW_TRY(column(db,
                         "SELECT table_name FROM information_schema.tables WHERE table_schema = "
                         "'billow' AND table_name <> 'leader' ORDER BY 1"))) {
    const std::string columns = join(
        BILLOW_TRY(column(
            db, fmt::format("SELECT column_name FROM information_schema.columns WHERE table_schema "
                            "= 'billow' AND table_name = '{}' ORDER BY ordinal_position",
                            table))),
        ",");
    BILLOW_TRY_VOID(put(fmt::format("table {} {}\n", table, columns)));
    std::uint64_t rows = 0;
    BILLOW_TRY_VOID(
        db.copy_out(fmt::format("COPY (SELECT {} FROM {}) TO STDOUT", columns, rows_of(table)),
                    [&](std::string_view line) {
                      ++rows;
                      return put(line);
                    }));
    BILLOW_TRY_VOID(put("\\.\n"));
    note(report, table, rows);
  }
  BILLOW_TRY_VOID(write_all(fd, pending));
  BILLOW_TRY_VOID(write_all(fd, fmt::format("{}{}\n", end_word, hash.finish())));
  if (::fsync(fd) != 0)
    return fail_errno("backup", errno);
  return {};
}

struct CloseFile {
  void operator()(FILE* file) const { ::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

std::unexpected<Error> damaged(const std::string& path, std::string_view why) {
  return fail(Code::invalid, fmt::format("{} is not a complete backup: {}", path, why),
              "use another one");
}

// Reads and verifies the whole file before using any of it. Returns the size of its body.
Result<long> checked_body(const std::string& path, FILE* file) {
  ::fseek(file, 0, SEEK_END);
  const long body = ::ftell(file) - static_cast<long>(end_bytes);
  if (body <= static_cast<long>(magic.size()))
    return damaged(path, "it is cut short");
  ::rewind(file);
  Hashed hash;
  std::string block(block_bytes, '\0');
  for (long left = body; left > 0;) {
    const std::size_t got =
        ::fread(block.data(), 1, static_cast<std::size_t>(std::min<long>(left, block_bytes)), file);
    if (got == 0)
      return damaged(path, "it cannot be read");
    hash.add(std::string_view(block).substr(0, got));
    left -= static_cast<long>(got);
  }
  std::string end(end_bytes, '\0');
  if (::fread(end.data(), 1, end_bytes, file) != end_bytes || !end.starts_with(end_word))
    return damaged(path, "it is cut short");
  if (end != fmt::format("{}{}\n", end_word, hash.finish()))
    return damaged(path, "its contents were changed");
  ::rewind(file);
  return body;
}

class Lines {
 public:
  Lines(FILE* file, long body) : file_(file), left_(body) {}
  ~Lines() { ::free(buffer_); }
  bool next(std::string_view& line) {
    if (left_ <= 0)
      return false;
    const ssize_t size = ::getline(&buffer_, &room_, file_);
    if (size <= 0)
      return false;
    left_ -= size;
    line = {buffer_, static_cast<std::size_t>(size)};
    return true;
  }

 private:
  FILE* file_;
  long left_;
  char* buffer_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace

std::string store_marker(const std::string& data_dir) {
  return data_dir + "/store-elsewhere";
}

Result<ChainCheck> check_postgres(const std::string& url) {
  const auto db = BILLOW_TRY(pg::Db::connect(url));
  return check_chain(*db);
}

Result<CopyReport> migrate_to_postgres(const std::string& data_dir, const std::string& url) {
  if (!file_exists(data_dir + "/billow.db"))
    return fail(Code::not_found, fmt::format("there is no store in {}", data_dir),
                "name the data directory of a head: --data DIR");
  if (file_exists(store_marker(data_dir))) {
    return fail(Code::conflict,
                fmt::format("the head of {} keeps its state in {} already", data_dir,
                            trim(read_file(store_marker(data_dir), 4096).value_or("a database"))),
                fmt::format("the data directory is out of date; to migrate it anyway, remove {}",
                            store_marker(data_dir)));
  }
  const Fd lock = BILLOW_TRY(lock_data_dir(data_dir));  // a running head holds it
  auto from = BILLOW_TRY(sqlite::Db::open(data_dir + "/billow.db", sqlite::Mode::read_write, 4096));
  BILLOW_TRY_VOID(migrate(*from, data_dir));
  auto to = BILLOW_TRY(open_empty(url, format_newest()));
  CopyReport report;
  report.last_seq = static_cast<Seq>(BILLOW_TRY(from->scalar("SELECT max(seq) FROM events")));
  for (const std::string& table :
       BILLOW_TRY(column(*from,
                         "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE "
                         "'sqlite_%' ORDER BY name")))
    note(report, table, BILLOW_TRY(copy_table(*from, *to, table)));
  if (const auto snapshot = BILLOW_TRY(Snapshots(data_dir).load(report.last_seq)))
    BILLOW_TRY_VOID(pg::write_snapshot(*to, snapshot->seq, snapshot->bytes));
  // Higher than any epoch that agents have seen from heads of the old store.
  BILLOW_TRY_VOID(to->run("UPDATE leader SET epoch = GREATEST(epoch, ?) WHERE id = 1",
                          BILLOW_TRY(from->scalar("SELECT value FROM meta WHERE key = 'epoch'"))));
  BILLOW_TRY_VOID(to->exec("COMMIT"));
  BILLOW_TRY_VOID(write_file_atomic(store_marker(data_dir), pg::shown(url) + "\n", 0600, true));
  return report;
}

Result<CopyReport> backup_postgres(const std::string& url, const std::string& path) {
  if (file_exists(path))
    return fail(Code::conflict, fmt::format("{} exists already", path),
                "name a file that does not exist yet");
  auto db = BILLOW_TRY(pg::Db::connect(url));
  BILLOW_TRY_VOID(db->exec("SET idle_in_transaction_session_timeout = 0"));
  const std::string partial = path + ".partial";
  CopyReport report;
  Fd out(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out)
    return fail_errno(partial, errno);
  Status done = write_backup(*db, out.get(), report);
  if (done && ::rename(partial.c_str(), path.c_str()) != 0)
    done = fail_errno(path, errno);
  if (!done) {
    ::unlink(partial.c_str());
    return pass(std::move(done.error()), "backup");
  }
  const auto slash = path.rfind('/');
  BILLOW_TRY_VOID(sync_directory(slash == std::string::npos ? "."
                                 : slash == 0               ? "/"
                                                            : path.substr(0, slash)));
  return report;
}

Result<CopyReport> restore_postgres(const std::string& path, const std::string& url) {
  const File file(::fopen(path.c_str(), "rbe"));
  if (!file)
    return fail_errno(path, errno);
  if (file_exists(path + "/billow.db"))
    return fail(
        Code::invalid, fmt::format("{} is a backup of a data directory", path),
        fmt::format("bring it into a database with: billow store migrate --data {} URL", path));
  Lines lines(file.get(), BILLOW_TRY(checked_body(path, file.get())));
  std::string_view line;
  if (!lines.next(line) || (!line.starts_with(magic) && !line.starts_with(older_magic)))
    return damaged(path, "it is of another kind, or of a newer Billow");
  const auto head = split(trim(line.substr(magic.size())), ' ');
  const auto format = head.empty() ? Result<std::int64_t>(0) : parse_int(head[0], 1, INT32_MAX);
  const auto epoch = head.size() < 2 ? Result<std::int64_t>(0) : parse_int(head[1], 0, INT64_MAX);
  const auto last = head.size() < 3 ? Result<std::int64_t>(0) : parse_int(head[2], 0, INT64_MAX);
  if (head.size() != 3 || !format || !epoch || !last)
    return damaged(path, "its first line cannot be read");
  if (*format > format_newest())
    return fail(Code::unsupported,
                fmt::format("{} was written by a newer Billow (format {}; this one reads up to {})",
                            path, *format, format_newest()),
                "upgrade billow");
  auto db = BILLOW_TRY(open_empty(url, *format));
  CopyReport report;
  report.last_seq = static_cast<Seq>(*last);
  while (lines.next(line)) {
    const auto words = split(trim(line), ' ');
    if (words.size() != 3 || words[0] != "table" || !plain_name(words[1]))
      return damaged(path, "a table is missing");
    for (const std::string& name : split(words[2], ','))
      if (!plain_name(name))
        return damaged(path, "a column has no name");
    const std::string& table = words[1];
    auto loader = BILLOW_TRY(Loader::begin(*db, table, words[2]));
    bool ended = false;
    while (!ended && lines.next(line)) {
      ended = line == "\\.\n";
      if (!ended)
        BILLOW_TRY_VOID(loader.line(line));
    }
    BILLOW_TRY_VOID(loader.end());
    if (!ended)
      return damaged(path, "a table has no end");
    note(report, table, loader.rows);
  }
  BILLOW_TRY_VOID(db->run("UPDATE leader SET epoch = GREATEST(epoch, ?) + ? WHERE id = 1", *epoch,
                          restored_epoch_leap));
  BILLOW_TRY_VOID(db->exec("COMMIT"));
  return report;
}

}  // namespace billow
