// The limit of what projects' jobs keep on a node: the longest unused goes first, and nothing outside is touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/project_cache.h"
#include "base/file.h"

namespace billow::agent {
namespace {

struct ProjectCaches : ::testing::Test {
  void SetUp() override {
    char name[] = "/tmp/billow-caches-XXXXXX";
    root = ::mkdtemp(name);
    work = root + "/work";
    ASSERT_TRUE(make_directories(root + "/data", 0700));
    one = project_cache(work, root + "/data", "one").value_or("");
    two = project_cache(work, root + "/data", "two").value_or("");
    ASSERT_FALSE(one.empty());
    ASSERT_NE(one, two);
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  // Of 64 KiB, used that long ago.
  void put(const std::string& path, int hours_ago) {
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/')), 0755));
    ASSERT_TRUE(write_file_atomic(path, std::string(64 << 10, 'x'), 0644));
    const timespec at{1'700'000'000 - hours_ago * 3600, 0};
    const timespec both[2] = {at, at};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
  }
  std::string root, work, one, two;
};

TEST_F(ProjectCaches, TheLongestUnusedGoFirstWhosesoeverTheyAre) {
  put(one + "/hub/old", 9);
  put(one + "/hub/new", 1);
  put(two + "/old", 8);
  put(two + "/newer", 2);
  trim_project_caches(work, 10 << 20);
  EXPECT_TRUE(file_exists(one + "/hub/old")) << "below the limit nothing goes";
  trim_project_caches(work, (2 * 64 + 32) << 10);
  EXPECT_FALSE(file_exists(one + "/hub/old"));
  EXPECT_FALSE(file_exists(two + "/old"));
  EXPECT_TRUE(file_exists(one + "/hub/new"));
  EXPECT_TRUE(file_exists(two + "/newer"));
  trim_project_caches(work, 0);
  EXPECT_FALSE(file_exists(one + "/hub/new"));
  EXPECT_TRUE(file_exists(one)) << "the directory itself is the project's";
}

TEST_F(ProjectCaches, WhatAJobLinkedToIsNeitherCountedNorRemoved) {
  put(root + "/elsewhere/precious", 100);
  put(one + "/own", 1);
  ASSERT_EQ(::symlink((root + "/elsewhere").c_str(), (one + "/link").c_str()), 0);
  ASSERT_EQ(::symlink((root + "/elsewhere/precious").c_str(), (one + "/file").c_str()), 0);
  trim_project_caches(work, 0);
  EXPECT_TRUE(file_exists(root + "/elsewhere/precious"));
  EXPECT_FALSE(file_exists(one + "/own"));
}

TEST_F(ProjectCaches, NothingThereIsNoTrouble) { trim_project_caches(root + "/nowhere", 0); }

}  // namespace
}  // namespace billow::agent
