// Directories of ended jobs that are used again: what a job changed is never taken for its files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/content/kept_dir.h"
#include "agent/content/spare_dirs.h"
#include "base/file.h"
#include "base/rng.h"
#include "files/scan.h"

namespace billow::agent {
namespace {

namespace fs = std::filesystem;

// With the job looking at what its directory holds, and with the agent.
struct SpareDirectories : ::testing::TestWithParam<bool> {
  void SetUp() override {
    char name[] = "/tmp/billow-spare-XXXXXX";
    root = ::mkdtemp(name);
    source = root + "/source";
    make("a.txt", "one");
    make("src/b.txt", "two");
    make("src/deep/c.bin", std::string(5 << 20, 'c'));
    ASSERT_EQ(::symlink("a.txt", (source + "/link").c_str()), 0);
    spares = std::make_unique<SpareDirs>(root + "/spare", 1 << 30);
  }
  void TearDown() override {
    spares.reset();
    fs::remove_all(root);
  }
  void make(const std::string& path, const std::string& text) {
    const std::string full = source + "/" + path;
    ASSERT_TRUE(make_directories(full.substr(0, full.rfind('/')), 0755));
    ASSERT_TRUE(write_file_atomic(full, text, 0644));
  }
  // What `billow stage` and the agent do. Returns how many entries had to be written.
  std::size_t stage(TaskId task, const SpareDirs::Whose& whose = {0, "ann", "lab"}) {
    const auto scan = files::scan({.root = source, .only = {}, .ignore_files = false, .cache = {}});
    EXPECT_TRUE(scan);
    const Sha256 digest = sha256(files::encode(scan->tree));
    const std::string path = work(task);
    const bool taken = spares->take(whose, digest, task, path);
    EXPECT_TRUE(taken || make_directories(path, 0700));
    spares->exchange(task, scan->tree, path);
    const auto states = spares->states_for(task, scan->tree);
    files::Tree missing = scan->tree;
    const auto kept =
        states && GetParam() ? KeptDir::look(path, scan->tree, *states) : std::optional<KeptDir>();
    EXPECT_EQ(kept.has_value(), states && GetParam());
    if (kept) {
      missing = kept->missing();
    } else if (states) {
      const auto there = keep_only(path, scan->tree, *states);
      EXPECT_TRUE(there) << there.error().message;
      missing.entries.clear();
      for (std::size_t i = 0; i < there->size(); ++i)
        if (!(*there)[i])
          missing.entries.push_back(scan->tree.entries[i]);
    }
    EXPECT_TRUE(files::write_tree(path, missing, [&](const Sha256& piece) {
      return files::read_piece(scan->sources.at(piece), piece);
    }));
    const auto settled = settled_states(path, kept ? missing : scan->tree);
    EXPECT_TRUE(settled) << settled.error().message;
    spares->written(task, digest, scan->tree, kept ? kept->states_with(*settled) : *settled);
    EXPECT_EQ(list(path), list(source)) << "the directory is the tree, and nothing else";
    if (!kept)
      return missing.entries.size();
    EXPECT_TRUE(files::decode(files::encode(missing))) << "the job refuses such a list";
    EXPECT_EQ(kept->is_complete(), missing.entries.empty());
    const std::string wanted = kept->wanted();
    return static_cast<std::size_t>(std::count(wanted.begin(), wanted.end(), '1'));
  }
  void end(TaskId task) {
    if (!spares->retire(task, work(task)))
      fs::remove_all(work(task));
    EXPECT_FALSE(fs::exists(work(task)));
  }
  std::string work(TaskId task) const { return root + "/" + std::to_string(task.value); }
  static std::map<std::string, std::string> list(const std::string& path) {
    std::map<std::string, std::string> out;
    for (const auto& item : fs::recursive_directory_iterator(path)) {
      const std::string relative = fs::relative(item.path(), path).string();
      out[relative] = item.is_symlink()     ? "-> " + fs::read_symlink(item.path()).string()
                      : item.is_directory() ? "directory"
                                            : read_file(item.path().string()).value_or("?");
    }
    return out;
  }
  // Another directory of the user's, with so many files that differ from all others.
  void make_other(int count) {
    fs::remove_all(source);
    for (int i = 0; i < count; ++i)
      make("d" + std::to_string(i % 7) + "/f" + std::to_string(i), std::to_string(i));
    make("top", "a file that is in no directory");
  }
  std::string root, source;
  std::unique_ptr<SpareDirs> spares;
};

TEST_P(SpareDirectories, TheNextJobWritesOnlyWhatDiffers) {
  EXPECT_EQ(stage(TaskId(1)), 6u);
  end(TaskId(1));
  EXPECT_EQ(stage(TaskId(2)), 0u);
  end(TaskId(2));
  make("a.txt", "changed");
  fs::remove(source + "/src/b.txt");
  EXPECT_EQ(stage(TaskId(3)), 1u);
}

TEST_P(SpareDirectories, WhatAJobChangedIsWrittenAgainHoweverItWasHidden) {
  stage(TaskId(1));
  const std::string path = work(TaskId(1));
  struct stat before {};
  ASSERT_EQ(::stat((path + "/a.txt").c_str(), &before), 0);
  {
    // The same size, and the old time of modification.
    const Fd fd(::open((path + "/a.txt").c_str(), O_WRONLY));
    ASSERT_EQ(::pwrite(fd.get(), "ONE", 3, 0), 3);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(fd.get(), times), 0);
  }
  ASSERT_TRUE(write_file_atomic(path + "/junk", "junk", 0644));
  ASSERT_TRUE(make_directories(path + "/src/more/below", 0755));
  ASSERT_EQ(::chmod((path + "/src/b.txt").c_str(), 0755), 0);
  fs::remove(path + "/link");
  ASSERT_EQ(::symlink("/etc/passwd", (path + "/link").c_str()), 0);
  end(TaskId(1));
  EXPECT_EQ(stage(TaskId(2)), 3u) << "a.txt, src/b.txt and the link";
}

// Jobs of two directories in turn: neither waits for the removal of the other's files.
TEST_P(SpareDirectories, ADirectoryWithOtherFilesIsGivenBackAsItWas) {
  const std::string first = source + "-first";
  stage(TaskId(1));
  end(TaskId(1));
  fs::rename(source, first);
  make_other(40);
  EXPECT_EQ(stage(TaskId(2)), 48u) << "40 files in 7 directories, and one beside them";
  end(TaskId(2));
  fs::remove_all(source);
  fs::rename(first, source);
  EXPECT_EQ(stage(TaskId(3)), 0u) << "nothing of the first was lost, files at the top included";
  end(TaskId(3));
  make("a.txt", "changed");
  EXPECT_EQ(stage(TaskId(30)), 1u);
  end(TaskId(30));
  fs::rename(source, first);
  make_other(39);
  EXPECT_EQ(stage(TaskId(31)), 0u) << "one file fewer: from the directory that was not the last";
  end(TaskId(31));
  fs::remove_all(source);
  fs::rename(first, source);
  EXPECT_EQ(stage(TaskId(32)), 0u);
  EXPECT_EQ(stage(TaskId(33)), 6u) << "the only directory with these files is in use";
  end(TaskId(32));
  end(TaskId(33));
}

TEST_P(SpareDirectories, ADirectoryIsKeptIfMostOfItStays) {
  make_other(40);
  stage(TaskId(1));
  end(TaskId(1));
  for (int i = 0; i < 15; ++i)
    fs::remove(source + "/d" + std::to_string(i % 7) + "/f" + std::to_string(i));
  EXPECT_EQ(stage(TaskId(2)), 0u);
  end(TaskId(2));
  make("large", std::string(8 << 20, 'l'));
  stage(TaskId(3));
  end(TaskId(3));
  make_other(0);
  make("large", std::string(8 << 20, 'l'));
  EXPECT_EQ(stage(TaskId(4)), 0u) << "a large file outweighs the removal of many small ones";
}

// A file at the top gets a new time by being moved. That must not hide a change.
TEST_P(SpareDirectories, AChangeBeforeADirectoryIsGivenBackIsNotHidden) {
  const std::string first = source + "-first";
  stage(TaskId(1));
  end(TaskId(1));
  const std::string spare = fs::directory_iterator(root + "/spare")->path().string();
  struct stat before {};
  ASSERT_EQ(::stat((spare + "/a.txt").c_str(), &before), 0);
  {
    const Fd fd(::open((spare + "/a.txt").c_str(), O_WRONLY));
    ASSERT_EQ(::pwrite(fd.get(), "ONE", 3, 0), 3);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(fd.get(), times), 0);
  }
  fs::rename(source, first);
  make_other(40);
  stage(TaskId(2));
  end(TaskId(2));
  fs::remove_all(source);
  fs::rename(first, source);
  EXPECT_EQ(stage(TaskId(3)), 1u) << "a.txt";
}

// An agent that is killed after a job got a directory knows nothing of what is in it when it runs
// again: the job must not find files of another.
TEST_P(SpareDirectories, AfterARestartADirectoryIsEmptiedFirst) {
  stage(TaskId(1));
  end(TaskId(1));
  make_other(3);
  const auto scan = files::scan({.root = source, .only = {}, .ignore_files = false, .cache = {}});
  ASSERT_TRUE(spares->take({0, "ann", "lab"}, Sha256{}, TaskId(2), work(TaskId(2))));
  spares = std::make_unique<SpareDirs>(root + "/spare", 1 << 30);
  spares->adopt({TaskId(2)});
  const auto states = spares->states_for(TaskId(2), scan->tree);
  ASSERT_TRUE(states);
  ASSERT_TRUE(keep_only(work(TaskId(2)), scan->tree, *states));
  EXPECT_TRUE(fs::is_empty(work(TaskId(2))));
  EXPECT_FALSE(spares->states_for(TaskId(3), scan->tree)) << "a task of this agent's";
}

TEST_P(SpareDirectories, AFileWithASecondNameIsNotKept) {
  stage(TaskId(1));
  ASSERT_EQ(::link((work(TaskId(1)) + "/a.txt").c_str(), (root + "/elsewhere").c_str()), 0);
  end(TaskId(1));
  EXPECT_EQ(stage(TaskId(2)), 1u);
}

// Whoever kept a descriptor can still write, after the job has ended.
TEST_P(SpareDirectories, AChangeAfterTheEndIsSeenToo) {
  stage(TaskId(1));
  const Fd kept(::open((work(TaskId(1)) + "/a.txt").c_str(), O_WRONLY));
  end(TaskId(1));
  ASSERT_EQ(::pwrite(kept.get(), "ONE", 3, 0), 3);
  EXPECT_EQ(stage(TaskId(2)), 1u);
}

TEST_P(SpareDirectories, ADirectoryThatBecameALinkLeadsNowhere) {
  ASSERT_TRUE(make_directories(root + "/outside", 0755));
  ASSERT_TRUE(write_file_atomic(root + "/outside/b.txt", "mine", 0644));
  stage(TaskId(1));
  fs::remove_all(work(TaskId(1)) + "/src");
  ASSERT_EQ(::symlink((root + "/outside").c_str(), (work(TaskId(1)) + "/src").c_str()), 0);
  end(TaskId(1));
  EXPECT_EQ(read_file(root + "/outside/b.txt").value_or(""), "mine");
  stage(TaskId(2));
  EXPECT_EQ(read_file(root + "/outside/b.txt").value_or(""), "mine");
}

TEST_P(SpareDirectories, AnEmptyTreeGetsAnEmptyDirectory) {
  stage(TaskId(1));
  end(TaskId(1));
  fs::remove_all(source);
  ASSERT_TRUE(make_directories(source, 0755));
  EXPECT_EQ(stage(TaskId(2)), 0u);
}

TEST_P(SpareDirectories, NobodyElseGetsThem) {
  stage(TaskId(1), {0, "ann", "lab"});
  end(TaskId(1));
  EXPECT_EQ(stage(TaskId(2), {0, "bob", "lab"}), 6u);
  EXPECT_EQ(stage(TaskId(3), {0, "ann", "other"}), 6u);
  EXPECT_EQ(stage(TaskId(4), {1, "ann", "lab"}), 6u);
  EXPECT_EQ(stage(TaskId(5), {0, "ann", "lab"}), 0u);
}

TEST_P(SpareDirectories, TheyKeepToTheirLimits) {
  spares = std::make_unique<SpareDirs>(root + "/spare", 11 << 20);
  for (std::uint64_t i = 1; i <= 4; ++i)
    stage(TaskId(i));
  for (std::uint64_t i = 1; i <= 4; ++i)
    end(TaskId(i));
  EXPECT_EQ(std::distance(fs::directory_iterator(root + "/spare"), fs::directory_iterator()), 2);
  spares = std::make_unique<SpareDirs>(root + "/spare", 1 << 20);
  EXPECT_TRUE(fs::is_empty(root + "/spare")) << "an earlier agent's are removed";
  stage(TaskId(9));
  end(TaskId(9));
  EXPECT_TRUE(fs::is_empty(root + "/spare")) << "one tree is larger than the limit";
}

// A job does anything to its files; the next one finds the tree as it was sent.
TEST_P(SpareDirectories, AfterRandomChangesTheNextJobFindsItsTree) {
  Rng rng(20261116);
  for (std::uint64_t i = 1; i <= 60; ++i) {
    stage(TaskId(i));
    for (int n = 0; n < 5; ++n) {
      static const char* const names[] = {"a.txt", "src",     "src/b.txt",     "src/deep",
                                          "link",  "src/new", "src/deep/c.bin"};
      const std::string path = work(TaskId(i)) + "/" + names[rng.below(7)];
      std::error_code ignored;
      switch (rng.below(6)) {
        case 0:
          fs::remove_all(path, ignored);
          break;
        case 1:
          (void)write_file_atomic(path, "x", 0600);
          break;
        case 2:
          (void)make_directories(path + "/y", 0755);
          break;
        case 3:
          (void)!::symlink("/etc", path.c_str());
          break;
        case 4:
          (void)!::chmod(path.c_str(), 0700);
          break;
        default:
          (void)!::truncate(path.c_str(), 2);
          break;
      }
    }
    end(TaskId(i));
  }
}

INSTANTIATE_TEST_SUITE_P(BothLook, SpareDirectories, ::testing::Bool());

// What the job's user could not remove, the agent does not remove for it.
TEST(KeptDirectory, IsLookedAtWithTheRightsOfItsOwner) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root: only root has more rights than the owner";
  char name[] = "/tmp/billow-kept-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string path = name, others = path + "/others";
  ASSERT_TRUE(make_directories(others, 0755));
  ASSERT_TRUE(write_file_atomic(others + "/file", "mine", 0644));
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(KeptDir::look(path, {}, {}));
  EXPECT_EQ(read_file(others + "/file").value_or(""), "mine");
  // Its own are removed.
  ASSERT_EQ(::chown(others.c_str(), 12345, 12345), 0);
  const auto kept = KeptDir::look(path, {}, {});
  ASSERT_TRUE(kept);
  EXPECT_TRUE(kept->is_complete() && fs::is_empty(path));
  fs::remove_all(path);
}

}  // namespace
}  // namespace billow::agent
