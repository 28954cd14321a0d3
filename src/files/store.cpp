#include "files/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/text.h"
#include "files/pack.h"

namespace billow::files {
namespace {

// The file time of a pack lags its last use by at most a minute, that of a tree not at all.
constexpr std::int64_t pack_time_lag_s = 90;
constexpr Duration trim_pause = seconds(10);
constexpr std::size_t checked_trees_max = 10'000;

std::vector<std::pair<std::int64_t, std::string>> files_in(const std::string& directory,
                                                           std::string_view suffix) {
  std::vector<std::pair<std::int64_t, std::string>> out;
  DIR* dir = ::opendir(directory.c_str());
  if (!dir)
    return out;
  while (const dirent* item = ::readdir(dir)) {
    const std::string name = item->d_name;
    struct stat info {};
    if (name.ends_with(suffix) && ::stat((directory + "/" + name).c_str(), &info) == 0)
      out.emplace_back(platform::modified_ns(info) / 1'000'000'000, name);
    else if (name.find(".tmp") != std::string::npos)
      ::unlink((directory + "/" + name).c_str());  // left by a crash
  }
  ::closedir(dir);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(Options options) {
  for (const char* part : {"/packs", "/trees", "/owners"})
    BILLOW_TRY_VOID(make_directories(options.directory + part, 0700));
  std::unique_ptr<Store> store(new Store(std::move(options)));
  BILLOW_TRY_VOID(store->load());
  return store;
}

// Reads only headers: pieces were checked when they were added.
Status Store::load() {
  (void)files_in(options_.directory + "/trees", " ");  // removes leftovers of a crash
  for (const auto& [age, name] : files_in(options_.directory + "/packs", ".pack")) {
    const Fd fd(::open((options_.directory + "/packs/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0)
      continue;
    load_pieces(
        packs_.insert(packs_.end(), Pack{name, static_cast<std::uint64_t>(info.st_size), {}, {}}),
        fd.get());
  }
  note_boot();
  return {};
}

void Store::load_pieces(Packs::iterator pack, int fd) {
  std::uint64_t at = 0;
  while (at + pack_header_bytes <= pack->bytes) {
    unsigned char header[pack_header_bytes];
    if (::pread(fd, header, sizeof header, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(sizeof header))
      break;
    Sha256 digest;
    std::memcpy(digest.data(), header, 32);
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < 8; ++i)
      size |= static_cast<std::uint64_t>(header[32 + i]) << (8 * i);
    at += pack_header_bytes;
    if (size > piece_bytes || at + size > pack->bytes)
      break;
    // A filler is as good as a file of the same content, and cannot be told from one.
    if (places_.emplace(digest, Place{pack, at, static_cast<std::uint32_t>(size)}).second)
      pack->pieces.push_back(digest);
    at += size;
  }
  bytes_ += pack->bytes;
}

// After another start of the machine all packs are unchecked, and they are listed: if only this
// process starts again, it finds in the list which of them were.
void Store::note_boot() {
  const std::string boot_path = options_.directory + "/boot",
                    list_path = options_.directory + "/unchecked";
  std::string boot = options_.boot;
  if (boot.empty())
    boot = billow::trim(read_file("/proc/sys/kernel/random/boot_id", 64).value_or(""));
  const bool same = !boot.empty() && read_file(boot_path, 256).value_or("") == boot;
  std::unordered_set<std::string> names;
  if (same)
    for (std::string& name : split(read_file(list_path, 64 << 20).value_or(""), '\n'))
      names.insert(std::move(name));
  std::string list;
  for (Pack& pack : packs_) {
    pack.checked = same && !names.contains(pack.name);
    if (pack.checked)
      continue;
    ++unchecked_;
    list += pack.name + "\n";
  }
  if (same)
    return;
  // Without the list there must be no note that would make the packs count as checked.
  if (write_file_atomic(list_path, list, 0600))
    (void)write_file_atomic(boot_path, boot, 0600);
  else
    ::unlink(boot_path.c_str());
}

// Hashing takes a while, so it is done without the lock.
void Store::check_packs_of(const std::vector<Sha256>& digests) {
  std::unordered_set<std::string> names;
  {
    std::lock_guard lock(mutex_);
    if (unchecked_ == 0)
      return;
    for (const Sha256& digest : digests)
      if (const auto found = places_.find(digest);
          found != places_.end() && !found->second.pack->checked)
        names.insert(found->second.pack->name);
  }
  for (const std::string& name : names)
    take_out_damaged(name);
}

void Store::take_out_damaged(const std::string& pack_name) {
  const auto content = read_file(options_.directory + "/packs/" + pack_name, 2 * pack_bytes_max);
  if (!content && content.error().code != Code::not_found)
    return log_warn("{}", content.error().message);  // it is looked at again
  DigestSet good;
  const bool all_good =
      content && each_piece(*content, [&](const Sha256& digest, std::string_view) -> Status {
        good.insert(digest);
        return {};
      });
  std::lock_guard lock(mutex_);
  const auto pack =
      std::ranges::find_if(packs_, [&](const Pack& one) { return one.name == pack_name; });
  if (pack == packs_.end() || pack->checked)
    return;
  if (all_good && std::ranges::all_of(
                      pack->pieces, [&](const Sha256& digest) { return good.contains(digest); })) {
    pack->checked = true;
    --unchecked_;
    return;
  }
  // Rewritten at once: the next start would find the damaged pieces before those that replace them.
  log_warn("{} was damaged, probably by a power failure; what is lost is uploaded again",
           pack_path(*pack));
  if (const Status removed = remove_from_pack(pack, {}); !removed)
    log_warn("{}", removed.error().message);
}

bool Store::has(const Sha256& digest) const {
  std::lock_guard lock(mutex_);
  return places_.contains(digest);
}

std::uint64_t Store::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

// Marks the pack as most recently used. Its file time is updated now and then, so that the order
// survives a restart.
void Store::touch(Packs::iterator pack) const {
  const SteadyTime now = system_clock().steady();
  if (now - pack->used > minutes(1))
    ::utimensat(AT_FDCWD, pack_path(*pack).c_str(), nullptr, 0);
  pack->used = now;
  packs_.splice(packs_.end(), packs_, pack);
}

std::vector<Sha256> Store::missing(const std::string& owner, const std::vector<Sha256>& digests) {
  check_packs_of(digests);
  std::lock_guard lock(mutex_);
  std::vector<Sha256> out;
  DigestSet asked;
  const Pack* last = nullptr;
  const DigestSet* owned = owner.empty() ? nullptr : &owners_.all_of(owner);
  for (const Sha256& digest : digests) {
    const auto found = places_.find(digest);
    if (found == places_.end() || (owned && !owned->contains(digest))) {
      if (asked.insert(digest).second)
        out.push_back(digest);
    } else if (&*found->second.pack != last) {
      touch(found->second.pack);
      last = &*found->second.pack;
    }
  }
  return out;
}

std::uint64_t Store::bytes_of(const std::string& owner) {
  std::lock_guard lock(mutex_);
  return bytes_of_locked(owner);
}

std::uint64_t Store::bytes_of_locked(const std::string& owner) {
  const auto [found, fresh] = owned_bytes_.try_emplace(owner, 0);
  if (fresh)
    for (const Sha256& digest : owners_.all_of(owner))
      if (const auto place = places_.find(digest); place != places_.end())
        found->second += place->second.size;
  return found->second;
}

Status Store::add(const std::string& owner, std::string_view pack, const OwnerLimit& limit) {
  std::vector<PieceAt> pieces;
  BILLOW_TRY_VOID(each_piece(pack, [&](const Sha256& digest, std::string_view bytes) -> Status {
    pieces.push_back({digest, static_cast<std::uint64_t>(bytes.data() - pack.data()),
                      static_cast<std::uint32_t>(bytes.size())});
    return {};
  }));
  return add_checked(owner, pack, std::move(pieces), limit);
}

Result<std::vector<Sha256>> Store::add_unnamed(const std::string& owner,
                                               std::span<char> pack,
                                               const OwnerLimit& limit) {
  const auto digests = BILLOW_TRY(name_pieces(pack));
  std::vector<PieceAt> pieces;
  std::uint64_t at = 0;
  for (const Sha256& digest : digests) {
    std::uint64_t size = 0;
    std::memcpy(&size, pack.data() + at + digest.size(), sizeof size);
    at += pack_header_bytes;
    pieces.push_back({digest, at, static_cast<std::uint32_t>(size)});
    at += size;
  }
  BILLOW_TRY_VOID(add_checked(owner, {pack.data(), pack.size()}, std::move(pieces), limit));
  return digests;
}

Result<Sha256> Store::add_large(const std::string& owner,
                                std::span<char> pack,
                                const OwnerLimit& limit) {
  if (pack.size() <= large_pack_begin || pack.size() - large_pack_begin > piece_bytes)
    return fail(Code::invalid, "the pack of files is truncated");
  const auto size = static_cast<std::uint32_t>(pack.size() - large_pack_begin);
  const Sha256 digest = sha256({pack.data() + large_pack_begin, size});
  begin_large_pack(pack.data(), digest, size);
  BILLOW_TRY_VOID(
      add_checked(owner, {pack.data(), pack.size()}, {{digest, large_pack_begin, size}}, limit));
  return digest;
}

Result<Store::Brought> Store::examine(const std::string& owner,
                                      std::vector<PieceAt> pieces,
                                      const OwnerLimit& limit) {
  Brought out;
  for (const PieceAt& piece : pieces)
    out.all.push_back(piece.digest);
  check_packs_of(out.all);
  DigestSet seen;  // a pack may hold a piece twice; it counts and is stored once
  std::erase_if(pieces, [&](const PieceAt& piece) { return !seen.insert(piece.digest).second; });
  std::lock_guard lock(mutex_);
  std::uint64_t newly_owned = 0;
  for (const PieceAt& piece : pieces)
    if (!owner.empty() && !owners_.has(owner, piece.digest))
      newly_owned += piece.size;
  if (limit.error)
    if (const std::uint64_t wanted = bytes_of_locked(owner) + newly_owned; wanted > limit.bytes_max)
      return pass(limit.error(wanted));
  std::erase_if(pieces, [&](const PieceAt& piece) { return places_.contains(piece.digest); });
  out.unknown = std::move(pieces);
  return out;
}

Status Store::own(const std::string& owner, const Brought& brought, const OwnerLimit& limit) {
  if (owner.empty())
    return {};
  std::lock_guard lock(mutex_);
  std::uint64_t newly_owned = 0;
  DigestSet seen;
  for (const Sha256& digest : brought.all)
    if (const auto place = places_.find(digest);
        place != places_.end() && seen.insert(digest).second && !owners_.has(owner, digest))
      newly_owned += place->second.size;
  if (limit.error)
    if (const std::uint64_t wanted = bytes_of_locked(owner) + newly_owned; wanted > limit.bytes_max)
      return pass(limit.error(wanted));
  if (const auto counted = owned_bytes_.find(owner); counted != owned_bytes_.end())
    counted->second += newly_owned;
  return owners_.add(owner, brought.all);
}

Status Store::add_checked(const std::string& owner,
                          std::string_view pack,
                          std::vector<PieceAt> pieces,
                          const OwnerLimit& limit) {
  Brought brought = BILLOW_TRY(examine(owner, std::move(pieces), limit));
  std::string fresh;  // the pieces that are new, as a pack
  if (brought.unknown.size() < brought.all.size()) {
    for (PieceAt& piece : brought.unknown) {
      add_piece(fresh, piece.digest, pack.substr(piece.offset, piece.size));
      piece.offset = fresh.size() - piece.size;
    }
    pack = fresh;
  }
  if (!brought.unknown.empty())
    BILLOW_TRY_VOID(write_pack(pack, brought.unknown));
  return own(owner, brought, limit);
}

Status Store::make_space(std::uint64_t bytes) {
  if (options_.bytes_refused == 0)
    return {};
  std::lock_guard lock(mutex_);
  trim_locked();
  if (bytes_ + bytes <= options_.bytes_refused)
    return {};
  return fail(Code::storage_full,
              fmt::format("the file store is full: {} are in use by waiting and running jobs",
                          format_bytes(bytes_)),
              "stop jobs you do not need, or keep data on a volume");
}

Status Store::write_pack(std::string_view pack, const std::vector<PieceAt>& pieces) {
  BILLOW_TRY_VOID(make_space(pack.size()));
  const std::string name = hex(random_bytes(12)) + ".pack";
  BILLOW_TRY_VOID(write_file_atomic(options_.directory + "/packs/" + name, pack, 0600));
  enter_pack(name, pack.size(), pieces);
  return {};
}

// The file has its name. It is removed again if another thread has brought the same meanwhile.
void Store::enter_pack(const std::string& name,
                       std::uint64_t bytes,
                       const std::vector<PieceAt>& pieces) {
  std::lock_guard lock(mutex_);
  if (std::ranges::all_of(pieces,
                          [&](const PieceAt& one) { return places_.contains(one.digest); })) {
    ::unlink((options_.directory + "/packs/" + name).c_str());
    return;
  }
  const auto place = packs_.insert(packs_.end(), Pack{name, bytes, system_clock().steady(), {}});
  bytes_ += bytes;
  for (const auto& [digest, offset, size] : pieces)
    if (places_.emplace(digest, Place{place, offset, size}).second)
      place->pieces.push_back(digest);
  trim_locked();
}

void Store::trim() {
  std::lock_guard lock(mutex_);
  trim_again_ = {};
  trim_locked();
}

void Store::trim_locked() {
  const SteadyTime now = system_clock().steady();
  if (bytes_ <= options_.bytes_max || now < trim_again_)
    return;
  const Needed needed = options_.needed ? options_.needed() : Needed{};
  std::unordered_set<const Pack*> staying;
  const auto stay = [&](const Sha256& digest) {
    if (const auto found = places_.find(digest); found != places_.end())
      staying.insert(&*found->second.pack);
  };
  for (const Sha256& digest : needed.pieces)
    stay(digest);
  for (const Sha256& tree : needed.trees)
    (void)each_piece_of(tree, stay);
  std::int64_t newest_gone = 0;
  for (auto pack = packs_.begin(); pack != packs_.end() && bytes_ > options_.bytes_max;) {
    if (pack->used.ns > 0 && now - pack->used < options_.kept_at_least)
      break;  // later packs were used even more recently
    if (staying.contains(&*pack)) {
      ++pack;
      continue;
    }
    struct stat info {};
    if (::stat(pack_path(*pack).c_str(), &info) == 0)
      newest_gone =
          std::max<std::int64_t>(newest_gone, platform::modified_ns(info) / 1'000'000'000);
    ::unlink(pack_path(*pack).c_str());
    for (const Sha256& digest : pack->pieces)
      places_.erase(digest);
    bytes_ -= pack->bytes;
    unchecked_ -= pack->checked ? 0 : 1;
    pack = packs_.erase(pack);
  }
  if (bytes_ > options_.bytes_max)
    trim_again_ = now + trim_pause;
  if (newest_gone == 0)
    return;
  // A tree is never used after its pieces: lists that may have lost some are removed too.
  const DigestSet trees(needed.trees.begin(), needed.trees.end());
  for (const auto& [used, name] : files_in(options_.directory + "/trees", "")) {
    const auto digest = parse_digest(name);
    if (used <= newest_gone + pack_time_lag_s && digest && !trees.contains(*digest))
      ::unlink(tree_path(*digest).c_str());
  }
  prune_owners();
}

// A list that no longer exists has no pieces.
Status Store::each_piece_of(const Sha256& tree,
                            const std::function<void(const Sha256&)>& visit) const {
  const auto list = read_file(tree_path(tree), tree_list_bytes_max);
  if (!list)
    return {};
  const Tree known = BILLOW_TRY(decode(*list));
  for (const Entry& e : known.entries)
    for (const Sha256& piece : e.pieces)
      visit(piece);
  return {};
}

// The pieces of these trees that neither another tree nor current work uses.
Result<DigestSet> Store::pieces_only_of(const std::vector<Sha256>& trees) const {
  DigestSet out;
  const DigestSet removed(trees.begin(), trees.end());
  for (const Sha256& tree : trees)
    BILLOW_TRY_VOID(each_piece_of(tree, [&](const Sha256& piece) { out.insert(piece); }));
  for (const auto& [used, name] : files_in(options_.directory + "/trees", ""))
    if (const auto other = parse_digest(name); other && !removed.contains(*other))
      BILLOW_TRY_VOID(each_piece_of(*other, [&](const Sha256& piece) { out.erase(piece); }));
  const Needed needed = options_.needed ? options_.needed() : Needed{};
  for (const Sha256& piece : needed.pieces)
    out.erase(piece);
  return out;
}

// Replaces the pack by one without these pieces.
Status Store::remove_from_pack(Packs::iterator pack, const DigestSet& removed) {
  std::string rest;
  std::vector<std::pair<Sha256, Place>> moved;
  const Fd fd(::open(pack_path(*pack).c_str(), O_RDONLY | O_CLOEXEC));
  for (const Sha256& piece : pack->pieces) {
    if (removed.contains(piece))
      continue;
    const Place& place = places_.at(piece);
    std::string bytes(place.size, '\0');
    if (!fd || ::pread(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(place.offset)) !=
                   static_cast<ssize_t>(bytes.size()))
      continue;  // damaged: it is fetched again
    if (!pack->checked && sha256(bytes) != piece)
      continue;
    add_piece(rest, piece, bytes);
    moved.push_back({piece, {pack, rest.size() - bytes.size(), place.size}});
  }
  Pack fresh{hex(random_bytes(12)) + ".pack", rest.size(), pack->used, {}};
  if (!rest.empty())
    BILLOW_TRY_VOID(write_file_atomic(options_.directory + "/packs/" + fresh.name, rest, 0600));
  if (::unlink(pack_path(*pack).c_str()) != 0 && errno != ENOENT)
    return fail_errno(pack_path(*pack), errno);
  for (const Sha256& piece : pack->pieces)
    places_.erase(piece);
  bytes_ -= pack->bytes;
  if (!rest.empty()) {
    const auto place = packs_.insert(pack, std::move(fresh));
    bytes_ += place->bytes;
    for (auto& [piece, where] : moved) {
      where.pack = place;
      places_.emplace(piece, where);
      place->pieces.push_back(piece);
    }
  }
  unchecked_ -= pack->checked ? 0 : 1;
  packs_.erase(pack);
  return {};
}

void Store::prune_owners() {
  owned_bytes_.clear();
  owners_.prune([this](const Sha256& digest) {
    return places_.contains(digest) || file_exists(tree_path(digest));
  });
}

Status Store::forget(const std::vector<Sha256>& trees) {
  std::lock_guard lock(mutex_);
  if (trees.empty())
    return {};
  const DigestSet removed = BILLOW_TRY(pieces_only_of(trees));
  for (auto pack = packs_.begin(); pack != packs_.end();) {
    const auto at = pack++;
    if (std::ranges::any_of(at->pieces,
                            [&](const Sha256& piece) { return removed.contains(piece); }))
      BILLOW_TRY_VOID(remove_from_pack(at, removed));
  }
  for (const Sha256& tree : trees)
    if (::unlink(tree_path(tree).c_str()) != 0 && errno != ENOENT)
      return fail_errno(tree_path(tree), errno);
  prune_owners();
  return {};
}

Result<PieceFile> Store::locate(const Sha256& digest) {
  check_packs_of({digest});
  std::lock_guard lock(mutex_);
  const auto found = places_.find(digest);
  if (found == places_.end())
    return fail(Code::not_found,
                fmt::format("content {} is no longer in the store, perhaps lost in a power "
                            "failure: submit the job again",
                            digest_hex(digest)));
  touch(found->second.pack);
  return PieceFile{pack_path(*found->second.pack), found->second.offset, found->second.size};
}

Result<std::string> Store::read(const Sha256& digest) {
  const PieceFile place = BILLOW_TRY(locate(digest));
  std::string out(place.size, '\0');
  const Fd fd(::open(place.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd)
    return fail_errno(place.path, errno);
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(fd.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(place.offset + done));
    if (got <= 0)
      return fail(Code::internal, fmt::format("{} is damaged", place.path),
                  "remove the file; its content is uploaded again when needed");
    done += static_cast<std::size_t>(got);
  }
  return out;
}

Status Store::add_tree(const std::string& owner, const Sha256& digest, std::string_view list) {
  // The list of a large tree is sent again with each job, and comparing takes less than hashing.
  const auto known = read_tree(digest);
  if ((!known || *known != list) && sha256(list) != digest)
    return fail(Code::invalid, "the list of files does not match its digest");
  const std::string path = tree_path(digest);
  if (!known)
    if (const Status written = write_file_atomic(path, list, 0600); !written && !file_exists(path))
      return written;
  return owner.empty() ? Status{} : give(owner, digest);
}

Result<std::string> Store::read_tree(const Sha256& digest) {
  const std::string path = tree_path(digest);
  auto list = read_file(path, tree_list_bytes_max);
  bool known = false;
  if (list) {
    std::lock_guard lock(mutex_);
    known = checked_trees_.contains(digest);
  }
  if (list && !known && sha256(*list) != digest) {
    ::unlink(path.c_str());
    list = fail(Code::not_found, "damaged");
  }
  if (!list)
    return fail(Code::not_found, fmt::format("tree {} is not in the store", digest_hex(digest)),
                "submit the job again; its files are then uploaded again");
  if (!known) {
    std::lock_guard lock(mutex_);
    if (checked_trees_.size() >= checked_trees_max)
      checked_trees_.clear();
    checked_trees_.insert(digest);
  }
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return list;
}

bool Store::owned(const std::string& owner, const Sha256& digest) {
  std::lock_guard lock(mutex_);
  return owner.empty() || owners_.has(owner, digest);
}

Status Store::give(const std::string& owner, const Sha256& digest) {
  std::lock_guard lock(mutex_);
  return owners_.add(owner, {digest});
}

}  // namespace billow::files
