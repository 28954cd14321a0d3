// Environments as images: what goes in comes out, and what was made by somebody with bad intentions
// does not.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/file.h"
#include "files/image.h"

namespace billow::files {
namespace {

class ImageTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/billow-image-XXXXXX";
    root_ = ::mkdtemp(path);
  }
  void TearDown() override { (void)remove_tree(root_); }
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void write(const std::string& name, const std::string& text, unsigned mode = 0644) {
    ASSERT_TRUE(make_directories(path(name).substr(0, path(name).rfind('/'))));
    ASSERT_TRUE(write_file_atomic(path(name), text, mode));
  }
  // As a node does it: files in the order of their names.
  Status unpack(const std::string& image, const std::string& into) {
    ImageReader reader(path(into));
    BILLOW_TRY_VOID(reader.take(image_manifest_name,
                                BILLOW_TRY(read_file(path(image) + "/" + image_manifest_name))));
    for (int i = 0; file_exists(fmt::format("{}/blocks/{:08}", path(image), i)); ++i)
      BILLOW_TRY_VOID(
          reader.take(fmt::format("blocks/{:08}", i),
                      BILLOW_TRY(read_file(fmt::format("{}/blocks/{:08}", path(image), i)))));
    return reader.finish();
  }
  Status take_manifest(const ImageManifest& manifest) {
    ImageReader reader(path("out"));
    return reader.take(image_manifest_name, encode_manifest(manifest));
  }
  std::string root_;
};

TEST_F(ImageTest, WhatGoesInComesOut) {
  std::string large;
  for (int i = 0; i < 2'000'000; ++i)
    large += static_cast<char>(i * 2654435761u >> 13);
  large += large + large + large + large + large;  // several blocks
  write("in/bin/tool", "#!/bin/sh\n", 0755);
  write("in/lib/large", large);
  write("in/lib/empty", "");
  ASSERT_EQ(::symlink("/usr/bin/python3", path("in/bin/python").c_str()), 0);
  const auto written = write_image({.directory = path("in"),
                                    .place = "/opt/env",
                                    .variables = {{"A", "b"}},
                                    .programs = {"bin"},
                                    .command = {},
                                    .start_directory = {},
                                    .progress = {}},
                                   path("image"));
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->bytes, large.size() + 10);
  EXPECT_LT(written->stored_bytes, written->bytes);
  ASSERT_TRUE(unpack("image", "out"));
  EXPECT_EQ(*read_file(path("out/lib/large")), large);
  EXPECT_EQ(*read_file(path("out/lib/empty")), "");
  char target[64] = "";
  ASSERT_GT(::readlink(path("out/bin/python").c_str(), target, sizeof target - 1), 0);
  EXPECT_STREQ(target, "/usr/bin/python3");
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(path("in/bin/tool").c_str(), &before), 0);
  ASSERT_EQ(::stat(path("out/bin/tool").c_str(), &after), 0);
  EXPECT_EQ(after.st_mode & 0777, 0755u);
  EXPECT_EQ(before.st_mtim.tv_nsec,
            after.st_mtim.tv_nsec);  // or Python would compile everything again
  // The same tree gives the same image.
  ASSERT_TRUE(write_image({.directory = path("in"),
                           .place = "/opt/env",
                           .variables = {{"A", "b"}},
                           .programs = {"bin"},
                           .command = {},
                           .start_directory = {},
                           .progress = {}},
                          path("again")));
  EXPECT_EQ(*read_file(path("image") + "/" + image_manifest_name),
            *read_file(path("again") + "/" + image_manifest_name));
}

TEST_F(ImageTest, RefusesPathsThatLeaveIt) {
  for (const char* bad : {"/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", ""}) {
    ImageManifest m{.place = "/opt/x"};
    m.entries.push_back({.path = bad, .kind = Kind::file});
    EXPECT_FALSE(take_manifest(m)) << bad;
    (void)remove_tree(path("out"));
  }
  EXPECT_FALSE(file_exists(path("x")));
}

TEST_F(ImageTest, WritesNothingThroughALink) {
  ImageManifest m{.place = "/opt/x"};
  m.entries.push_back({.path = "door", .kind = Kind::link, .target = root_});
  m.entries.push_back({.path = "door/inside", .kind = Kind::file});
  EXPECT_FALSE(take_manifest(m));
  EXPECT_FALSE(file_exists(path("inside")));
}

TEST_F(ImageTest, RefusesInvalidPlaces) {
  for (const char* bad : {"", "opt/x", "/opt/../etc", "/a//b", "/a/."})
    EXPECT_FALSE(take_manifest({.place = bad})) << bad;
}

TEST_F(ImageTest, UnpacksNoMoreThanTheManifestSays) {
  ImageManifest m{.place = "/opt/x", .blocks = {10}};
  m.entries.push_back({.path = "f", .kind = Kind::file, .size = 10});
  const std::string zeros(1 << 20, '\0');
  std::string bomb(ZSTD_compressBound(zeros.size()), '\0');
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 19));
  EXPECT_LT(bomb.size(), 200u);  // a megabyte in a hundred bytes
  ImageReader reader(path("out"));
  ASSERT_TRUE(reader.take(image_manifest_name, encode_manifest(m)));
  EXPECT_FALSE(reader.take("blocks/00000000", bomb));
  // Blocks that do not fit the files, more blocks than were said, and one that is damaged.
  EXPECT_FALSE(take_manifest({.place = "/opt/x", .blocks = {10}}));
  EXPECT_FALSE(take_manifest({.place = "/opt/x", .blocks = {0xffffffff}}));
  EXPECT_FALSE(reader.take("blocks/00000001", "not compressed"));
  ImageReader cut(path("cut"));
  ASSERT_TRUE(cut.take(image_manifest_name, encode_manifest(m)));
  EXPECT_FALSE(cut.finish());
  ImageReader none(path("none"));
  EXPECT_FALSE(none.take(image_manifest_name, "rubbish"));
  EXPECT_FALSE(none.take("blocks/00000000", bomb));
}

}  // namespace
}  // namespace billow::files
