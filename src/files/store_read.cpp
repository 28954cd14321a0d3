// Large pieces that the store reads itself, from files that clients handed over: read, hashed and
// written in chunks of several pieces, so that each byte stays in the processor's cache for all
// three. A pack has a temporary name until its digest is known and stands in it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "files/lane_digest.h"
#include "files/store.h"

namespace billow::files {
namespace {

constexpr std::size_t chunk_bytes = 64 << 10;  // of each piece
static_assert(piece_bytes % chunk_bytes == 0);
// Chunks at a multiple of 4 KiB would compete for the same few lines of the first cache.
constexpr std::size_t chunk_distance = chunk_bytes + 5 * sha256_block_bytes;

Status write_part(int fd, std::string_view data, std::uint64_t offset) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      return fail_errno("the file store", put == 0 ? EIO : errno);
    data.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

// A pack of one piece of full size. It is removed unless it is kept.
class Draft {
 public:
  static Result<Draft> begin(const std::string& directory) {
    Draft out;
    out.name_ = hex(random_bytes(12)) + ".pack";
    out.path_ = directory + "/" + out.name_;
    out.fd_ = Fd(::open(out.temporary().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!out.fd_)
      return fail_errno(out.temporary(), errno);
    return out;
  }
  Draft(Draft&&) = default;
  ~Draft() {
    if (fd_)
      ::unlink(temporary().c_str());
  }
  Status write(std::string_view data, std::uint64_t offset) {
    return write_part(fd_.get(), data, large_pack_begin + offset);
  }
  Status keep(const Sha256& digest) {
    char head[large_pack_begin];
    begin_large_pack(head, digest, piece_bytes);
    BILLOW_TRY_VOID(write_part(fd_.get(), {head, sizeof head}, 0));
    if (::rename(temporary().c_str(), path_.c_str()) != 0)
      return fail_errno(path_, errno);
    fd_.reset();
    return {};
  }
  const std::string& name() const { return name_; }

 private:
  Draft() = default;
  std::string temporary() const { return path_ + ".tmp"; }

  std::string name_, path_;
  Fd fd_;
};

// Writes to the drafts, if there are any, one for each piece.
Result<std::vector<Sha256>> read_and_hash(std::span<const Store::PieceToRead> pieces,
                                          std::vector<Draft>& drafts) {
  const AlignedMemory memory = aligned_memory(pieces.size() * chunk_distance);
  std::vector<const char*> chunks;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    chunks.push_back(memory.get() + i * chunk_distance);
  LaneDigest digest(pieces.size());
  for (std::size_t done = 0; done < piece_bytes; done += chunk_bytes) {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      BILLOW_TRY_VOID(read_part(pieces[i].descriptor, memory.get() + i * chunk_distance,
                                chunk_bytes, pieces[i].offset + done));
    digest.add(chunks, chunk_bytes);
    for (std::size_t i = 0; i < drafts.size(); ++i)
      BILLOW_TRY_VOID(drafts[i].write({chunks[i], chunk_bytes}, done));
  }
  return digest.finish();
}

}  // namespace

Result<std::vector<Sha256>> Store::add_read(const std::string& owner,
                                            std::span<const PieceToRead> pieces,
                                            bool& known,
                                            const OwnerLimit& limit) {
  std::vector<Draft> drafts;
  std::vector<Sha256> digests;
  // The first answers for the others before they are read without being written.
  for (const std::size_t looked_at : {std::size_t{1}, pieces.size()}) {
    if (!known || looked_at == digests.size())
      break;
    digests = BILLOW_TRY(read_and_hash(pieces.first(looked_at), drafts));
    known = missing("", digests).empty();
  }
  if (!known) {
    BILLOW_TRY_VOID(make_space(pieces.size() * (large_pack_begin + piece_bytes)));
    for (std::size_t i = 0; i < pieces.size(); ++i)
      drafts.push_back(BILLOW_TRY(Draft::begin(options_.directory + "/packs")));
    digests = BILLOW_TRY(read_and_hash(pieces, drafts));
  }
  std::vector<PieceAt> at;
  for (const Sha256& digest : digests)
    at.push_back({digest, large_pack_begin, piece_bytes});
  const Brought brought = BILLOW_TRY(examine(owner, std::move(at), limit));
  if (known && !brought.unknown.empty()) {  // removed a moment ago
    known = false;
    return add_read(owner, pieces, known, limit);
  }
  known = brought.unknown.empty();
  for (const PieceAt& piece : brought.unknown) {
    const auto index = std::ranges::find(digests, piece.digest) - digests.begin();
    Draft& draft = drafts[static_cast<std::size_t>(index)];
    BILLOW_TRY_VOID(draft.keep(piece.digest));
    enter_pack(draft.name(), large_pack_begin + piece.size, {piece});
  }
  BILLOW_TRY_VOID(own(owner, brought, limit));
  return digests;
}

}  // namespace billow::files
