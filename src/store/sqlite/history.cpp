#include "store/sqlite/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "store/sqlite/sqlite_db.h"

namespace billow {

const std::array<SeriesColumn, gpu_columns> gpu_series_columns = {{
    {"util_pct", 0.1},
    {"sm_active_pct", 0.1},
    {"mem_used_mib", 1},
    {"power_w", 0.1},
    {"temperature_c", 1},
    {"pcie_rx_kib_s", 1},
    {"pcie_tx_kib_s", 1},
    {"nvlink_rx_kib_s", 1},
    {"nvlink_tx_kib_s", 1},
}};
const std::array<SeriesColumn, fleet_columns> fleet_series_columns = {{
    {"util_pct", 0.1},
    {"gpus_given", 0.001},
    {"gpus", 1},
    {"power_w", 1},
    {"running", 1},
    {"queued", 1},
    {"spend_usd_per_h", 0.001},
    {"idle_usd_per_h", 0.001},
}};
const std::array<SeriesColumn, endpoint_columns> endpoint_series_columns = {{
    {"requests_per_s", 0.001},
    {"errors_per_s", 0.001},
    {"p50_ms", 0.1},
    {"p95_ms", 0.1},
    {"p99_ms", 0.1},
    {"ready", 0.01},
    {"sleeping", 0.01},
    {"cold_starts", 0.001},
    {"usd_per_hour", 0.001},
}};

namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct Ring {
  std::int64_t step_s;
  std::int64_t slots;
  unsigned number_bits;  // of Slot::mark; the bits above count the finest slots that are known
};
constexpr Ring rings[] = {{10, 720, 32}, {60, 1440, 28}, {900, 2976, 25}};
constexpr std::size_t ring_count = 3;

#pragma pack(push, 1)
struct Slot {
  // The low bits: seconds since 1970 through the step, plus one; 0 is a slot never written. The
  // high bits of a coarse slot: how many of the finest slots it is the mean of; 0, as older
  // versions wrote it: all.
  std::uint32_t mark = 0;
  std::uint16_t values[gpu_columns] = {};
};
#pragma pack(pop)
static_assert(sizeof(Slot) == 4 + 2 * gpu_columns);

constexpr std::int64_t ring_offset(std::size_t ring) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < ring; ++i)
    offset += rings[i].slots * static_cast<std::int64_t>(sizeof(Slot));
  return offset;
}
constexpr std::int64_t region_bytes = ring_offset(ring_count);

std::uint32_t number_of(std::int64_t second, const Ring& ring) {
  return static_cast<std::uint32_t>(second / ring.step_s + 1);
}

bool is_slot(const Slot& slot, std::int64_t number, const Ring& ring) {
  const std::uint64_t low = (std::uint64_t{1} << ring.number_bits) - 1;
  return (slot.mark & low) == static_cast<std::uint32_t>(number + 1);
}
// How many of the finest slots it is the mean of.
std::uint32_t known_in(const Slot& slot, const Ring& ring) {
  const auto all = static_cast<std::uint32_t>(ring.step_s / rings[0].step_s);
  const auto known = static_cast<std::uint32_t>(std::uint64_t{slot.mark} >> ring.number_bits);
  return known ? std::min(known, all) : all;
}
std::uint32_t mark_of(std::int64_t second, const Ring& ring, std::uint32_t known) {
  const auto number = std::uint64_t{number_of(second, ring)};
  return static_cast<std::uint32_t>(number | std::uint64_t{known} << ring.number_bits);
}

// Sums over slots in which each counts for as long as it knows.
struct Mean {
  GpuSampleRow sum{};
  std::array<std::uint32_t, gpu_columns> known{};  // of each column: the finest slots

  void add(const Slot& slot, const Ring& ring) {
    const std::uint32_t weight = known_in(slot, ring);
    for (std::size_t c = 0; c < gpu_columns; ++c)
      if (const double v = unpack_number(slot.values[c]); !std::isnan(v)) {
        sum[c] += v * weight;
        known[c] += weight;
      }
  }
  double of(std::size_t column) const {
    return known[column] ? sum[column] / known[column] : unknown;
  }
  std::uint32_t longest() const { return *std::ranges::max_element(known); }
};

class FileHistory final : public History {
 public:
  static Result<std::unique_ptr<History>> open(const std::string& directory) {
    BILLOW_TRY_VOID(make_directories(directory, 0700));
    auto made = std::unique_ptr<FileHistory>(new FileHistory);
    made->directory_ = directory;
    made->rings_ = Fd(::open((directory + "/rings").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!made->rings_)
      return fail_errno(directory + "/rings", errno);
    auto opened = made->open_jobs();
    if (!opened) {
      // Samples are not facts: starting with an empty history is better than not starting.
      log_warn("the history cannot be read and begins anew: {}", opened.error().message);
      made->db_.reset();
      for (const char* end : {"", "-wal", "-shm"})
        ::unlink((directory + "/jobs.db" + end).c_str());
      (void)!::ftruncate(made->rings_.get(), 0);
      BILLOW_TRY_VOID(made->open_jobs());
    }
    return std::unique_ptr<History>(std::move(made));
  }

  Status add(WallTime at, const std::vector<Sample>& samples) override {
    const std::lock_guard guard(mutex_);
    const std::int64_t second = at.ns / 1'000'000'000;
    for (const Sample& sample : samples) {
      const auto region = BILLOW_TRY(region_of(sample.key, second, true));
      if (!region)
        continue;  // more GPUs than there is space for
      Slot slot;
      slot.mark = mark_of(second, rings[0], 0);
      for (std::size_t c = 0; c < gpu_columns; ++c)
        slot.values[c] = pack_number(sample.values[c]);
      BILLOW_TRY_VOID(write_slot(*region, 0, slot));
      for (std::size_t ring = 1; ring < ring_count; ++ring)
        BILLOW_TRY_VOID(condense(*region, ring, second));
    }
    return {};
  }

  Result<SeriesAnswer> read(const std::string& key,
                            WallTime from,
                            WallTime to,
                            std::size_t points_max) const override {
    const std::lock_guard guard(mutex_);
    SeriesAnswer out;
    const std::int64_t end = to.ns / 1'000'000'000, begin = std::min(from.ns / 1'000'000'000, end),
                       now = system_clock().wall().ns / 1'000'000'000;
    std::size_t ring = 0;
    while (ring + 1 < ring_count && now - begin > rings[ring].step_s * rings[ring].slots)
      ++ring;
    const std::int64_t step = rings[ring].step_s;
    points_max = std::max<std::size_t>(1, points_max);
    const std::int64_t first = begin / step, last = end / step,
                       count = std::min(last - first + 1, rings[ring].slots);
    const std::int64_t merge =
        (count + static_cast<std::int64_t>(points_max) - 1) / static_cast<std::int64_t>(points_max);
    const std::int64_t groups_from = (last - count + 1) / merge;
    out.step = seconds(step * merge);
    out.from = {groups_from * merge * step * 1'000'000'000};
    const auto region = const_cast<FileHistory*>(this)->region_of(key, now, false);
    if (!region)
      return pass(region.error());
    std::vector<Slot> slots(static_cast<std::size_t>(rings[ring].slots));
    if (*region) {
      const ssize_t got = ::pread(rings_.get(), slots.data(), slots.size() * sizeof(Slot),
                                  **region * region_bytes + ring_offset(ring));
      if (got < 0)
        return fail_errno(directory_ + "/rings", errno);
    }
    for (std::int64_t group = groups_from; group <= last / merge; ++group) {
      Mean mean;
      for (std::int64_t n = group * merge; n < (group + 1) * merge; ++n)
        if (const Slot& slot = slots[static_cast<std::size_t>(n % rings[ring].slots)];
            is_slot(slot, n, rings[ring]))
          mean.add(slot, rings[ring]);
      GpuSampleRow& point = out.points.emplace_back();
      for (std::size_t c = 0; c < gpu_columns; ++c)
        point[c] = mean.of(c);
      out.known_s.push_back(static_cast<double>(mean.longest() * rings[0].step_s));
    }
    return out;
  }

  Status save_jobs(const std::vector<JobRecord>& jobs) override {
    const std::lock_guard guard(mutex_);
    BILLOW_TRY_VOID(db_->exec("BEGIN"));
    const Status saved = [&]() -> Status {
      // Counting a hundred thousand rows reads them all, so they are counted once and the number is
      // kept.
      if (job_count_ < 0)
        job_count_ = BILLOW_TRY(db_->scalar("SELECT count(*) FROM jobs"));
      for (const JobRecord& record : jobs) {
        BILLOW_TRY_VOID(
            db_->run("UPDATE jobs SET series = ? WHERE id = ?", record.series, record.job));
        if (BILLOW_TRY(db_->scalar("SELECT changes()")) > 0)
          continue;
        BILLOW_TRY_VOID(
            db_->run("INSERT INTO jobs (id, series) VALUES (?, ?)", record.job, record.series));
        ++job_count_;
      }
      if (const std::int64_t over =
              job_count_ - static_cast<std::int64_t>(limits::history_jobs_max);
          over > 0) {
        BILLOW_TRY_VOID(db_->run(
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY id LIMIT ?)", over));
        job_count_ -= over;
      }
      return db_->exec("COMMIT");
    }();
    if (!saved) {
      db_->rollback();
      job_count_ = -1;
    } else if (db_->wal_pages() > 1000)
      (void)db_->checkpoint();
    return saved;
  }

  Result<std::optional<JobSeries>> job(JobId id) const override {
    const std::lock_guard guard(mutex_);
    auto query = BILLOW_TRY(db_->query("SELECT series FROM jobs WHERE id = ?"));
    query.bind(id);
    if (!BILLOW_TRY(query.step()))
      return std::optional<JobSeries>();
    return std::optional(BILLOW_TRY(JobSeries::decode(query.text(0))));
  }

  std::uint64_t bytes() const override {
    std::uint64_t sum = 0;
    for (const char* name : {"/rings", "/jobs.db", "/jobs.db-wal"}) {
      struct stat info {};
      if (::stat((directory_ + name).c_str(), &info) == 0)
        sum += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
    return sum;
  }

 private:
  Status open_jobs() {
    db_ = BILLOW_TRY(sqlite::Db::open(directory_ + "/jobs.db", sqlite::Mode::read_write, 512));
    // The promised space includes the log, so the log is limited to one batch of jobs.
    BILLOW_TRY_VOID(db_->exec("PRAGMA synchronous=OFF; PRAGMA journal_size_limit=4194304"));
    BILLOW_TRY_VOID(db_->exec(
        "CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, series BLOB NOT NULL)"));
    BILLOW_TRY_VOID(
        db_->exec("CREATE TABLE IF NOT EXISTS regions (key TEXT PRIMARY KEY, region INTEGER NOT "
                  "NULL, seen INTEGER NOT NULL)"));
    regions_.clear();
    auto query = BILLOW_TRY(db_->query("SELECT key, region, seen FROM regions"));
    while (BILLOW_TRY(query.step()))
      regions_[std::string(query.text(0))] = {query.integer(1), query.integer(2)};
    return {};
  }

  // The location of a key's rings. A new key takes a free region, or that of a GPU unseen for
  // longer than its longest ring.
  Result<std::optional<std::int64_t>> region_of(const std::string& key,
                                                std::int64_t second,
                                                bool make) {
    if (const auto found = regions_.find(key); found != regions_.end()) {
      if (make && second - found->second.seen > 86400) {
        found->second.seen = second;
        BILLOW_TRY_VOID(db_->run("UPDATE regions SET seen = ? WHERE key = ?", second, key));
      }
      return std::optional(found->second.region);
    }
    if (!make)
      return std::optional<std::int64_t>();
    std::int64_t region = static_cast<std::int64_t>(regions_.size());
    if (regions_.size() > limits::history_gpus_max) {
      auto oldest = regions_.begin();
      for (auto at = regions_.begin(); at != regions_.end(); ++at)
        if (at->second.seen < oldest->second.seen)
          oldest = at;
      if (second - oldest->second.seen < rings[ring_count - 1].step_s * rings[ring_count - 1].slots)
        return std::optional<std::int64_t>();
      region = oldest->second.region;
      BILLOW_TRY_VOID(db_->run("DELETE FROM regions WHERE key = ?", oldest->first));
      regions_.erase(oldest);
      const std::string nothing(static_cast<std::size_t>(region_bytes), '\0');
      if (::pwrite(rings_.get(), nothing.data(), nothing.size(), region * region_bytes) < 0)
        return fail_errno(directory_ + "/rings", errno);
    }
    BILLOW_TRY_VOID(
        db_->run("INSERT INTO regions (key, region, seen) VALUES (?, ?, ?)", key, region, second));
    regions_[key] = {region, second};
    return std::optional(region);
  }

  Status write_slot(std::int64_t region, std::size_t ring, const Slot& slot) {
    const std::uint64_t low = (std::uint64_t{1} << rings[ring].number_bits) - 1;
    const std::int64_t place = static_cast<std::int64_t>((slot.mark & low) - 1) % rings[ring].slots;
    const ssize_t wrote = ::pwrite(rings_.get(), &slot, sizeof(slot),
                                   region * region_bytes + ring_offset(ring) +
                                       place * static_cast<std::int64_t>(sizeof(Slot)));
    return wrote == static_cast<ssize_t>(sizeof(slot)) ? Status{}
                                                       : fail_errno(directory_ + "/rings", errno);
  }

  // Recomputes the slot of a coarser ring that contains `second` from the finer slots of its
  // period.
  Status condense(std::int64_t region, std::size_t ring, std::int64_t second) {
    const Ring &fine = rings[ring - 1], &coarse = rings[ring];
    const std::int64_t first = second / coarse.step_s * coarse.step_s / fine.step_s,
                       count = coarse.step_s / fine.step_s;
    std::array<Slot, 16> slots{};
    for (std::int64_t i = 0; i < count;) {  // in one read, or two if the ring wraps
      const std::int64_t place = (first + i) % fine.slots,
                         run = std::min(count - i, fine.slots - place);
      (void)!::pread(rings_.get(), &slots[static_cast<std::size_t>(i)],
                     static_cast<std::size_t>(run) * sizeof(Slot),
                     region * region_bytes + ring_offset(ring - 1) +
                         place * static_cast<std::int64_t>(sizeof(Slot)));
      i += run;
    }
    Mean mean;
    for (std::int64_t i = 0; i < count; ++i)
      if (const Slot& slot = slots[static_cast<std::size_t>(i)]; is_slot(slot, first + i, fine))
        mean.add(slot, fine);
    Slot out;
    out.mark = mark_of(second, coarse, mean.longest());
    for (std::size_t c = 0; c < gpu_columns; ++c)
      out.values[c] = pack_number(mean.of(c));
    return write_slot(region, ring, out);
  }

  struct Region {
    std::int64_t region = 0, seen = 0;
  };
  mutable std::mutex mutex_;
  std::string directory_;
  Fd rings_;
  std::unique_ptr<sqlite::Db> db_;
  std::int64_t job_count_ = -1;  // rows of jobs; -1: not counted yet
  std::unordered_map<std::string, Region> regions_;
};

}  // namespace

Result<std::unique_ptr<History>> History::open(const std::string& directory) {
  return FileHistory::open(directory);
}

}  // namespace billow
