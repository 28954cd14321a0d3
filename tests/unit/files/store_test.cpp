// The store of content: what it names, counts and keeps, and what it believes after a power
// failure.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "files/lane_digest.h"
#include "files/large_pack.h"
#include "files/pack.h"
#include "files/store.h"
#include "files/tree.h"

namespace billow::files {
namespace {

class StoredFiles : public testing::Test {
 protected:
  StoredFiles() {
    char name[] = "/var/tmp/billow-store-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~StoredFiles() override { (void)remove_tree(root_); }
  std::string at(const std::string& path) const { return root_ + "/" + path; }
  static Entry file(std::string path, std::string_view text) {
    return {.path = std::move(path),
            .kind = Kind::file,
            .mode = 0644,
            .size = text.size(),
            .target = {},
            .pieces = {sha256(text)}};
  }

 private:
  std::string root_;
};

// A pack whose digests the store itself computes.
std::string unnamed(const std::vector<std::string>& contents) {
  std::string pack;
  for (const std::string& content : contents)
    add_piece(pack, Sha256{}, content);
  return pack;
}

TEST_F(StoredFiles, AStoreNamesContentThatComesWithoutDigests) {
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  std::string pack = unnamed({"one", "two", "one"});
  const auto named = (*store)->add_unnamed("user:1", pack);
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(*named, (std::vector<Sha256>{sha256("one"), sha256("two"), sha256("one")}));
  EXPECT_EQ(*(*store)->read(sha256("two")), "two");
  EXPECT_TRUE((*store)->missing("user:1", *named).empty());
  EXPECT_EQ((*store)->missing("user:2", *named).size(), 2u);
  pack.pop_back();
  EXPECT_FALSE((*store)->add_unnamed("user:1", pack));
  std::string more = unnamed({"three"});
  const OwnerLimit limit{8, [](std::uint64_t) {
                           return Error{Code::exhausted, "enough"};
                         }};
  const auto refused = (*store)->add_unnamed("user:1", more, limit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "enough");
  EXPECT_FALSE((*store)->has(sha256("three")));
}

// As long as what stands before a large piece, and as empty.
TEST_F(StoredFiles, AFileThatLooksLikeFillerIsStillThereAfterARestart) {
  const std::string zeros(large_pack_begin - 2 * pack_header_bytes, '\0');
  const auto open = [&] {
    return std::move(*Store::open({.directory = at("store"), .bytes_max = 1 << 30}));
  };
  std::string pack = unnamed({"one", zeros, "two"});
  ASSERT_TRUE(open()->add_unnamed("user:1", pack));
  const auto store = open();
  EXPECT_TRUE(store->has(sha256("two")));
  const auto content = store->read(sha256(zeros));
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(*content, zeros);
}

TEST_F(StoredFiles, ContentTwiceInOnePackCountsAndIsStoredOnce) {
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  const std::string content(1000, 'x');
  std::string pack = unnamed({content, "other", content, content});
  const OwnerLimit limit{1005, [](std::uint64_t) {
                           return Error{Code::exhausted, "enough"};
                         }};
  const auto named = (*store)->add_unnamed("user:1", pack, limit);
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->size(), 4u);
  EXPECT_EQ((*store)->bytes_of("user:1"), 1005u);
  EXPECT_EQ((*store)->bytes(), 1005 + 2 * pack_header_bytes);
  store->reset();
  store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  EXPECT_EQ((*store)->bytes_of("user:1"), 1005u);
  EXPECT_EQ(*(*store)->read(sha256(content)), content);
}

TEST(PairDigest, IsThatOfEachPieceByItself) {
  std::string data(3000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>(i * i >> 3);
  const std::string_view all = data;
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size < 200; ++size)
    sizes.push_back(size);
  sizes.insert(sizes.end(), {1024, 2047, 2999});
  for (const std::size_t a : sizes)
    for (const std::size_t b : sizes) {
      const auto [first, second] = sha256_pair(all.substr(0, a), all.substr(1, b));
      ASSERT_EQ(first, sha256(all.substr(0, a))) << a << " and " << b;
      ASSERT_EQ(second, sha256(all.substr(1, b))) << a << " and " << b;
    }
}

// As many pieces as there are lanes, and fewer: in pairs, alone, and in vectors.
TEST(LaneDigest, IsThatOfEachPieceByItself) {
  if (!LaneDigest::available())
    GTEST_SKIP() << "no instructions for SHA-256";
  constexpr std::size_t first = 3 * sha256_block_bytes, size = 4 * sha256_block_bytes;
  std::string data(5000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>(i * i >> 3);
  for (std::size_t lanes = 1; lanes <= LaneDigest::lanes_max; ++lanes) {
    LaneDigest digest(lanes);
    std::vector<const char*> at;
    for (std::size_t i = 0; i < lanes; ++i)
      at.push_back(data.data() + 251 * i);
    digest.add(at, first);
    for (const char*& one : at)
      one += first;
    digest.add(at, size - first);
    const std::vector<Sha256> all = digest.finish();
    ASSERT_EQ(all.size(), lanes);
    for (std::size_t i = 0; i < lanes; ++i)
      EXPECT_EQ(all[i], sha256(std::string_view(data).substr(251 * i, size))) << i << lanes;
  }
}

// Full pieces that the store reads from files.
class ReadPieces : public StoredFiles {
 protected:
  ReadPieces() {
    if (!LaneDigest::available())
      return;
    content_.resize(count * piece_bytes);
    unsigned seed = 1;
    for (char& c : content_)
      c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    EXPECT_TRUE(write_file_atomic(at("source"), content_));
    source_ = Fd(::open(at("source").c_str(), O_RDONLY | O_CLOEXEC));
    for (std::size_t i = 0; i < count; ++i)
      pieces_.push_back({source_.get(), i * std::uint64_t{piece_bytes}});
  }
  void SetUp() override {
    if (!LaneDigest::available())
      GTEST_SKIP() << "no instructions for SHA-256";
  }
  std::unique_ptr<Store> open() const {
    return std::move(*Store::open({.directory = at("store"), .bytes_max = 1 << 30}));
  }
  std::string_view piece(std::size_t i) const {
    return std::string_view(content_).substr(i * piece_bytes, piece_bytes);
  }
  std::size_t files_in_store() const {
    std::size_t out = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator(at("store/packs")))
      ++out;
    return out;
  }

  static constexpr std::size_t count = LaneDigest::lanes_max;
  static constexpr std::uint64_t pack_bytes = large_pack_begin + piece_bytes;
  std::string content_;
  Fd source_;
  std::vector<Store::PieceToRead> pieces_;
};

TEST_F(ReadPieces, AreStoredOnceAndFoundAfterARestart) {
  auto store = open();
  for (const bool expected : {false, true, false}) {
    bool known = expected;
    const auto digests = store->add_read("user:1", pieces_, known);
    ASSERT_TRUE(digests) << digests.error().message;
    ASSERT_EQ(digests->size(), count);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ((*digests)[i], sha256(piece(i)));
    EXPECT_EQ(store->bytes(), count * pack_bytes);
    EXPECT_EQ(files_in_store(), count) << "what was written in vain is removed";
  }
  store = open();
  EXPECT_EQ(store->bytes(), count * pack_bytes);
  EXPECT_EQ(store->bytes_of("user:1"), content_.size());
  EXPECT_TRUE(*store->read(sha256(piece(count - 1))) == piece(count - 1));
  EXPECT_EQ(store->locate(sha256(piece(0)))->offset, large_pack_begin);
}

// Expected to be known, but only some are; and one comes twice.
TEST_F(ReadPieces, OnlyNewOnesAreKept) {
  const auto store = open();
  bool known = true;
  ASSERT_TRUE(store->add_read("user:1", std::span(pieces_).first(1), known));
  EXPECT_FALSE(known);
  pieces_[2] = pieces_[1];
  known = true;
  const auto digests = store->add_read("user:2", std::span(pieces_).first(4), known);
  ASSERT_TRUE(digests);
  EXPECT_FALSE(known);
  EXPECT_EQ((*digests)[2], sha256(piece(1)));
  EXPECT_EQ(store->bytes(), 3 * pack_bytes);
  EXPECT_EQ(files_in_store(), 3u);
  EXPECT_EQ(store->bytes_of("user:2"), 3 * piece_bytes);
  known = true;
  ASSERT_TRUE(store->add_read("user:2", std::span(pieces_).first(4), known));
  EXPECT_TRUE(known);
  EXPECT_EQ(files_in_store(), 3u);
}

TEST_F(ReadPieces, OfAFileThatIsTooShortNothingStays) {
  const auto store = open();
  pieces_[1].offset += 1;
  pieces_[count - 1].offset += 1;
  for (const bool expected : {false, true}) {
    bool known = expected;
    const auto read = store->add_read("user:1", pieces_, known);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::conflict);
    EXPECT_EQ(store->bytes(), 0u);
    EXPECT_EQ(files_in_store(), 0u);
  }
}

TEST_F(ReadPieces, ALimitHoldsAndNothingStays) {
  const auto store = open();
  bool known = false;
  const OwnerLimit limit{count * piece_bytes - 1, [](std::uint64_t) {
                           return Error{Code::exhausted, "enough"};
                         }};
  const auto refused = store->add_read("user:1", pieces_, known, limit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "enough");
  EXPECT_EQ(files_in_store(), 0u);
}

// A head that was killed while it wrote has not stored anything; the next one removes the rest.
TEST_F(ReadPieces, AKilledProcessLeavesNothing) {
  (void)open();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto store = open();
    bool known = false;
    while (true)
      (void)store->add_read("user:1", pieces_, known);
  }
  // In the middle of it: some files have their temporary names.
  const auto unfinished = [&] {
    std::size_t out = 0;
    for (const auto& one : std::filesystem::directory_iterator(at("store/packs")))
      out += one.path().extension() == ".tmp" ? 1 : 0;
    return out;
  };
  const SteadyTime deadline = system_clock().steady() + seconds(60);
  while (unfinished() < count)
    ASSERT_LT(system_clock().steady().ns, deadline.ns);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto store = open();
  EXPECT_EQ(unfinished(), 0u);
  for (std::size_t i = 0; i < count; ++i)
    if (store->has(sha256(piece(i)))) {
      EXPECT_TRUE(*store->read(sha256(piece(i))) == piece(i));
    }
  bool known = false;
  ASSERT_TRUE(store->add_read("user:1", pieces_, known));
  EXPECT_EQ(store->bytes(), count * pack_bytes);
  EXPECT_EQ(files_in_store(), count);
}

TEST_F(StoredFiles, APackWithoutDigestsGetsThoseOfItsPiecesInTheirOrder) {
  for (const std::size_t count : {1, 2, 5}) {
    std::string pack;
    std::vector<Sha256> expected;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string content((i * 997) % 300, static_cast<char>('a' + i));
      add_piece(pack, {}, content);
      expected.push_back(sha256(content));
    }
    const auto named = name_pieces(pack);
    ASSERT_TRUE(named);
    EXPECT_EQ(*named, expected);
    EXPECT_TRUE(each_piece(pack, [](auto&, auto) { return Status{}; }));
  }
}

// A large piece has a pack of its own, in which its content begins at a page.
TEST_F(StoredFiles, ALargePieceBeginsAtAPageAndIsAPieceLikeOthers) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, piece_bytes}) {
    const auto options =
        Store::Options{.directory = at("store" + std::to_string(size)), .bytes_max = 1 << 30};
    auto store = Store::open(options);
    const AlignedMemory memory = aligned_memory(large_pack_begin + size);
    const std::string content(size, 'l');
    std::memcpy(memory.get() + large_pack_begin, content.data(), size);
    const auto digest = (*store)->add_large("user:1", {memory.get(), large_pack_begin + size});
    ASSERT_TRUE(digest) << digest.error().message;
    EXPECT_EQ(*digest, sha256(content));
    EXPECT_EQ((*store)->bytes_of("user:1"), size);
    const std::uint64_t bytes = (*store)->bytes();
    ASSERT_TRUE((*store)->add_large("user:2", {memory.get(), large_pack_begin + size}));
    EXPECT_EQ((*store)->bytes(), bytes) << "it is stored once";
    store->reset();
    store = Store::open(options);
    EXPECT_EQ((*store)->bytes(), bytes);
    EXPECT_EQ((*store)->locate(*digest)->offset, large_pack_begin);
    EXPECT_TRUE(*(*store)->read(*digest) == content);
    EXPECT_TRUE(each_piece(*read_file((*store)->locate(*digest)->path), [](auto&, auto) {
      return Status{};
    })) << "any reader of packs can read it";
  }
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  const AlignedMemory memory = aligned_memory(large_pack_begin);
  EXPECT_FALSE((*store)->add_large("", {memory.get(), large_pack_begin}));
}

// A list that the store has already is compared with that one instead of being hashed.
TEST_F(StoredFiles, AListThatIsSentAgainIsStillChecked) {
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  const std::string list = encode(Tree{{file("a", "whole")}}),
                    other = encode(Tree{{file("b", "other")}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE((*store)->add_tree("user:1", sha256(list), other)) << "round " << i;
    EXPECT_FALSE((*store)->owned("user:1", sha256(list))) << "round " << i;
    ASSERT_TRUE((*store)->add_tree("", sha256(list), list));
  }
  EXPECT_EQ(*(*store)->read_tree(sha256(list)), list);
  for (const auto& item : std::filesystem::directory_iterator(at("store/trees")))
    std::filesystem::remove(item.path());
  ASSERT_TRUE((*store)->add_tree("user:1", sha256(list), list)) << "it is written again";
  EXPECT_EQ(*(*store)->read_tree(sha256(list)), list);
  EXPECT_TRUE((*store)->owned("user:1", sha256(list)));
}

// What a power failure leaves of a pack that was not yet on disk: its length, but not its content.
class AfterReboot : public StoredFiles {
 protected:
  std::unique_ptr<Store> open(const std::string& boot) {
    return std::move(*Store::open({.directory = at("store"), .bytes_max = 1 << 30, .boot = boot}));
  }
  void damage(const std::string& folder, std::string_view content) {
    for (const auto& item : std::filesystem::directory_iterator(at("store/" + folder))) {
      const std::string text = *read_file(item.path().string());
      const auto found = text.find(content);
      if (found == std::string::npos)
        continue;
      const Fd fd(::open(item.path().c_str(), O_WRONLY | O_CLOEXEC));
      const std::string zeros(content.size(), '\0');
      ASSERT_EQ(::pwrite(fd.get(), zeros.data(), zeros.size(), static_cast<off_t>(found)),
                static_cast<ssize_t>(zeros.size()));
    }
  }
};

TEST_F(AfterReboot, TornContentCountsAsAbsentAndIsTakenAgain) {
  const std::vector<Sha256> all{sha256("whole"), sha256("torn content")};
  std::string first = unnamed({"whole"}), second = unnamed({"torn content"});
  const std::string list = encode(Tree{{file("a", "whole"), file("b", "torn content")}});
  {
    auto store = open("boot 1");
    ASSERT_TRUE(store->add_unnamed("", first));
    ASSERT_TRUE(store->add_unnamed("", second));
    ASSERT_TRUE(store->add_tree("", sha256(list), list));
  }
  damage("packs", "torn content");
  damage("trees", "b");
  {
    auto store = open("boot 2");
    EXPECT_EQ(store->missing("", all), std::vector<Sha256>{sha256("torn content")});
  }
  // A head that only starts again knows which packs were not checked before.
  auto store = open("boot 2");
  const auto lost = store->read(sha256("torn content"));
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("submit the job again"), std::string::npos);
  EXPECT_FALSE(store->locate(sha256("torn content")));
  EXPECT_EQ(*store->read(sha256("whole")), "whole");
  EXPECT_FALSE(store->read_tree(sha256(list)));
  ASSERT_TRUE(store->add_unnamed("", second));
  ASSERT_TRUE(store->add_tree("", sha256(list), list));
  EXPECT_EQ(*store->read(sha256("torn content")), "torn content");
  EXPECT_EQ(*store->read_tree(sha256(list)), list);
  EXPECT_TRUE(store->missing("", all).empty());
}

TEST_F(AfterReboot, OfferedContentReplacesWhatIsTorn) {
  std::string pack = unnamed({"torn content"});
  ASSERT_TRUE(open("boot 1")->add_unnamed("", pack));
  damage("packs", "torn content");
  auto store = open("boot 2");
  ASSERT_TRUE(store->add_unnamed("", pack));  // nobody asked what was missing
  EXPECT_EQ(*store->read(sha256("torn content")), "torn content");
}

// The next start must not find the damaged piece again, before the one that replaces it.
TEST_F(AfterReboot, ADamagedPackIsRewrittenWithoutWhatIsTorn) {
  const auto packs = [&] {
    std::vector<std::string> out;
    for (const auto& item : std::filesystem::directory_iterator(at("store/packs")))
      out.push_back(item.path().string());
    return out;
  };
  std::string pack = unnamed({"whole", "torn content", "last"});
  ASSERT_TRUE(open("boot 1")->add_unnamed("user:1", pack));
  const auto before = packs();
  ASSERT_EQ(before.size(), 1u);
  damage("packs", "torn content");
  const std::vector<Sha256> all{sha256("whole"), sha256("torn content"), sha256("last")};
  EXPECT_EQ(open("boot 2")->missing("user:1", all), std::vector<Sha256>{sha256("torn content")});
  const auto after = packs();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_NE(after, before);
  std::vector<Sha256> left;
  EXPECT_TRUE(each_piece(*read_file(after[0]), [&](const Sha256& digest, auto) {
    left.push_back(digest);
    return Status{};
  })) << "nothing in it is damaged";
  EXPECT_EQ(left, (std::vector<Sha256>{sha256("whole"), sha256("last")}));
  auto store = open("boot 2");
  EXPECT_EQ(store->bytes(), std::filesystem::file_size(after[0]));
  EXPECT_EQ(*store->read(sha256("last")), "last");
  EXPECT_FALSE(store->has(sha256("torn content")));
}

TEST_F(AfterReboot, ALargePieceThatIsTornIsTakenAgain) {
  const AlignedMemory memory = aligned_memory(large_pack_begin + large_piece_min);
  std::memset(memory.get() + large_pack_begin, 'l', large_piece_min);
  const std::span<char> pack{memory.get(), large_pack_begin + large_piece_min};
  const Sha256 digest = *open("boot 1")->add_large("", pack);
  damage("packs", std::string(large_piece_min, 'l'));
  auto store = open("boot 2");
  EXPECT_EQ(store->missing("", {digest}).size(), 1u);
  EXPECT_LT(store->bytes(), large_pack_begin) << "at most what stood before it";
  ASSERT_TRUE(store->add_large("", pack));
  EXPECT_EQ(*store->read(digest), std::string(large_piece_min, 'l'));
}

TEST_F(AfterReboot, AKilledProcessLosesNothing) {
  std::string pack = unnamed({"one", "two"});
  ASSERT_TRUE(open("boot 1")->add_unnamed("", pack));
  auto store = open("boot 1");
  EXPECT_TRUE(store->missing("", {sha256("one"), sha256("two")}).empty());
  EXPECT_EQ(*store->read(sha256("two")), "two");
}

}  // namespace
}  // namespace billow::files
