// Ignore files are read as git reads them: generated patterns and paths, compared with what `git
// check-ignore` answers about the same tree.
#include "files/ignore.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "process/command.h"

namespace billow::files {
namespace {

const std::string components[] = {"a",   "b",  "ab",  "a.c", "B",  "1",    "x y",
                                  "a b", "a ", "[a]", "#a",  "!a", "a\\b", "-"};

// A repository with directories a, b, ab and a.c nested three deep, and a file of each component in
// every directory.
class Repository {
 public:
  Repository() : root_(std::filesystem::temp_directory_path() / "billow-ignore-test-XXXXXX") {
    std::string name = root_.string();
    root_ = ::mkdtemp(name.data());
    git({"init", "-q"});
    fill("", 0);
  }
  ~Repository() { std::filesystem::remove_all(root_); }

  const std::vector<std::string>& paths() const { return paths_; }
  bool is_directory(const std::string& path) const {
    return std::filesystem::is_directory(root_ / path);
  }
  void write(const std::string& directory, const std::string& content) const {
    ASSERT_TRUE(write_file_atomic((root_ / directory / ".gitignore").string(), content));
  }
  // The paths that git ignores.
  std::set<std::string> ignored() const {
    std::string input;
    for (const std::string& path : paths_)
      input += path + '\0';
    std::set<std::string> out;
    for (const std::string& path :
         split(git({"check-ignore", "--no-index", "-z", "--stdin"}, input), '\0'))
      if (!path.empty())
        out.insert(path);
    return out;
  }

 private:
  void fill(const std::string& directory, int depth) {
    for (const std::string& name : components) {
      const bool leaf = depth == 2 || name.size() > 3 || name.find_first_of(" [#!\\-1") == 0;
      const std::string path = directory + name;
      paths_.push_back(path);
      if (!leaf && name.find(' ') == std::string::npos && name != "B") {
        ::mkdir((root_ / path).c_str(), 0755);
        fill(path + "/", depth + 1);
      } else {
        EXPECT_TRUE(write_file_atomic((root_ / path).string(), ""));
      }
    }
  }
  std::string git(std::vector<std::string> arguments, std::string input = {}) const {
    arguments.insert(arguments.begin(), {"git", "-C", root_.string()});
    const auto done =
        process::run_command({.argv = arguments,
                              .env = {{"GIT_CONFIG_NOSYSTEM", "1"}, {"HOME", root_.string()}},
                              .input = std::move(input)});
    EXPECT_TRUE(done && done->code <= 1) << (done ? done->err : done.error().message);
    return done ? done->out : "";
  }

  std::filesystem::path root_;
  std::vector<std::string> paths_;
};

std::string random_pattern(Rng& rng) {
  static constexpr std::string_view pieces[] = {
      "a",         "b",     "c",     ".",           "a",           "b",
      "*",         "*",     "?",     "**",          "/",           "/",
      "**/",       "/**",   "/**/",  "***",         "[ab]",        "[!a]",
      "[^b]",      "[a-c]", "[",     "]",           "\\",          "\\*",
      "\\ ",       " ",     "x y",   "[[:alpha:]]", "[[:upper:]]", "[[:digit:]-]",
      "[[:bad:]]", "[]a]",  "[!]a]", "[\\]a]",      "[a\\-c]",     "#",
      "!",         "\\!a",  "\\#a",  "B",           "1",           "-",
      "[--1]",     "[c-a]"};
  std::string out;
  if (rng.chance(0.2))
    out += "!";
  if (rng.chance(0.2))
    out += "/";
  for (auto n = rng.between(1, 5); n > 0; --n)
    out += pieces[rng.below(std::size(pieces))];
  if (rng.chance(0.2))
    out += "/";
  if (rng.chance(0.1))
    out += rng.chance(0.5) ? "  " : "\\ ";
  if (rng.chance(0.1))
    out += "\r";
  return out;
}

std::string random_file(Rng& rng) {
  std::string out = rng.chance(0.05) ? "\xef\xbb\xbf" : "";
  for (auto n = rng.between(1, 4); n > 0; --n)
    out += random_pattern(rng) + (n > 1 || rng.chance(0.7) ? "\n" : "");
  return out;
}

// As a walk through the tree decides: nothing below a directory that is left out can be included.
bool left_out(const IgnoreRules& rules, const Repository& tree, const std::string& path) {
  for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
    if (rules.ignored(path.substr(0, at), true))
      return true;
  return rules.ignored(path, tree.is_directory(path));
}

TEST(Ignore, DecidesAsGitDoesOnGeneratedPatterns) {
  const Repository tree;
  Rng rng(16);
  std::size_t left_out_in_all = 0;
  for (int round = 0; round < 120; ++round) {
    const std::string top = random_file(rng), nested = random_file(rng);
    tree.write("", top);
    tree.write("a", nested);
    IgnoreRules rules;
    rules.add("", top);
    rules.add("a", nested);
    const std::set<std::string> expected = tree.ignored();
    left_out_in_all += expected.size();
    for (const std::string& path : tree.paths())
      ASSERT_EQ(left_out(rules, tree, path), expected.contains(path))
          << "round " << round << ", path \"" << path << "\"\n.gitignore:\n"
          << top << "\na/.gitignore:\n"
          << nested;
  }
  EXPECT_GT(left_out_in_all, 1000u);  // the patterns mean something
}

TEST(Ignore, AHostilePatternDoesNotSlowTheScanDown) {
  IgnoreRules rules;
  rules.add("", "*a*a*a*a*a*a*b\n");
  EXPECT_FALSE(rules.ignored(std::string(60, 'a'), false));
  EXPECT_TRUE(rules.ignored(std::string(60, 'a') + "b", false));
}

}  // namespace
}  // namespace billow::files
