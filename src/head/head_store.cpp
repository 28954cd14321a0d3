#include "head/head_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/text.h"
#include "head/open_files.h"
#include "head/standby/standby_door.h"
#include "head/tls.h"
#include "net/address.h"
#include "store/data_dir.h"
#include "store/sqlite/sqlite_store.h"
#include "store/store_copy.h"

namespace billow::head {
namespace {

std::string host_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return host;
}

// What the database does not hold, and a head that takes over would miss. Said while the one that
// has it still lives.
std::vector<std::string> standby_lacks(const HeadOptions& options) {
  std::vector<std::string> out;
  if (options.files_dir.empty())
    out.push_back(
        "uploaded working directories, outputs and environments stay on the head that received "
        "them: "
        "give all heads of this store one shared directory, --files-dir DIR");
  if (const std::string key =
          options.secrets_key.empty() ? options.data_dir + "/secrets.key" : options.secrets_key;
      !file_exists(key))
    out.push_back(
        fmt::format("the secrets key is missing: if this installation has secrets, copy "
                    "secrets.key from the data directory of the leading head to {}; without it, "
                    "jobs that need a secret cannot start",
                    key));
  return out;
}

// Clients accept the leader's certificate at this head's address if it has a name that all heads
// share, or none is shown.
bool may_stand_for_leader(const HeadOptions& options) {
  return !options.tls_names.empty() || !options.tls_cert.empty() || options.plain_http;
}

// What a head does while another one leads. Its door is closed before the head listens itself.
struct Standing {
  HeadOptions& options;
  std::string identity;
  std::function<Status()> mark;
  std::unique_ptr<StandbyDoor> door;

  void add_to(PgStoreOptions& pg) {
    pg.on_waiting = [this](const std::string& holder) {
      begin(holder);
    };
    pg.on_leader_place = [this](const std::string& text) {
      if (door)
        door->lead_to(LeaderPlace::parse(text));
    };
    pg.keep_waiting = [this] {
      options.told_to_end = door && door->was_told_to_end();
      return !options.told_to_end;
    };
  }
  void begin(const std::string& holder) {
    log_info("standing by for {}, which leads", holder);
    (void)raise_open_files();
    StandbyDoor::Options passing{.identity = identity, .api = {}, .gateway = {}};
    if (may_stand_for_leader(options)) {
      passing.api = options.listen;
      passing.gateway = options.gateway_listen;
    }
    door = std::make_unique<StandbyDoor>(std::move(passing));
    std::string said;
    for (const std::string& lack : standby_lacks(options)) {
      log_warn("{}", lack);
      said += lack + "\n";
    }
    if (const Status marked = mark(); !marked)
      log_warn("{}", marked.error().message);
    if (options.ready_fd < 0)
      return;
    (void)write_all(options.ready_fd, "standby: " + holder + "\n" + said);
    ::close(options.ready_fd);
    options.ready_fd = -1;
  }
};

}  // namespace

Result<HeadStore> HeadStore::open(HeadOptions& options) {
  HeadStore out;
  out.data_dir_ = options.data_dir;
  // A head started here without --store, by a user or by a command that found none running, would
  // begin a second truth.
  const std::string marker = store_marker(options.data_dir);
  if (options.store.empty()) {
    if (file_exists(marker)) {
      const std::string where(trim(BILLOW_TRY(read_file(marker, 4096))));
      if (lock_is_held(options.data_dir + "/lock"))
        return fail(Code::conflict, fmt::format("this machine's head is a standby on {}", where),
                    "use the leading head: --head URL, or billow login URL");
      return fail(
          Code::conflict,
          fmt::format("the head of {} keeps its state in {}", options.data_dir, where),
          fmt::format(
              "start it with: billow up --store {}. To start over in the data directory, remove {}",
              where, marker));
    }
    out.store_ = BILLOW_TRY(SqliteStore::open({.data_dir = options.data_dir}));
    return out;
  }
  if (!is_postgres_url(options.store))
    return fail(Code::invalid,
                fmt::format("{} is not the URL of a store",
                            options.store.find("://") == std::string::npos
                                ? "the value of --store"
                                : options.store.substr(0, options.store.find("://")) + "://…"),
                "write it like --store postgres://user@host/billow");
  out.lock_ = BILLOW_TRY(lock_data_dir(options.data_dir));
  // Written when the store has been found there, so that a mistyped one does not lock a data
  // directory.
  const auto mark = [&options, marker]() -> Status {
    return file_exists(marker)
               ? Status{}
               : write_file_atomic(marker, shown_store(options.store) + "\n", 0600, true);
  };
  PgStoreOptions pg;
  pg.url = options.store;
  pg.holder =
      fmt::format("the head on {} (pid {}, data in {})", host_name(), ::getpid(), options.data_dir);
  // The lock on the data directory is ours, so an earlier leader with this name has ended.
  pg.identity =
      BILLOW_TRY(out.secret(options.data_dir + "/head-id", "", [] { return random_token(12); }));
  out.identity_ = pg.identity;
  pg.standby = options.standby;
  Standing standing{.options = options, .identity = pg.identity, .mark = mark, .door = nullptr};
  standing.add_to(pg);
  auto opened = BILLOW_TRY(PgStore::open(std::move(pg)));
  BILLOW_TRY_VOID(mark());
  out.pg_ = opened.get();
  out.store_ = std::move(opened);
  return out;
}

Result<std::string> HeadStore::installation() {
  const std::string name = BILLOW_TRY(
      secret(data_dir_ + "/installation", "installation", [] { return hex(random_bytes(4)); }));
  BILLOW_TRY_VOID(check_name("installation", name));
  return name;
}

Result<std::string> HeadStore::secret(const std::string& path,
                                      const std::string& name,
                                      const std::function<std::string()>& make) {
  std::string here;
  if (file_exists(path)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
      ::chmod(path.c_str(), 0600);
    here = trim(BILLOW_TRY(read_file(path, 4096)));
  }
  std::string wanted = here.empty() ? make() : here;
  if (pg_ && !name.empty())
    wanted = BILLOW_TRY(pg_->shared_secret(name, wanted));
  if (wanted != here)
    BILLOW_TRY_VOID(write_file_atomic(path, wanted + "\n", 0600, true));
  return wanted;
}

Result<Authority> HeadStore::authority(const std::string& dir) {
  Authority here = BILLOW_TRY(Authority::open(dir));
  if (!pg_)
    return here;
  const std::string wanted = BILLOW_TRY(pg_->shared_secret("authority", here.text()));
  if (wanted == here.text())
    return here;
  Authority shared = BILLOW_TRY(Authority::parse(wanted));
  // Also the current one, if a next one is announced.
  BILLOW_TRY_VOID((Authority{shared.current, std::nullopt}.save(dir)));
  BILLOW_TRY_VOID(shared.save(dir));
  return shared;
}

Status HeadStore::set_authority(const std::string& dir, const Authority& authority) {
  if (pg_)
    BILLOW_TRY_VOID(pg_->set_shared_secret("authority", authority.text()));
  return authority.save(dir);
}

void HeadStore::announce(const std::vector<std::string>& urls,
                         const std::vector<std::string>& gateways) {
  if (!pg_)
    return;
  // The first addresses that are not this machine's alone.
  LeaderPlace place{.identity = identity_};
  for (const std::string& url : urls)
    if (const auto own = net::parse_endpoint(url);
        place.api.empty() && own && !own->address.is_loopback())
      place.api = own->address.text();
  for (const std::string& address : gateways)
    if (place.gateway.empty() && !is_loopback(address))
      place.gateway = reachable_address(address);
  const auto store = [&]() -> Status {
    BILLOW_TRY(pg_->shared_secret(leader_place_name, place.text()));
    return pg_->set_shared_secret(leader_place_name, place.text());
  };
  if (const Status stored = store(); !stored)
    log_warn("standby heads do not know the address of this head: {}", stored.error().message);
}

std::string HeadStore::token_suffix() const {
  return pg_ ? "-" + sha256_hex(host_name() + data_dir_).substr(0, 8) : "";
}

}  // namespace billow::head
