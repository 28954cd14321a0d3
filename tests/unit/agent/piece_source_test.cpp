// How a node fills the large files of a job: which descriptors it takes from a job, which packs of
// a head it reads, and what it writes.
#include "agent/content/piece_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "agent/content/file_socket.h"
#include "base/rng.h"
#include "process/passed_descriptors.h"

namespace billow::agent {
namespace {

namespace fs = std::filesystem;
using files::PieceFile;

std::size_t open_files() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& one : fs::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

class Pieces : public testing::Test {
 protected:
  Pieces() {
    char name[] = "/var/tmp/billow-pieces-XXXXXX";
    root_ = ::mkdtemp(name);
    head_ = std::move(*files::Store::open({.directory = at("head"), .bytes_max = 4l << 30}));
    own_ = std::move(*files::Store::open({.directory = at("node"), .bytes_max = 4l << 30}));
  }
  ~Pieces() override {
    head_.reset();
    own_.reset();
    fs::remove_all(root_);
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  Sha256 keep(files::Store& store, const std::string& content) {
    std::string pack;
    files::add_piece(pack, sha256(content), content);
    EXPECT_TRUE(store.add("", pack));
    return sha256(content);
  }
  // As a client on the head's machine brings it: in a pack of its own, past the page cache.
  static Sha256 keep_large(files::Store& store, const std::string& content) {
    const std::size_t size = files::large_pack_begin + content.size();
    const files::AlignedMemory pack = files::aligned_memory(size);
    std::memcpy(pack.get() + files::large_pack_begin, content.data(), content.size());
    const auto digest = store.add_large("", {pack.get(), size});
    EXPECT_TRUE(digest);
    return digest.value_or(Sha256{});
  }
  Fd create(const std::string& name, mode_t mode = 0600) {
    Fd out(::open(at(name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    EXPECT_TRUE(out);
    return out;
  }
  PieceSource source() {
    return PieceSource(*own_, [this](const std::vector<Sha256>& wanted) -> Status {
      for (const Sha256& one : wanted) {
        ++fetched_;
        keep(*own_, BILLOW_TRY(head_->read(one)));
      }
      return {};
    });
  }
  file_socket::FillTerms own_terms() const {
    struct stat info {};
    EXPECT_EQ(::stat(root_.c_str(), &info), 0);
    return {info.st_dev, ::geteuid()};
  }

  std::string root_;
  std::unique_ptr<files::Store> head_, own_;
  int fetched_ = 0;
};

std::string random_text(Rng& rng, std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t one = rng.next();
    std::memcpy(out.data() + i, &one, sizeof one);
  }
  return out;
}

TEST_F(Pieces, FilesAreFilledFromTheHeadsPacksAndNothingIsFetched) {
  Rng rng(11);
  PieceSource from = source();
  std::vector<Sha256> digests;
  std::vector<PieceFile> places;
  std::vector<std::string> contents;
  std::vector<Fd> made;
  std::vector<PieceSource::Target> targets;
  for (int i = 0; i < 5; ++i) {
    made.push_back(create("job" + std::to_string(i)));
    contents.emplace_back();
    for (int piece = 0; piece <= i; ++piece) {
      const std::size_t size = piece < i ? files::piece_bytes : 4096u * 7 + 1001u * rng.below(90);
      const std::string bytes = random_text(rng, size);
      digests.push_back(piece % 3 == 0 ? keep(*head_, bytes) : keep_large(*head_, bytes));
      places.push_back(*head_->locate(digests.back()));
      targets.push_back({digests.back(), made.back().get(), contents.back().size(),
                         static_cast<std::uint32_t>(size)});
      contents.back() += bytes;
    }
  }
  ASSERT_TRUE(from.use_places(digests, places, ::geteuid()));
  ASSERT_TRUE(from.copy(targets));
  for (std::size_t i = 0; i < contents.size(); ++i)
    EXPECT_TRUE(*read_file(at("job" + std::to_string(i))) == contents[i]) << i;
  EXPECT_EQ(fetched_, 0);
}

// A head must not make an agent that has more rights read the files of others.
TEST_F(Pieces, PacksOfAnotherUserAreNotRead) {
  const Sha256 digest = keep(*head_, "content");
  const PieceFile place = *head_->locate(digest);
  PieceSource other = source();
  EXPECT_FALSE(other.use_places({digest}, {place}, ::geteuid() + 1));
  EXPECT_FALSE(other.knows(digest));
  PieceSource linked = source();
  ASSERT_EQ(::symlink(place.path.c_str(), at("link").c_str()), 0);
  EXPECT_FALSE(linked.use_places({digest}, {{at("link"), place.offset, place.size}}, ::geteuid()));
  PieceSource right = source();
  EXPECT_TRUE(right.use_places({digest}, {place}, ::geteuid()));
  std::string text;
  EXPECT_TRUE(right.append(digest, text));
  EXPECT_EQ(text, "content");
}

// The first place was fine; a later one is not. What it names is fetched, not read.
TEST_F(Pieces, APlaceThatIsNotThePieceIsFetchedInstead) {
  const Sha256 first = keep(*head_, "first"), second = keep(*head_, "second");
  const PieceFile place = *head_->locate(first);
  PieceSource from = source();
  ASSERT_TRUE(from.use_places({first, second}, {place, place}, ::geteuid()));
  const Fd made = create("job");
  ASSERT_TRUE(from.copy({{second, made.get(), 0, 6}}));
  EXPECT_EQ(*read_file(at("job")), "second");
  EXPECT_EQ(fetched_, 1);
  EXPECT_FALSE(from.copy({{first, made.get(), 0, 4}})) << "a piece has its size";
}

TEST_F(Pieces, OfSeveralDescriptorsOneIsTakenAndTheOthersAreClosed) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]), sent = create("job");
  const std::size_t before = open_files();
  for (int i = 0; i < 20; ++i) {
    char octet = 'f';
    const iovec part{&octet, 1};
    const int three[] = {sent.get(), sent.get(), sent.get()};
    ASSERT_EQ(send_with_descriptors(theirs.get(), {&part, 1}, three), 1);
    EXPECT_TRUE(file_socket::receive_descriptor(ours.get()));
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(Pieces, OnlyPlainFilesThatCanBeWrittenAreTaken) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]), made = create("job");
  const auto taken = [&](const Fd& one) {
    EXPECT_TRUE(file_socket::send_descriptor(theirs.get(), one.get()));
    return file_socket::receive_descriptor(ours.get()).has_value();
  };
  EXPECT_TRUE(taken(made));
  for (const int flags : {O_RDONLY, O_WRONLY | O_APPEND, O_PATH})
    EXPECT_FALSE(taken(Fd(::open(at("job").c_str(), flags | O_CLOEXEC)))) << flags;
  EXPECT_FALSE(taken(Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC))));
  EXPECT_FALSE(taken(Fd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))));
}

TEST_F(Pieces, OnlyAJobsOwnNewFilesAreFilled) {
  const file_socket::FillTerms terms = own_terms();
  const Fd made = create("job");
  EXPECT_TRUE(file_socket::may_fill(made.get(), terms));
  EXPECT_FALSE(file_socket::may_fill(made.get(), {terms.device, terms.user + 1}));
  EXPECT_FALSE(file_socket::may_fill(made.get(), {terms.device + 1, terms.user}));
  EXPECT_FALSE(file_socket::may_fill(-1, terms));
  ASSERT_EQ(::link(at("job").c_str(), at("second name").c_str()), 0);
  EXPECT_FALSE(file_socket::may_fill(made.get(), terms));
  ASSERT_EQ(::unlink(at("second name").c_str()), 0);
  for (const mode_t rights : {S_ISUID | 0700, S_ISGID | 0700}) {
    ASSERT_EQ(::fchmod(made.get(), rights), 0);
    EXPECT_FALSE(file_socket::may_fill(made.get(), terms)) << rights;
  }
  ASSERT_EQ(::fchmod(made.get(), 0600), 0);
  EXPECT_TRUE(file_socket::may_fill(made.get(), terms));
}

}  // namespace
}  // namespace billow::agent
