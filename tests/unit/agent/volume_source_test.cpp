// Where a volume lies: whose links lead there.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "agent/content/volume_source.h"
#include "rig.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t job_user = 4001, other_user = 4002;

class VolumeSource : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::canonical(make_temp_dir()).native();
    ASSERT_TRUE(make_directories(root_ + "/disk/data"));
  }
  void TearDown() override { (void)remove_tree(root_); }
  void link(const std::string& name, const std::string& target, std::uint32_t owner = 0) {
    const std::string path = root_ + "/" + name;
    ::unlink(path.c_str());
    ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    if (owner != 0) {
      ASSERT_EQ(::lchown(path.c_str(), owner, owner), 0);
    }
  }
  std::string find(const std::string& source) {
    const auto found = volume_source(source, job_user);
    return found ? *found : "refused: " + found.error().message;
  }
  std::string root_;
};

TEST_F(VolumeSource, IsThePathWithoutLinks) {
  const std::string data = root_ + "/disk/data";
  EXPECT_EQ(find(data), data);
  EXPECT_EQ(find("/" + root_ + "//disk/data/"), data);
  link("absolute", root_ + "/disk");
  link("relative", "disk/../disk/./data");
  link("disk/up", "../absolute/data");
  EXPECT_EQ(find(root_ + "/absolute/data"), data);
  EXPECT_EQ(find(root_ + "/relative"), data);
  EXPECT_EQ(find(root_ + "/absolute/up"), data);
}

TEST_F(VolumeSource, IsNotOfTheSystem) {
  for (const std::string to : {"/", "/proc/1", "/sys", "/dev/shm", "/run", "//proc", "/srv/.."}) {
    link("out", to);
    EXPECT_NE(find(root_ + "/out").find("files of the system"), std::string::npos) << to;
    EXPECT_NE(find(to).find("files of the system"), std::string::npos) << to;
  }
  EXPECT_TRUE(is_the_systems("//proc"));
  EXPECT_TRUE(is_the_systems("///"));
  EXPECT_FALSE(is_the_systems("/processed"));
}

TEST_F(VolumeSource, IsMissingIfALinkLeadsNowhere) {
  link("loop", "loop");
  link("gone", "disk/none");
  for (const std::string name : {"/loop", "/gone", "/none/data", "/disk/../none"})
    EXPECT_NE(find(root_ + name).find("is not on this node"), std::string::npos) << name;
}

// It would lead the job to files that its user may use and the link's owner may not.
TEST_F(VolumeSource, IsNotBehindTheLinkOfSomebodyElse) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to make links of other users";
  link("theirs", root_ + "/disk", other_user);
  link("own", root_ + "/disk", job_user);
  EXPECT_EQ(find(root_ + "/own/data"), root_ + "/disk/data");
  EXPECT_NE(find(root_ + "/theirs/data").find("the user with number 4002"), std::string::npos);
  link("first", "theirs/data");
  EXPECT_NE(find(root_ + "/first").find("the user with number 4002"), std::string::npos);
}

}  // namespace
}  // namespace billow::agent
