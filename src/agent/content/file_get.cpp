// How a job gets its files: the list of its tree, then the content, from this node's store, from
// the head, or from the head's own files if it is on this machine.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "agent/content/file_service.h"
#include "agent/content/file_socket.h"
#include "agent/content/head_client.h"
#include "agent/content/kept_dir.h"
#include "base/log.h"
#include "files/pack.h"
#include "files/root.h"

namespace billow::agent {
namespace {

using namespace file_socket;

constexpr std::size_t fetches_at_once = 3;

bool is_large(const files::Entry& e) {
  return e.kind == files::Kind::file && e.size >= filled_bytes_min;
}

// "1" for each entry that the directory most likely does not hold.
std::string unknown_entries(const std::optional<EntryStates>& known, std::size_t count) {
  std::string out(count, '1');
  for (std::size_t i = 0; known && i < count; ++i)
    out[i] = (*known)[i].inode == 0 ? '1' : '0';
  return out;
}

// The line before a list: how long it is, and what it lists.
Status send_list(int peer, std::string_view list, const char* kind) {
  BILLOW_TRY_VOID(send_all(peer, fmt::format("ok {} {}\n", list.size(), kind)));
  return send_all(peer, list);
}

Result<EntryStates> receive_states(int peer, std::size_t count) {
  std::string states(count * sizeof(EntryState), '\0');
  BILLOW_TRY_VOID(receive(peer, states.data(), states.size()));
  return decode_states(states, count);
}

}  // namespace

// Two jobs with the same tree fetch it once; other trees do not wait.
struct FileService::Turn {
  FileService& service;
  Sha256 digest;
  Turn(FileService& s, const Sha256& d) : service(s), digest(d) {
    std::unique_lock lock(s.fetching_mutex_);
    s.fetched_.wait(lock, [&] { return !s.fetching_.contains(digest); });
    s.fetching_.insert(digest);
  }
  ~Turn() {
    std::lock_guard lock(service.fetching_mutex_);
    service.fetching_.erase(digest);
    service.fetched_.notify_all();
  }
};

// The pieces that the list names stay in the store until `pieces` is removed from the list.
Status FileService::fetch_list(const Sha256& digest,
                               const net::Endpoint& at,
                               files::Tree& tree,
                               std::string& list,
                               std::list<std::vector<Sha256>>::iterator pieces) {
  const Turn turn(*this, digest);
  auto known = store_->read_tree(digest);
  if (known) {
    list = std::move(*known);
  } else {
    HeadClient head(at, options_.tls(), options_.credential);
    list = BILLOW_TRY(head.call(net::Method::get, "/v1/files/trees/" + files::digest_hex(digest)));
    if (sha256(list) != digest)
      return fail(Code::invalid, "the list of files does not match its digest");
  }
  tree = BILLOW_TRY(files::decode(list));
  std::vector<Sha256> all;
  for (const files::Entry& e : tree.entries)
    all.insert(all.end(), e.pieces.begin(), e.pieces.end());
  {
    std::lock_guard lock(staging_mutex_);
    *pieces = std::move(all);
  }
  return known ? Status{} : store_->add_tree("", digest, list);
}

Status FileService::bring_pieces(const Sha256& digest,
                                 const net::Endpoint& at,
                                 const files::Tree& tree,
                                 std::string_view wanted,
                                 PieceSource& source) {
  std::vector<Sha256> unknown;
  for (std::size_t i = 0; i < tree.entries.size(); ++i)
    if (wanted[i] == '1')
      for (const Sha256& piece : tree.entries[i].pieces)
        if (!source.knows(piece))
          unknown.push_back(piece);
  if (unknown.empty())
    return {};
  const Turn turn(*this, digest);
  const std::vector<Sha256> missing = store_->missing("", unknown);
  if (missing.empty() || find_at_head(digest, at, missing, source))
    return {};
  return fetch_pieces(digest, at, tree, missing);
}

// A head on this machine says where it has them.
bool FileService::find_at_head(const Sha256& digest,
                               const net::Endpoint& at,
                               const std::vector<Sha256>& pieces,
                               PieceSource& source) {
  // The owner of its socket is the head's user.
  struct stat socket {};
  if (!at.address.is_unix() || ::stat(at.address.unix_path.c_str(), &socket) != 0)
    return false;
  const std::string root = files::root_id();
  if (root.empty())
    return false;
  HeadClient head(at, options_.tls(), options_.credential);
  const auto answer =
      head.call(net::Method::post,
                fmt::format("/v1/files/pieces?tree={}&places={}", files::digest_hex(digest), root),
                files::encode_digests(pieces));
  auto places = answer ? files::decode_places(*answer)
                       : Result<std::vector<files::PieceFile>>(pass(answer.error()));
  return places && source.use_places(pieces, std::move(*places), socket.st_uid);
}

// As many pieces at once as fit into one answer; several requests at a time.
Status FileService::fetch_pieces(const Sha256& digest,
                                 const net::Endpoint& at,
                                 const files::Tree& tree,
                                 const std::vector<Sha256>& missing) {
  const files::DigestSet wanted(missing.begin(), missing.end());
  files::DigestSet asked;
  std::vector<std::vector<Sha256>> batches;
  std::size_t bytes = 0;
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      if (!wanted.contains(e.pieces[i]) || !asked.insert(e.pieces[i]).second)
        continue;
      const std::size_t size = files::piece_size(e, i) + files::pack_header_bytes;
      if (batches.empty() || bytes + size > files::pack_bytes_wanted) {
        batches.emplace_back();
        bytes = 0;
      }
      batches.back().push_back(e.pieces[i]);
      bytes += size;
    }
  const std::string target = "/v1/files/pieces?tree=" + files::digest_hex(digest);
  std::atomic<std::size_t> next{0};
  std::vector<Status> results(std::min(fetches_at_once, batches.size()));
  const auto work = [&](Status& result) {
    HeadClient head(at, options_.tls(), options_.credential);
    for (std::size_t i = next++; result && i < batches.size(); i = next++)
      result = fetch_batch(head, target, batches[i]);
    if (!result)
      next = batches.size();
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < results.size(); ++i)
      threads.emplace_back([&, i] { work(results[i]); });
    if (!results.empty())
      work(results[0]);
  }
  for (const Status& result : results)
    BILLOW_TRY_VOID(result);
  return {};
}

Status FileService::fetch_batch(HeadClient& head,
                                const std::string& target,
                                const std::vector<Sha256>& batch) {
  BILLOW_TRY_VOID(store_->add(
      "", BILLOW_TRY(head.call(net::Method::post, target, files::encode_digests(batch)))));
  for (const Sha256& one : batch)
    if (!store_->has(one))
      return fail(Code::internal, "the head did not send all requested pieces");
  return {};
}

// `asked`: a digest, and perhaps words behind it (file_service.h).
Status FileService::get(int peer,
                        std::string_view asked,
                        const net::Endpoint& head,
                        const Wish& wish) {
  const Sha256 digest = BILLOW_TRY(files::parse_digest(asked.substr(0, asked.find(' '))));
  struct Stays {
    FileService& service;
    std::list<std::vector<Sha256>>::iterator at;
    explicit Stays(FileService& s) : service(s) {
      std::lock_guard lock(s.staging_mutex_);
      at = s.staging_.emplace(s.staging_.end());
    }
    ~Stays() {
      {
        std::lock_guard lock(service.staging_mutex_);
        service.staging_.erase(at);
      }
      service.store_->trim();
    }
  } stays(*this);
  files::Tree tree;
  std::string list;
  BILLOW_TRY_VOID(fetch_list(digest, head, tree, list, stays.at));
  PieceSource source(*store_, [&](const std::vector<Sha256>& pieces) {
    return fetch_pieces(digest, head, tree, pieces);
  });
  const std::string directory = wish.task ? work_path(options_.work_dir, *wish.task) : "";
  if (wish.task)
    spares_->exchange(*wish.task, tree, directory);
  auto known = wish.task ? spares_->states_for(*wish.task, tree) : std::nullopt;
  // The job gets the list of what is not there, instead of looking for it in the whole list.
  std::optional<KeptDir> kept;
  if (known && asked.ends_with(part_word))
    kept = KeptDir::look(directory, tree, *known);
  const bool job_looks = known && !kept;
  // What the directory most likely holds is not fetched before the job has said that it does not.
  std::string wanted = kept ? kept->wanted() : unknown_entries(known, tree.entries.size());
  BILLOW_TRY_VOID(bring_pieces(digest, head, tree, wanted, source));
  if (kept && kept->is_complete()) {
    spares_->written(*wish.task, digest, std::move(tree), kept->states());
    return send_list(peer, files::encode({}), "part");
  }
  if (kept)
    list = files::encode(kept->missing());
  BILLOW_TRY_VOID(send_list(peer, list, kept ? "part" : known ? "kept" : "new"));
  if (job_looks)
    BILLOW_TRY_VOID(send_all(peer, encode_states(*known)));
  if (job_looks && !receive(peer, wanted.data(), wanted.size()))
    return {};
  // From here on it is too late for an error line: the stream ends early, and the receiver reports
  // that.
  Status sent = job_looks ? bring_pieces(digest, head, tree, wanted, source) : Status{};
  if (sent)
    sent = send_pieces(peer, tree, wanted, wish.fills_large, source);
  if (sent && wish.fills_large)
    sent = fill_large(peer, tree, wanted, source);
  if (!sent)
    log_warn("files: {}", sent.error().message);
  if (!sent || !wish.task)
    return {};
  auto states = receive_states(peer, kept ? kept->missing().entries.size() : tree.entries.size());
  if (!states)
    return {};  // its directory is not kept
  if (kept)
    states = kept->states_with(*states);
  spares_->written(*wish.task, digest, std::move(tree), std::move(*states));
  return send_all(peer, "ok\n");
}

// Many small pieces at once.
Status FileService::send_pieces(int peer,
                                const files::Tree& tree,
                                std::string_view wanted,
                                bool without_large,
                                PieceSource& source) {
  constexpr std::size_t at_once = 256 << 10;
  std::string out;
  for (std::size_t i = 0; i < tree.entries.size(); ++i) {
    if (wanted[i] != '1' || (without_large && is_large(tree.entries[i])))
      continue;
    for (const Sha256& piece : tree.entries[i].pieces) {
      BILLOW_TRY_VOID(source.append(piece, out));
      if (out.size() < at_once)
        continue;
      BILLOW_TRY_VOID(send_all(peer, out));
      out.clear();
    }
  }
  return send_all(peer, out);
}

Status FileService::fill_large(int peer,
                               const files::Tree& tree,
                               std::string_view wanted,
                               PieceSource& source) {
  const auto who = peer_of(peer);
  struct stat own {};
  if (::stat(options_.work_dir.c_str(), &own) != 0)
    return fail_errno(options_.work_dir, errno);
  std::vector<const files::Entry*> large;
  for (std::size_t i = 0; i < tree.entries.size(); ++i)
    if (wanted[i] == '1' && is_large(tree.entries[i]))
      large.push_back(&tree.entries[i]);
  for (std::size_t at = 0; at < large.size(); at += filled_at_once) {
    std::vector<Fd> descriptors;
    std::vector<PieceSource::Target> targets;
    for (std::size_t i = at; i < std::min(large.size(), at + filled_at_once); ++i) {
      descriptors.push_back(BILLOW_TRY(receive_descriptor(peer)));
      const int fd = descriptors.back().get();
      if (!who || !may_fill(fd, {own.st_dev, who->uid}))
        return fail(Code::invalid, "a job's file is not in its directory");
      for (std::size_t piece = 0; piece < large[i]->pieces.size(); ++piece)
        targets.push_back({large[i]->pieces[piece], fd, piece * std::uint64_t{files::piece_bytes},
                           static_cast<std::uint32_t>(files::piece_size(*large[i], piece))});
    }
    BILLOW_TRY_VOID(source.copy(targets));
    BILLOW_TRY_VOID(send_all(peer, "1"));
  }
  return {};
}

}  // namespace billow::agent
