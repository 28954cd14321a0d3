// Trees of files: what is refused, what is left out, and that what goes in comes out.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "files/ignore.h"
#include "files/pack.h"
#include "files/scan.h"
#include "files/store.h"
#include "files/tree.h"

namespace billow::files {
namespace {

class Files : public testing::Test {
 protected:
  Files() {
    char name[] = "/tmp/billow-files-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~Files() override { (void)remove_tree(root_); }
  std::string at(const std::string& path) const { return root_ + "/" + path; }
  void write(const std::string& path, std::string_view text) {
    const std::string full = at(path);
    ASSERT_TRUE(make_directories(full.substr(0, full.rfind('/'))));
    ASSERT_TRUE(write_file_atomic(full, text));
  }
  std::vector<std::string> paths(const Tree& tree) {
    std::vector<std::string> out;
    for (const Entry& e : tree.entries)
      out.push_back(e.path);
    return out;
  }
  std::string root_;
};

Entry file(std::string path, std::string_view text) {
  return {.path = std::move(path),
          .kind = Kind::file,
          .mode = 0644,
          .size = text.size(),
          .target = {},
          .pieces = {sha256(text)}};
}
Entry directory(std::string path) {
  return {.path = std::move(path), .kind = Kind::directory, .mode = 0755};
}
Entry link(std::string path, std::string target) {
  return {.path = std::move(path),
          .kind = Kind::link,
          .mode = 0777,
          .size = 0,
          .target = std::move(target),
          .pieces = {}};
}

TEST(Tree, ReadsBackWhatWasWritten) {
  const Tree tree{{directory("a"), file("a/b", "hello"), link("a/c", "b"), link("d", "a/b")}};
  const auto back = decode(encode(tree));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(encode(*back), encode(tree));
}

TEST(Tree, RefusesWhatLeadsOutOfIt) {
  const std::vector<std::pair<Tree, std::string>> cases = {
      {{{file("../x", "1")}}, "contains \"..\""},
      {{{file("/etc/passwd", "1")}}, "absolute"},
      {{{directory("a"), file("a/../../x", "1")}}, "contains \"..\""},
      {{{file("a//b", "1")}}, "normal form"},
      {{{file("a/b", "1")}}, "not in a directory"},
      {{{link("a", "/etc")}}, "absolute"},
      {{{link("a", "../..")}}, "out of the tree"},
      {{{directory("d"), link("d/a", "../../x")}}, "out of the tree"},
      // Each looks as if it stayed inside; through the first the second does not.
      {{{directory("p"), directory("p/q"), link("p/q/x", "../.."), link("p/q/y", "x/../../..")}},
       "out of the tree"},
      {{{directory("d"), link("a", "d/../d")}}, "out of the tree"},
      {{{directory("d"), link("d/l", "."), file("d/l/x", "1")}}, "not in a directory"},
      {{{file("a", "1"), file("a", "2")}}, "twice"},
      {{{file(std::string("a\0b", 3), "1")}}, "zero byte"},
      {{{file(std::string(300, 'x'), "1")}}, "255"},
  };
  for (const auto& [tree, why] : cases) {
    const auto got = decode(encode(tree));
    ASSERT_FALSE(got) << why;
    EXPECT_NE(got.error().message.find(why), std::string::npos) << got.error().message;
  }
}

// A list of a few bytes must not make its reader allocate or write what it merely claims.
TEST(Tree, RefusesBombs) {
  Tree tree{{file("big", "x")}};
  tree.entries[0].size = 1ull << 60;
  EXPECT_FALSE(decode(encode(tree)));
  tree.entries[0].size = 1ull << 34;  // allowed, but there is one digest for four thousand pieces
  EXPECT_FALSE(decode(encode(tree)));
  // A few digests that stand for more than any node should write: in one file, and in many.
  const auto large = [](std::string path, std::uint64_t size) {
    Entry e = file(std::move(path), "x");
    e.size = size;
    e.pieces.assign((size + piece_bytes - 1) / piece_bytes, e.pieces[0]);
    return e;
  };
  EXPECT_TRUE(decode(encode(Tree{{large("a", tree_bytes_max)}})));
  for (const Tree& bomb :
       {Tree{{large("a", tree_bytes_max + 1)}},
        Tree{{large("a", tree_bytes_max / 2), large("b", tree_bytes_max / 2), large("c", 1)}}}) {
    const auto refused = decode(encode(bomb));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::too_large) << refused.error().message;
  }
  std::string list = encode(Tree{});
  list[list.size() - 1] = '\x7f';  // two billion entries
  EXPECT_FALSE(decode(list));
  for (std::size_t cut = 0; cut < 60; ++cut)
    EXPECT_FALSE(decode(encode(Tree{{directory("a"), file("a/b", "hello")}}).substr(0, cut)));
}

TEST(Ignore, ReadsPatternsAsGitDoes) {
  IgnoreRules rules;
  rules.add("",
            "# "
            "comment\n*.pyc\n/build\nlogs/\n!keep.pyc\ndocs/**/draft\n**/cache\ndata/"
            "*.bin\n[ab]?.txt\n\\#odd\n");
  rules.add("sub", "local\n/here\n");
  const auto ignored = [&](const char* path, bool dir = false) {
    return rules.ignored(path, dir);
  };
  EXPECT_TRUE(ignored("x.pyc"));
  EXPECT_TRUE(ignored("deep/down/x.pyc"));
  EXPECT_FALSE(ignored("keep.pyc"));
  EXPECT_TRUE(ignored("build", true));
  EXPECT_FALSE(ignored("sub/build", true));
  EXPECT_TRUE(ignored("a/logs", true));
  EXPECT_FALSE(ignored("a/logs", false));
  EXPECT_TRUE(ignored("docs/a/b/draft"));
  EXPECT_TRUE(ignored("docs/draft"));
  EXPECT_TRUE(ignored("x/y/cache", true));
  EXPECT_TRUE(ignored("cache", true));
  EXPECT_TRUE(ignored("data/x.bin"));
  EXPECT_FALSE(ignored("data/deep/x.bin"));
  EXPECT_TRUE(ignored("b1.txt"));
  EXPECT_FALSE(ignored("c1.txt"));
  EXPECT_TRUE(ignored("#odd"));
  EXPECT_TRUE(ignored("sub/x/local"));
  EXPECT_FALSE(ignored("local"));
  EXPECT_TRUE(ignored("sub/here"));
  EXPECT_FALSE(ignored("sub/x/here"));
}

TEST_F(Files, ScanLeavesOutWhatIsIgnoredAndWarnsOfSecrets) {
  write("src/train.py", "print(1)");
  write("src/data.bin", std::string(piece_bytes + 5, 'x'));
  write(".gitignore", "*.log\nout/\n");
  write(".billowignore", "!keep.log\n");
  write("x.log", "1");
  write("keep.log", "1");
  write("out/y", "1");
  write(".git/config", "1");
  write(".env", "TOKEN=1");
  ASSERT_EQ(::symlink("train.py", at("src/inside").c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", at("outside").c_str()), 0);
  const auto found = scan({.root = root_,
                           .only = {},
                           .ignore_files = true,
                           .cache = at("../cache-" + root_.substr(root_.rfind('/') + 1))});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(paths(found->tree),
            (std::vector<std::string>{".billowignore", ".gitignore", "keep.log", "src",
                                      "src/data.bin", "src/inside", "src/train.py"}));
  ASSERT_EQ(found->warnings.size(), 2u);
  EXPECT_NE(found->warnings[0].find(".env"), std::string::npos);
  EXPECT_NE(found->warnings[1].find("outside"), std::string::npos);
  EXPECT_TRUE(decode(encode(found->tree)));
  ::unlink(at("../cache-" + root_.substr(root_.rfind('/') + 1)).c_str());
}

// So many directories that several threads list them.
TEST_F(Files, ATreeOfManyDirectoriesIsScannedInOrder) {
  write(".gitignore", "*.log\nskipped/\n!kept.log\n");
  std::vector<std::string> wanted = {".gitignore"};
  for (int i = 100; i < 140; ++i) {
    const std::string top = "d" + std::to_string(i);
    for (const char* name : {"a", "deep/er/b", "kept.log", "left.log", "skipped/c", ".git/config"})
      write(top + "/" + name, top);
    const bool own_rules = i % 3 == 0;
    if (own_rules)
      write(top + "/deep/.billowignore", "!*.log\nb\n");
    write(top + "/deep/x.log", "x");
    ASSERT_EQ(::symlink("a", at(top + "/link").c_str()), 0);
    wanted.insert(wanted.end(), {top, top + "/a", top + "/deep"});
    if (own_rules)
      wanted.push_back(top + "/deep/.billowignore");
    wanted.push_back(top + "/deep/er");
    if (!own_rules)
      wanted.push_back(top + "/deep/er/b");
    if (own_rules)
      wanted.push_back(top + "/deep/x.log");
    wanted.insert(wanted.end(), {top + "/kept.log", top + "/link"});
  }
  const auto found = scan({.root = root_, .only = {}, .ignore_files = true, .cache = {}});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(paths(found->tree), wanted);
  EXPECT_TRUE(decode(encode(found->tree)));
}

// Builds make and remove directories while a working directory is scanned.
TEST_F(Files, ADirectoryThatGoesWhileItIsScannedIsLeftOut) {
  for (int i = 100; i < 400; ++i)
    write("d" + std::to_string(i) + "/deep/a", "x");
  std::atomic<bool> done = false;
  std::jthread build([&] {
    while (!done)
      for (int i = 100; i < 400 && !done; i += 7) {
        const std::string there = at("d" + std::to_string(i) + "/deep");
        (void)::rename(there.c_str(), at(".gone").c_str());
        (void)::rename(at(".gone").c_str(), there.c_str());
      }
  });
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const auto found = scan({.root = root_, .only = {}, .ignore_files = true, .cache = {}});
    EXPECT_TRUE(found) << found.error().message;
  }
  done = true;
}

TEST_F(Files, ASecretIsIncludedOnlyByName) {
  for (const char* name : {".env", ".env.local", "keys/id_rsa", "tls/server.key", ".netrc"})
    write(name, "secret");
  for (const char* name : {".env.example", "envs/env", "monkey"})
    write(name, "plain");
  const ScanOptions options{.root = root_, .only = {}, .ignore_files = true, .cache = {}};
  auto found = scan(options);
  ASSERT_TRUE(found);
  EXPECT_EQ(paths(found->tree), (std::vector<std::string>{".env.example", "envs", "envs/env",
                                                          "keys", "monkey", "tls"}));
  EXPECT_EQ(found->warnings.size(), 5u);
  write(".billowignore", "!.env\n");
  found = scan(options);
  ASSERT_TRUE(found);
  EXPECT_EQ(paths(found->tree),
            (std::vector<std::string>{".billowignore", ".env", ".env.example", "envs", "envs/env",
                                      "keys", "monkey", "tls"}));
}

// By its size, before anything is read: holes of a hundred gigabytes would take minutes.
TEST_F(Files, WhatIsTooLargeIsRefusedBeforeItIsRead) {
  for (const char* name : {"a", "b", "c"}) {
    write(name, "");
    ASSERT_EQ(::truncate(at(name).c_str(), static_cast<off_t>(tree_bytes_max / 2)), 0);
  }
  const auto found = scan({.root = root_, .only = {}, .ignore_files = true, .cache = {}});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::too_large);
}

TEST_F(Files, AFileThatCannotBeReadIsAnErrorNotAnEmptyOne) {
  ASSERT_TRUE(make_directories(at("d")));
  // A file of the kernel's that says it has bytes and gives an error for them: /proc/self/mem at
  // zero.
  const auto piece = read_piece({"/proc/self/mem", 0, 16}, sha256(""));
  ASSERT_FALSE(piece);
  EXPECT_NE(piece.error().code, Code::conflict) << piece.error().message;
}

TEST_F(Files, ACachedLookGivesTheSameTreeAndSeesChanges) {
  write("w/a", "one");
  write("w/b", "two");
  // Old enough to be believed.
  for (const char* name : {"w/a", "w/b"}) {
    const timespec times[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, at(name).c_str(), times, 0), 0);
  }
  const ScanOptions options{
      .root = at("w"), .only = {}, .ignore_files = true, .cache = at("cache/x")};
  const auto first = scan(options), second = scan(options);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(file_exists(at("cache/x")));
  EXPECT_EQ(encode(first->tree), encode(second->tree));
  write("w/b", "2wo");  // the same size
  const auto third = scan(options);
  ASSERT_TRUE(third);
  EXPECT_NE(encode(third->tree), encode(first->tree));
  ASSERT_TRUE(write_file_atomic(
      at("cache/x"), "billow-scan-1\nnonsense that is no cache at all, whatever wrote it there"));
  EXPECT_EQ(encode(scan(options)->tree), encode(third->tree));
}

TEST_F(Files, TravelsThroughAStoreAndIsWrittenOutAsItWas) {
  write("in/a/one", "1");
  write("in/a/big", std::string(piece_bytes, 'b') + "tail");
  write("in/empty", "");
  ::chmod(at("in/a/one").c_str(), 0755);
  ASSERT_EQ(::symlink("a/one", at("in/link").c_str()), 0);
  const auto found = scan({.root = at("in"), .only = {}, .ignore_files = true, .cache = {}});
  ASSERT_TRUE(found);
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  ASSERT_TRUE(store);
  std::vector<Sha256> all;
  for (const Entry& e : found->tree.entries)
    all.insert(all.end(), e.pieces.begin(), e.pieces.end());
  EXPECT_EQ((*store)->missing("", all).size(), 3u);
  for (const Sha256& digest : (*store)->missing("", all)) {
    std::string pack;
    add_piece(pack, digest, *read_piece(found->sources.at(digest), digest));
    ASSERT_TRUE((*store)->add("", pack));
  }
  EXPECT_TRUE((*store)->missing("", all).empty());
  store->reset();
  store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});  // as after a restart
  ASSERT_TRUE(store);
  EXPECT_TRUE((*store)->missing("", all).empty());
  ASSERT_TRUE(make_directories(at("out")));
  const Status done = write_tree(at("out"), found->tree,
                                 [&](const Sha256& digest) { return (*store)->read(digest); });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(encode(scan({.root = at("out"), .only = {}, .ignore_files = true, .cache = {}})->tree),
            encode(found->tree));
}

TEST_F(Files, AStoreBelievesNothingThatIsNotItsDigest) {
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  std::string pack;
  add_piece(pack, sha256("right"), "wrong");
  EXPECT_FALSE((*store)->add("", pack));
  EXPECT_FALSE((*store)->has(sha256("right")));
  pack.clear();
  add_piece(pack, sha256("right"), "right");
  EXPECT_FALSE((*store)->add("", std::string_view(pack).substr(0, pack.size() - 1)));
  EXPECT_FALSE((*store)->add_tree("", sha256("x"), "y"));
}

TEST_F(Files, ContentIsKeptOnceAndKnownToThoseWhoBroughtIt) {
  auto store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});
  std::string pack;
  add_piece(pack, sha256("shared"), "shared");
  const std::vector<Sha256> one{sha256("shared")};
  ASSERT_TRUE((*store)->add("user:1", pack));
  const std::uint64_t bytes = (*store)->bytes();
  EXPECT_TRUE((*store)->missing("user:1", one).empty());
  EXPECT_EQ((*store)->missing("user:2", one).size(), 1u);  // as if it were not there
  ASSERT_TRUE((*store)->add("user:2", pack));
  EXPECT_TRUE((*store)->missing("user:2", one).empty());
  EXPECT_EQ((*store)->bytes(), bytes);  // and is there once
  const std::string list = encode(Tree{{file("a", "shared")}});
  ASSERT_TRUE((*store)->add_tree("user:1", sha256(list), list));
  EXPECT_TRUE((*store)->owned("user:1", sha256(list)));
  EXPECT_FALSE((*store)->owned("user:2", sha256(list)));
  ASSERT_TRUE((*store)->give("project:7", sha256(list)));
  store->reset();
  store = Store::open({.directory = at("store"), .bytes_max = 1 << 30});  // as after a restart
  EXPECT_TRUE((*store)->missing("user:2", one).empty());
  EXPECT_EQ((*store)->missing("user:3", one).size(), 1u);
  EXPECT_TRUE((*store)->owned("project:7", sha256(list)));
}

TEST_F(Files, TheLongestUnusedGoesButNothingThatIsNeeded) {
  const auto content = [](char c) {
    return std::string(1000, c);
  };
  const auto pack_of = [&](char c) {
    std::string pack;
    add_piece(pack, sha256(content(c)), content(c));
    return pack;
  };
  Store::Needed needed;
  auto store = Store::open({.directory = at("store"),
                            .bytes_max = 3500,
                            .bytes_refused = 5000,
                            .kept_at_least = {},
                            .needed = [&] {
                              return needed;
                            }});
  const std::string list = encode(Tree{{file("a", content('a'))}});
  ASSERT_TRUE((*store)->add("", pack_of('a')));
  ASSERT_TRUE((*store)->add_tree("", sha256(list), list));
  needed.trees = {sha256(list)};
  for (const char c : {'b', 'c', 'd', 'e'})
    ASSERT_TRUE((*store)->add("", pack_of(c)));
  EXPECT_LE((*store)->bytes(), 3500u);
  EXPECT_TRUE((*store)->has(sha256(content('a'))));  // the oldest, and needed
  EXPECT_FALSE((*store)->has(sha256(content('b'))));
  EXPECT_TRUE((*store)->has(sha256(content('e'))));
  EXPECT_TRUE((*store)->read_tree(sha256(list)));
  // Where everything is needed, more is refused rather than something lost.
  for (const char c : {'d', 'e', 'f', 'g'})
    needed.pieces.push_back(sha256(content(c)));
  ASSERT_TRUE((*store)->add("", pack_of('f')));
  const Status full = (*store)->add("", pack_of('g'));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::storage_full);
}

// One pack holds pieces of both; what the other tree has stays, wherever it lay.
TEST_F(Files, ForgettingATreeRemovesItsUnsharedPieces) {
  Store::Needed needed;
  const Store::Options options{.directory = at("store"), .bytes_max = 1 << 30, .needed = [&] {
                                 return needed;
                               }};
  auto store = Store::open(options);
  std::string pack;
  for (const char* content : {"mine", "ours", "theirs", "staged"})
    add_piece(pack, sha256(content), content);
  ASSERT_TRUE((*store)->add("", pack));
  const std::string mine =
                        encode(Tree{{file("a", "mine"), file("b", "ours"), file("c", "staged")}}),
                    theirs = encode(Tree{{file("b", "ours"), file("d", "theirs")}});
  for (const std::string& list : {mine, theirs})
    ASSERT_TRUE((*store)->add_tree("", sha256(list), list));
  needed.pieces = {sha256("staged")};
  for (int again = 0; again < 2; ++again) {
    const Status done = (*store)->forget({sha256(mine)});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_FALSE((*store)->has(sha256("mine")));
    EXPECT_FALSE((*store)->read_tree(sha256(mine)));
    EXPECT_TRUE((*store)->read_tree(sha256(theirs)));
    for (const char* content : {"ours", "theirs", "staged"})
      EXPECT_EQ((*store)->read(sha256(content)).value_or(""), content);
    store->reset();
    store = Store::open(options);  // as after a restart
    ASSERT_TRUE(store);
    for (const auto& file : std::filesystem::recursive_directory_iterator(at("store")))
      if (file.is_regular_file()) {
        EXPECT_EQ(read_file(file.path()).value_or("").find("mine"), std::string::npos)
            << file.path();
      }
  }
  ASSERT_TRUE((*store)->forget({sha256(theirs)}));
  EXPECT_FALSE((*store)->has(sha256("ours")));
}

TEST_F(Files, WritingNeverFollowsALinkThatIsThere) {
  write("outside/precious", "mine");
  ASSERT_TRUE(make_directories(at("work")));
  ASSERT_EQ(::symlink("../outside", at("work/d").c_str()), 0);
  ASSERT_EQ(::symlink("../outside/precious", at("work/f").c_str()), 0);
  const auto give = [](const Sha256&) -> Result<std::string> {
    return std::string("evil");
  };
  const Tree through{{directory("d"), file("d/precious", "evil")}};
  EXPECT_FALSE(write_tree(at("work"), through, give));
  const Tree over{{file("f", "evil")}};
  EXPECT_TRUE(write_tree(at("work"), over, give));  // the link is replaced, not followed
  EXPECT_EQ(*read_file(at("outside/precious")), "mine");
}

// Large files are filled through their descriptors, the others from pieces, and an existing file is
// replaced.
TEST_F(Files, LargeFilesAreFilledByTheirDescriptors) {
  write("out/a/large1", "an older one");
  Tree tree{{directory("a"), file("a/large1", std::string(1000, 'x')),
             file("a/large2", std::string(1000, 'y')), file("small", "s")}};
  tree.entries[2].mode = 0755;
  std::vector<std::size_t> at_once;
  const TreeSource source{.piece = [](const Sha256&) -> Result<std::string> { return "s"; },
                          .fill_large = [&](const std::vector<int>& descriptors) -> Status {
                            at_once.push_back(descriptors.size());
                            for (const int one : descriptors)
                              BILLOW_TRY_VOID(write_all(one, std::string(1000, 'z')));
                            return {};
                          },
                          .large_bytes_min = 1000,
                          .large_at_once = 1,
                          .alone = true};
  const Status done = write_tree(at("out"), tree, source);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(at_once, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(*read_file(at("out/a/large1")), std::string(1000, 'z'));
  EXPECT_EQ(*read_file(at("out/small")), "s");
  struct stat info {};
  ASSERT_EQ(::stat(at("out/a/large2").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  // One that cannot be filled leaves nothing.
  TreeSource broken = source;
  broken.fill_large = [](const std::vector<int>&) -> Status {
    return fail(Code::unavailable, "gone");
  };
  ASSERT_TRUE(make_directories(at("other")));
  EXPECT_FALSE(write_tree(at("other"), tree, broken));
  EXPECT_FALSE(file_exists(at("other/a/large1")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at("other/a")), {}), 0);
}

TEST_F(Files, PlacesReadBackAsTheyWere) {
  const std::vector<PieceFile> places{
      {"/a b/one", 40, 7}, {"/a b/one", 87, 4 << 20}, {"/c", 40, 0}};
  const auto read = decode_places(encode_places(places));
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ((*read)[i].path, places[i].path);
    EXPECT_EQ((*read)[i].offset, places[i].offset);
    EXPECT_EQ((*read)[i].size, places[i].size);
  }
  EXPECT_TRUE(decode_places(encode_places({}))->empty());
  for (const char* bad : {"", "billow-places-1\nx", "billow-places-1\n1 2\n",
                          "billow-places-1\n-1 2 /a\n", "billow-places-1\n1 99999999 /a\n"})
    EXPECT_FALSE(decode_places(bad)) << bad;
}

TEST_F(Files, NamedOutputsComeWithTheWayToThem) {
  write("out/deep/model.pt", "weights");
  write("out/other", "x");
  write("log.txt", "y");
  const auto found =
      scan({.root = root_, .only = {"out/deep", "log.txt"}, .ignore_files = false, .cache = {}});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(paths(found->tree),
            (std::vector<std::string>{"log.txt", "out", "out/deep", "out/deep/model.pt"}));
  EXPECT_TRUE(decode(encode(found->tree)));
}

}  // namespace
}  // namespace billow::files
