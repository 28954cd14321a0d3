#include "gpumem/lower_tiers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gpumem/arena.h"
#include "gpumem/steady.h"

namespace billow::gpumem {

namespace {

constexpr std::uint64_t page = 4096;
constexpr std::int64_t stuck_ns = 5'000'000'000;
constexpr std::uint64_t disk_margin_bytes = 256u << 20;  // of the filesystem stays free
constexpr double newest_weight = 0.4;                    // of a measurement in the running rate

std::uint64_t pages(std::uint64_t bytes) {
  return (bytes + page - 1) / page * page;
}

// Private to this process and left out of core files, like the arena.
char* map_memory(std::uint64_t bytes) {
  void* memory =
      mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  madvise(memory, pages(bytes), MADV_DONTDUMP);
  return static_cast<char*>(memory);
}

// A page-aligned buffer of the calling thread, at least as large as a packed piece can get.
struct Buffer {
  char* data = nullptr;
  std::size_t bytes = 0;
  char* of(std::size_t wanted) {
    if (bytes < wanted) {
      std::free(data);
      data = static_cast<char*>(std::aligned_alloc(page, pages(wanted)));
      bytes = data ? pages(wanted) : 0;
    }
    return data;
  }
  ~Buffer() { std::free(data); }
};

// Without a name where the filesystem can; else a file whose name is removed at once. Past the page
// cache where the filesystem can, because what is written is not read again soon.
Result<Fd> open_nameless(const std::string& directory) {
  constexpr int flags = O_RDWR | O_CLOEXEC;
  for (const int direct : {O_DIRECT, 0})
    if (Fd fd(::open(directory.c_str(), flags | O_TMPFILE | direct, 0600)); fd)
      return fd;
  std::string pattern = directory + "/sleeping-XXXXXX";
  Fd fd(::mkostemp(pattern.data(), O_CLOEXEC));
  if (!fd)
    return fail_errno("create a file for suspended memory in " + directory, errno);
  ::unlink(pattern.c_str());
  const int now = ::fcntl(fd.get(), F_GETFL);
  (void)::fcntl(fd.get(), F_SETFL, now | O_DIRECT);
  return fd;
}

Status transfer(int fd, char* data, std::uint64_t bytes, std::uint64_t at, bool out) {
  while (bytes) {
    const ssize_t n = out ? ::pwrite(fd, data, bytes, static_cast<off_t>(at))
                          : ::pread(fd, data, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EINVAL && (::fcntl(fd, F_GETFL) & O_DIRECT)) {
      (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_DIRECT);
      continue;
    }
    if (n <= 0)
      return fail_errno(out ? "write suspended memory to disk" : "read suspended memory from disk",
                        n < 0 ? errno : EIO);
    data += n;
    at += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return {};
}

}  // namespace

void in_parallel(std::size_t count,
                 unsigned threads,
                 const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i; (i = next++) < count;)
      work(i);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, count); i++)
    others.emplace_back(run);
  run();
  for (std::thread& thread : others)
    thread.join();
}

struct LowerTiers::File {
  Fd fd;
  std::atomic<std::uint64_t> end{0};
};

LowerTiers::LowerTiers(Options options) : options_(std::move(options)), squeeze_(Squeeze::load()) {
  if (options_.directory.empty())
    options_.file_bytes = 0;
  if (options_.file_bytes) {
    if (::mkdir(options_.directory.c_str(), 0700) != 0 && errno != EEXIST)
      file_error_ = "create " + options_.directory + ": " + std::strerror(errno);
    else if (const auto file = open_nameless(options_.directory); !file)
      file_error_ = file.error().message;
  }
  const std::uint64_t slots = options_.memory_bytes / Arena::slot_bytes;
  if (slots) {
    char* range = map_memory((slots + 1) * Arena::slot_bytes);
    const auto at = reinterpret_cast<std::uintptr_t>(range);
    if (range) {
      range_ = range + (Arena::slot_bytes - at % Arena::slot_bytes) % Arena::slot_bytes;
      madvise(range_, slots * Arena::slot_bytes, MADV_HUGEPAGE);
      for (std::uint64_t slot = slots; slot-- > 0;)
        range_free_.push_back(static_cast<std::uint32_t>(slot));
    }
  }
  if (has_file())
    puncher_ = std::thread([this] { punch(); });
  if (any())
    measurer_ = std::thread([this] { measure(); });
}

LowerTiers::~LowerTiers() {
  stop_ = true;
  {
    const std::lock_guard guard(holes_lock_);
    holes_wait_.notify_all();
  }
  for (std::thread* thread : {&measurer_, &puncher_})
    if (thread->joinable())
      thread->join();
}

void LowerTiers::punch() {
  std::unique_lock guard(holes_lock_);
  while (!stop_) {
    if (holes_.empty()) {
      holes_wait_.wait(guard);
      continue;
    }
    const Hole hole = std::move(holes_.back());
    holes_.pop_back();
    guard.unlock();
    (void)::fallocate(hole.file->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(hole.at), static_cast<off_t>(hole.bytes));
    guard.lock();
  }
}

char* LowerTiers::map(std::uint32_t bytes) {
  if (bytes > Arena::slot_bytes / 2 && bytes <= Arena::slot_bytes) {
    const std::lock_guard guard(range_lock_);
    if (!range_free_.empty()) {
      const std::uint32_t slot = range_free_.back();
      range_free_.pop_back();
      return range_ + slot * Arena::slot_bytes;
    }
  }
  return map_memory(bytes);
}

void LowerTiers::unmap(char* memory, std::uint32_t bytes) {
  const std::uint64_t in_range = options_.memory_bytes / Arena::slot_bytes * Arena::slot_bytes;
  if (!range_ || memory < range_ || memory >= range_ + in_range) {
    munmap(memory, pages(bytes));
    return;
  }
  madvise(memory, Arena::slot_bytes, MADV_DONTNEED);
  const std::lock_guard guard(range_lock_);
  range_free_.push_back(
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(memory - range_) / Arena::slot_bytes));
}

std::uint64_t LowerTiers::memory_free() const {
  const std::uint64_t used = memory_used_;
  return options_.memory_bytes - std::min(used, options_.memory_bytes);
}

std::uint64_t LowerTiers::file_free() const {
  struct statvfs fs {};
  if (!has_file() || ::statvfs(options_.directory.c_str(), &fs) != 0)
    return 0;
  const std::uint64_t used = file_used_;
  const std::uint64_t by_limit = options_.file_bytes - std::min(used, options_.file_bytes);
  const std::uint64_t by_disk = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
  return std::min(by_limit, by_disk - std::min(by_disk, disk_margin_bytes));
}

bool LowerTiers::file_stuck() const {
  return steady_ns() < stuck_until_ns_;
}

Result<std::shared_ptr<LowerTiers::File>> LowerTiers::file_of(std::uint64_t tenant, bool create) {
  const std::lock_guard guard(lock_);
  auto& file = files_[tenant];
  if (!file && create) {
    file = std::make_shared<File>();
    file->fd = BILLOW_TRY(open_nameless(options_.directory));
  }
  if (!file)
    return fail(Code::internal, "the job has no file of suspended memory");
  return file;
}

Result<LowerCopy> LowerTiers::write(std::uint64_t tenant,
                                    const char* data,
                                    std::uint32_t bytes,
                                    std::uint8_t packed) {
  const std::uint64_t space = pages(bytes);
  if (!has_file() || file_stuck())
    return fail(Code::storage_full, "there is no space on disk for suspended memory");
  if ((file_used_ += space) > options_.file_bytes) {
    file_used_ -= space;
    return fail(Code::storage_full, "suspended memory on disk has reached its limit",
                "raise --sleep-disk, or stop suspended jobs");
  }
  const auto undo = [&](Error error) -> Result<LowerCopy> {
    file_used_ -= space;
    stuck_until_ns_ = steady_ns() + stuck_ns;
    return pass(std::move(error));
  };
  const auto file = file_of(tenant, true);
  if (!file)
    return undo(file.error());
  const std::uint64_t at = (*file)->end.fetch_add(space);
  const int fd = (*file)->fd.get();
  if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(space)) != 0 &&
      errno != EOPNOTSUPP)
    return undo(
        Error{errno == ENOSPC ? Code::storage_full : Code::unavailable,
              std::string("allocate disk space for suspended memory: ") + std::strerror(errno)});
  if (const Status written = transfer(fd, const_cast<char*>(data), space, at, true); !written) {
    (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                      static_cast<off_t>(space));
    return undo(written.error());
  }
  if (!(::fcntl(fd, F_GETFL) & O_DIRECT)) {  // or it would fill the page cache instead
    (void)::sync_file_range(fd, static_cast<off_t>(at), static_cast<off_t>(space),
                            SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)::posix_fadvise(fd, static_cast<off_t>(at), static_cast<off_t>(space),
                          POSIX_FADV_DONTNEED);
  }
  return LowerCopy{Place::file, packed, bytes, at};
}

namespace {
thread_local Buffer packing, sorting;
}

std::uint32_t LowerTiers::pack(const char* data,
                               std::uint32_t bytes,
                               Place place,
                               LowerCopy& made) {
  const Rates now = rates();
  if (!squeeze_ || now.unpack <= 0)
    return 0;
  const int level = level_;
  const Squeeze::Guess guess = squeeze_.sample(data, bytes, level);
  if (!(place == Place::file ? packs_for_disk(now, guess.ratio)
                             : packs_for_memory(now, guess.ratio, has_file())))
    return 0;
  char* into = packing.of(squeeze_.bound(bytes));
  char* sorted = guess.word > 1 ? sorting.of(bytes) : nullptr;
  if (!into || (guess.word > 1 && !sorted))
    return 0;
  if (sorted)
    Squeeze::sort_bytes(data, sorted, bytes, guess.word);
  const auto packed = static_cast<std::uint32_t>(
      squeeze_.pack(sorted ? sorted : data, bytes, into, packing.bytes, level));
  if (!packed || pages(packed) >= pages(bytes))
    return 0;
  std::memset(into + packed, 0, pages(packed) - packed);  // the page's rest goes to disk, too
  made.packed = guess.word;
  return packed;
}

Result<LowerCopy> LowerTiers::store(std::uint64_t tenant,
                                    const char* data,
                                    std::uint32_t bytes,
                                    Place place) {
  LowerCopy made{place, 0, bytes, 0};
  if (const std::uint32_t packed = pack(data, bytes, place, made)) {
    made.bytes = packed;
    data = packing.data;
  }
  if (place == Place::file)
    return write(tenant, data, made.bytes, made.packed);
  if ((memory_used_ += pages(made.bytes)) > options_.memory_bytes) {
    memory_used_ -= pages(made.bytes);
    return fail(Code::exhausted, "suspended memory has reached its limit");
  }
  char* copy = map(made.bytes);
  if (!copy) {
    memory_used_ -= pages(made.bytes);
    return fail_errno("allocate memory for a suspended job", ENOMEM);
  }
  std::memcpy(copy, data, made.bytes);
  made.at = reinterpret_cast<std::uint64_t>(copy);
  return made;
}

Result<LowerCopy> LowerTiers::sink(std::uint64_t tenant, const LowerCopy& copy) {
  return write(tenant, reinterpret_cast<const char*>(copy.at), copy.bytes, copy.packed);
}

Status LowerTiers::load(std::uint64_t tenant,
                        const LowerCopy& copy,
                        char* into,
                        std::uint32_t bytes) {
  const char* from = nullptr;
  if (copy.place == Place::memory) {
    from = reinterpret_cast<const char*>(copy.at);
  } else {
    const auto file = BILLOW_TRY(file_of(tenant, false));
    char* to = copy.packed ? packing.of(copy.bytes) : into;
    if (!to)
      return fail_errno("allocate a buffer", ENOMEM);
    BILLOW_TRY_VOID(transfer(file->fd.get(), to, pages(copy.bytes), copy.at, false));
    if (!(::fcntl(file->fd.get(), F_GETFL) & O_DIRECT))
      (void)::posix_fadvise(file->fd.get(), static_cast<off_t>(copy.at),
                            static_cast<off_t>(pages(copy.bytes)), POSIX_FADV_DONTNEED);
    from = to;
  }
  if (!copy.packed) {
    if (from != into)
      std::memcpy(into, from, bytes);
    return {};
  }
  char* unpacked = copy.packed > 1 ? sorting.of(bytes) : into;
  if (!unpacked)
    return fail_errno("allocate a buffer", ENOMEM);
  if (!squeeze_.unpack(from, copy.bytes, unpacked, bytes))
    return fail(Code::internal, "suspended memory cannot be decompressed: it is damaged",
                "check this node's memory and disk");
  if (copy.packed > 1)
    Squeeze::unsort_bytes(unpacked, into, bytes, copy.packed);
  return {};
}

void LowerTiers::release(std::uint64_t tenant, const LowerCopy& copy) {
  const std::uint64_t space = pages(copy.bytes);
  if (copy.place == Place::memory) {
    unmap(reinterpret_cast<char*>(copy.at), copy.bytes);
    memory_used_ -= space;
  }
  if (copy.place != Place::file)
    return;
  file_used_ -= space;
  if (const auto file = file_of(tenant, false)) {
    const std::lock_guard guard(holes_lock_);
    holes_.push_back({*file, copy.at, space});
    holes_wait_.notify_one();
  }
}

void LowerTiers::forget(std::uint64_t tenant) {
  const std::lock_guard guard(lock_);
  files_.erase(tenant);
}

Rates LowerTiers::rates() const {
  const std::lock_guard guard(lock_);
  return rates_;
}

void LowerTiers::set(double Rates::*rate, double value) {
  const std::lock_guard guard(lock_);
  rates_.*rate = value;
}

void LowerTiers::rated(Rated what, double bytes, double seconds) {
  if (seconds <= 0 || bytes <= 0)
    return;
  double Rates::*rate = what == Rated::gpu      ? &Rates::gpu
                        : what == Rated::memory ? &Rates::memory
                        : what == Rated::write  ? &Rates::write
                        : what == Rated::read   ? &Rates::read
                                                : &Rates::unpack;
  const std::lock_guard guard(lock_);
  double& now = rates_.*rate;
  now = now > 0 ? now * (1 - newest_weight) + bytes / seconds * newest_weight : bytes / seconds;
}

// The first rates, before any job is suspended: a few pieces for every thread.
void LowerTiers::measure() {
  if (has_file())
    measure_disk();
  if (squeeze_ && !stop_)
    measure_packing();
}

void LowerTiers::measure_disk() {
  const std::size_t count = std::size_t{options_.threads} * 4;
  const std::uint64_t piece = Arena::slot_bytes;
  constexpr std::uint64_t nobody = 0;
  char* data = map_memory(piece);
  if (!data)
    return;
  // Not zeros: some disks are faster with them.
  std::uint64_t state = 88172645463325252ull;
  for (std::uint64_t i = 0; i < piece; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(data + i, &state, 8);
  }
  std::vector<LowerCopy> copies(count);
  const double bytes = static_cast<double>(count * piece);
  std::int64_t start = steady_ns();
  std::atomic<bool> failed{false};
  in_parallel(count, options_.threads, [&](std::size_t i) {
    const auto made = write(nobody, data, static_cast<std::uint32_t>(piece), 0);
    failed = failed || !made;
    copies[i] = made ? *made : LowerCopy{};
  });
  if (!failed) {
    set(&Rates::write, bytes / seconds_since(start));
    start = steady_ns();
    in_parallel(count, options_.threads, [&](std::size_t i) {
      thread_local Buffer buffer;
      if (char* into = buffer.of(piece))
        failed = !load(nobody, copies[i], into, static_cast<std::uint32_t>(piece)) || failed;
    });
    if (!failed)
      set(&Rates::read, bytes / seconds_since(start));
  }
  for (const LowerCopy& copy : copies)
    release(nobody, copy);
  forget(nobody);
  munmap(data, piece);
}

void LowerTiers::measure_packing() {
  const std::size_t count = std::size_t{options_.threads} * 2;
  const std::size_t piece = Arena::slot_bytes;
  // Like weights: the upper byte of each pair takes few values, the lower one any.
  std::vector<char> data(piece), packed(squeeze_.bound(piece));
  std::uint32_t state = 12345;
  for (std::size_t i = 0; i < piece; i += 2) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<char>(state >> 24);
    data[i + 1] = static_cast<char>(0x3a + (state >> 12 & state >> 14 & state >> 16 & 3));
  }
  const double bytes = static_cast<double>(count * piece);
  const auto rate_of = [&](const auto& work) {
    const std::int64_t start = steady_ns();
    in_parallel(count, options_.threads, [&](std::size_t) {
      thread_local Buffer buffer;
      if (char* into = buffer.of(packed.size()))
        work(into);
    });
    return bytes / seconds_since(start);
  };
  const auto packs = [&](int level) {
    return rate_of([&, level](char* into) {
      if (char* sorted = sorting.of(piece)) {
        Squeeze::sort_bytes(data.data(), sorted, piece, 2);
        (void)squeeze_.pack(sorted, piece, into, packed.size(), level);
      }
    });
  };
  double pack = packs(Squeeze::thorough);
  // Compression must not slow the disk down.
  if (pack < rates().write) {
    level_ = Squeeze::fast;
    pack = packs(Squeeze::fast);
  }
  std::vector<char> sorted(piece);
  Squeeze::sort_bytes(data.data(), sorted.data(), piece, 2);
  const std::size_t stored =
      squeeze_.pack(sorted.data(), piece, packed.data(), packed.size(), level_);
  const double unpack = rate_of([&](char* into) {
    if (char* unpacked = sorting.of(piece))
      if (squeeze_.unpack(packed.data(), stored, unpacked, piece))
        Squeeze::unsort_bytes(unpacked, into, piece, 2);
  });
  set(&Rates::pack, pack);
  set(&Rates::unpack, unpack);
}

}  // namespace billow::gpumem
