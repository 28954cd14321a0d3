// The store as a thing of its own: moved to PostgreSQL, backed up, restored. These work on files
// and databases, not through a head.
#include <stdlib.h>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "store/postgres/pg_store.h"
#include "store/store_copy.h"
#include "store/store_url.h"

namespace billow::client {
namespace {

constexpr OptionSpec store_options[] = {
    {"data", 0, "DIR",
     "data directory of the head (default: BILLOW_DATA, or the user's data directory)", false,
     Completes::directory},
    {"store", 0, "URL", "database of the head: postgres://user@host/database (BILLOW_STORE)"},
    {"store-file", 0, "FILE",
     "read the --store URL from a file that only you can read; for URLs with a password", false,
     Completes::file},
};
constexpr OptionSpec migrate_options[] = {
    {"data", 0, "DIR",
     "data directory of the head (default: BILLOW_DATA, or the user's data directory)", false,
     Completes::directory},
    {"store-file", 0, "FILE",
     "read the URL from a file that only you can read; for URLs with a password", false,
     Completes::file},
};

Status check_url(const std::string& url) {
  if (is_postgres_url(url))
    return {};
  return fail(Code::invalid, fmt::format("\"{}\" is not a PostgreSQL database", shown_store(url)),
              "use a form like postgres://user@host/billow");
}

int show(const Parsed& parsed,
         const Result<CopyReport>& done,
         std::string_view what,
         std::string_view next = "") {
  if (!done)
    return report(done.error());
  if (parsed.has("json"))
    print_json(Json::object({{"last_seq", done->last_seq},
                             {"events", done->events},
                             {"jobs", done->jobs},
                             {"leases", done->leases}}));
  else
    print(fmt::format("{}: {} events, {} jobs, {} leases\n{}", what, done->events, done->jobs,
                      done->leases, next));
  return 0;
}

int store_migrate(const Parsed& parsed) {
  auto url = parsed.has("store-file")
                 ? Result<std::string>("")
                 : one_operand(parsed, "store migrate", "database (postgres://user@host/billow)");
  if (!url)
    return report_usage(url.error());
  if (parsed.has("store-file") && !parsed.operands.empty())
    return report_usage(
        {Code::invalid, "the database is given twice", "give either a URL or --store-file"});
  (void)cover_passwords_in_arguments();
  url = store_url({.url = *url, .file = parsed.get("store-file"), .variables = false});
  if (!url)
    return report_usage(url.error());
  if (const Status ok = check_url(*url); !ok)
    return report_usage(ok.error());
  const std::string dir = data_directory(parsed.get("data"));
  return show(parsed, migrate_to_postgres(dir, *url), "copied",
              fmt::format("start the head on it with: billow up --store {}\n{}/billow.db is "
                          "unchanged, but heads no longer use it\n",
                          shown_store(*url), dir));
}

int store_backup(const Parsed& parsed) {
  const auto path = one_operand(parsed, "store backup", "file or directory to create");
  if (!path)
    return report_usage(path.error());
  const auto url = store_of(parsed, !parsed.has("data"));
  if (!url)
    return report_usage(url.error());
  const std::string dir = data_directory(parsed.get("data"));
  if (!url->empty()) {
    if (const Status ok = check_url(*url); !ok)
      return report_usage(ok.error());
    return show(parsed, backup_postgres(*url, *path), "backed up");
  }
  if (file_exists(store_marker(dir))) {
    return report({Code::invalid,
                   fmt::format("the head of {} keeps its state in {}", dir,
                               trim(read_file(store_marker(dir), 4096).value_or("a database"))),
                   "give it with --store URL or BILLOW_STORE"});
  }
  return show(parsed, backup_sqlite(dir, *path), "backed up");
}

int store_restore(const Parsed& parsed) {
  const auto path = one_operand(parsed, "store restore", "backup");
  if (!path)
    return report_usage(path.error());
  const auto url = store_of(parsed, !parsed.has("data"));
  if (!url)
    return report_usage(url.error());
  if (!url->empty()) {
    if (const Status ok = check_url(*url); !ok)
      return report_usage(ok.error());
    return show(parsed, restore_postgres(*path, *url), "restored",
                fmt::format("start a head on it with: billow up --store {}\n", shown_store(*url)));
  }
  const std::string dir = data_directory(parsed.get("data"));
  return show(parsed, restore_sqlite(*path, dir), "restored",
              fmt::format("start it with: billow up --data {}\n", dir));
}

int store_verify(const Parsed& parsed) {
  if (!parsed.operands.empty())
    return report_usage(
        {Code::invalid, "store verify takes no operands", "see --data and --store"});
  const auto url = store_of(parsed, !parsed.has("data"));
  if (!url)
    return report_usage(url.error());
  if (const Status ok = url->empty() ? Status() : check_url(*url); !ok)
    return report_usage(ok.error());
  const auto done =
      url->empty() ? check_sqlite(data_directory(parsed.get("data"))) : check_postgres(*url);
  if (!done)
    return report(done.error());
  if (parsed.has("json"))
    print_json(Json::object({{"records", done->linked() + done->without_link()},
                             {"without_link", done->without_link()},
                             {"removed", done->removed()},
                             {"last", done->last()},
                             {"link", done->link()}}));
  else
    print(fmt::format("{} records are unchanged, up to {}:{}\n", done->linked(), done->last(),
                      done->link()));
  return 0;
}

}  // namespace

Result<std::string> store_of(const Parsed& parsed, bool variables) {
  if (cover_passwords_in_arguments())
    say("warning: other users of this machine can see the database password among the arguments; "
        "use --store-file FILE, BILLOW_STORE, PGPASSWORD or ~/.pgpass");
  return store_url(
      {.url = parsed.get("store"), .file = parsed.get("store-file"), .variables = variables});
}

void add_store_commands(CommandTable& table) {
  table.push_back({.name = "store migrate",
                   .summary = "copy the store of a stopped head into an empty PostgreSQL database",
                   .example = "billow store migrate postgres://billow@db/billow",
                   .run = store_migrate,
                   .usage = "URL",
                   .options = {migrate_options},
                   .operands = Operands::some,
                   .group = "head",
                   .talks_to_head = false});
  table.push_back(
      {.name = "store backup",
       .summary = "back up a store, whether or not its head is running",
       .example = "billow store backup /backups/monday\nbillow store backup --store "
                  "postgres://billow@db/billow /backups/monday",
       .run = store_backup,
       .usage = "PATH",
       .details =
           "The backup of a data directory is a directory; the backup of a database is a file. It "
           "contains the head's secrets: keep it where only admins can read it.\n`billow up "
           "--backup-dir DIR` makes backups regularly.",
       .options = {store_options},
       .operands = Operands::some,
       .completes = Completes::file,
       .group = "head",
       .talks_to_head = false});
  table.push_back({.name = "store restore",
                   .summary = "restore a store from a backup; never over an existing one",
                   .example = "billow store restore /backups/monday --data /var/lib/billow\nbillow "
                              "store restore /backups/monday --store postgres://billow@db/billow",
                   .run = store_restore,
                   .usage = "PATH",
                   .options = {store_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = "head",
                   .talks_to_head = false});
  table.push_back({.name = "store verify",
                   .summary = "check the journal's hash chain in the store itself",
                   .example = "billow store verify --data /var/lib/billow",
                   .run = store_verify,
                   .details = "Like `billow audit verify`, but reads the files or the database "
                              "directly, whether or not a head is running.",
                   .options = {store_options},
                   .group = "head",
                   .talks_to_head = false});
}

}  // namespace billow::client
