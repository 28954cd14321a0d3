#include "agent/node/node_policy.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/file.h"
#include "base/glob.h"
#include "base/text.h"
#include "container/signature.h"
#include "core/model/image_name.h"

namespace billow::agent {
namespace {

constexpr std::size_t policy_bytes_max = 64 << 10;
constexpr std::uint32_t first_person = 1000, nobody = 65534;

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line.substr(0, line.find('#'))) {
    if (c != ' ' && c != '\t' && c != '\r') {
      word += c;
      continue;
    }
    if (!word.empty())
      words.push_back(std::move(word));
    word.clear();
  }
  if (!word.empty())
    words.push_back(std::move(word));
  return words;
}

Result<AccountRule> account_rule(const std::string& word) {
  if (word.starts_with('@') && word.size() > 1)
    return AccountRule{AccountRule::Kind::group, word.substr(1), 0, 0};
  if (word.front() < '0' || word.front() > '9')
    return AccountRule{AccountRule::Kind::account, word, 0, 0};
  const auto dash = word.find('-');
  const auto first = parse_int(word.substr(0, dash), 0, UINT32_MAX - 1);
  const auto last =
      dash == std::string::npos ? first : parse_int(word.substr(dash + 1), 0, UINT32_MAX - 1);
  if (!first || !last || *last < *first)
    return fail(Code::invalid, fmt::format("\"{}\" is not a range of account numbers", word),
                "write it like 1000-59999");
  return AccountRule{AccountRule::Kind::numbers, "", static_cast<std::uint32_t>(*first),
                     static_cast<std::uint32_t>(*last)};
}

bool in_group(const UserRecord& account, const std::string& name) {
  const group* found = ::getgrnam(name.c_str());
  if (!found)
    return false;
  const auto& groups = account.identity.groups;
  return account.identity.gid == found->gr_gid ||
         std::find(groups.begin(), groups.end(), found->gr_gid) != groups.end();
}

bool covers(const AccountRule& rule, const UserRecord& account) {
  switch (rule.kind) {
    case AccountRule::Kind::account:
      return rule.name == account.name;
    case AccountRule::Kind::numbers:
      return account.identity.uid >= rule.first && account.identity.uid <= rule.last;
    case AccountRule::Kind::group:
      return in_group(account, rule.name);
  }
  return false;
}

bool covers(const std::vector<AccountRule>& rules, const UserRecord& account) {
  return std::any_of(rules.begin(), rules.end(),
                     [&](const AccountRule& rule) { return covers(rule, account); });
}

// Whom the owner denies, the head does not get by another name of the same number either.
bool denied(const std::vector<AccountRule>& rules, const UserRecord& account) {
  return covers(rules, account) || std::ranges::any_of(rules, [&](const AccountRule& rule) {
           if (rule.kind != AccountRule::Kind::account)
             return false;
           const auto named = look_up_user(rule.name);
           // Who cannot be looked up at the moment may have this number.
           return named ? named->identity.uid == account.identity.uid
                        : named.error().code != Code::not_found;
         });
}

// A pattern that can match a registry and a repository, as check_images compares them. Anything
// else would match nothing, or is a word that was meant otherwise.
Status check_image_pattern(const std::string& pattern) {
  const auto refused = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("\"{}\" names no images: {}", pattern, why));
  };
  if (pattern == "**")
    return {};
  const std::vector<std::string> parts = split(pattern, '/');
  const std::string& registry = parts.front();
  if (parts.size() < 2 || registry.empty() ||
      (registry != "localhost" && registry.find_first_of(".:*?[") == std::string::npos))
    return refused("begin with a registry, like docker.io/library/ubuntu or ghcr.io/acme/**");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].find_first_of(":@") != std::string::npos)
      return refused("leave out tags and digests");
    if (parts[i].empty() || !std::ranges::all_of(parts[i], [&](char c) {
          return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                 std::string_view("._-*?[]!^").find(c) != std::string_view::npos ||
                 (i == 0 && (c == ':' || (c >= 'A' && c <= 'Z')));
        }))
      return refused(fmt::format("\"{}\" cannot be part of an image's name", parts[i]));
  }
  return {};
}

// "images" and, in any order, "none", "pinned", "signed FILE" and patterns.
Status add_image_rules(const std::vector<std::string>& words, ImageRules& rules) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "pinned") {
      rules.pinned = true;
    } else if (words[i] == "none") {
      rules.none = true;
    } else if (words[i] == "signed") {
      if (++i == words.size() || !words[i].starts_with('/'))
        return fail(Code::invalid, "images signed needs the path of a public key");
      rules.signer_files.push_back(words[i]);
    } else {
      BILLOW_TRY_VOID(check_image_pattern(words[i]));
      rules.names.push_back(words[i]);
    }
  }
  return {};
}

// Lines of two words, of which the second is one of two.
struct Choice {
  std::string_view word, yes, no;
  void (*set)(NodePolicy&, bool);
};
constexpr Choice choices[] = {
    {"isolation", "strict", "plain",
     [](NodePolicy& p, bool yes) {
       p.strict_only = yes;
     }},
    {"tmp", "private", "shared",
     [](NodePolicy& p, bool yes) {
       p.rules.private_tmp = yes;
     }},
    {"proc", "private", "shared",
     [](NodePolicy& p, bool yes) {
       p.rules.private_proc = yes;
     }},
    {"metadata", "closed", "unguarded",
     [](NodePolicy& p, bool yes) {
       p.rules.metadata_closed = yes;
     }},
    {"replicas", "closed", "open",
     [](NodePolicy& p, bool yes) {
       p.rules.replicas_closed = yes;
     }},
    {"devices", "closed", "unguarded",
     [](NodePolicy& p, bool yes) {
       p.rules.devices_closed = yes;
     }},
};

const Choice* find_choice(std::string_view word) {
  const auto* found = std::ranges::find(choices, word, &Choice::word);
  return found == std::end(choices) ? nullptr : found;
}

// "disk" and a size, "half" (of what is free) or "none".
Result<std::optional<std::int64_t>> disk_rule(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[1] == "half")
    return std::optional<std::int64_t>();
  if (words.size() == 2 && words[1] == "none")
    return std::optional<std::int64_t>(0);
  // A number alone would be bytes, which nobody means.
  const bool unit =
      words.size() == 2 && !words[1].empty() && (words[1].back() < '0' || words[1].back() > '9');
  const auto bytes = unit ? parse_bytes(words[1]) : fail(Code::invalid, "");
  if (!bytes || *bytes == 0 || *bytes > std::uint64_t{INT64_MAX})
    return fail(Code::invalid, "disk must be a size like 200GB, half or none");
  return std::optional(static_cast<std::int64_t>(*bytes));
}

// A file that nobody but root and this process's user can write.
Result<std::string> read_owned(const std::string& file, const std::string& what) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return fail_errno(fmt::format("{} {}", what, file), errno);
  if (!S_ISREG(info.st_mode) || (info.st_uid != 0 && info.st_uid != ::geteuid()) ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(Code::forbidden,
                fmt::format("{} {} is writable by users other than root", what, file),
                fmt::format("chown root {0} && chmod 644 {0}", file));
  // The file that was looked at, whatever has the name now.
  return read_file(fmt::format("/dev/fd/{}", fd.get()), policy_bytes_max);
}

}  // namespace

Result<NodePolicy> parse_node_policy(std::string_view text) {
  NodePolicy policy;
  bool says_root = false;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty())
      continue;
    const auto bad = [&](const std::string& why) {
      return fail(
          Code::invalid, fmt::format("line {}: {}", number, why),
          "each line is: allow ACCOUNT…, deny ACCOUNT…, root USER…|none, isolation "
          "strict|plain, tmp private|shared, proc private|shared, metadata closed|unguarded, "
          "replicas closed|open, devices closed|unguarded, disk SIZE|half|none or images "
          "PATTERN…|none|pinned|signed FILE…");
    };
    if (words.size() < 2)
      return bad(fmt::format("\"{}\" needs a value", words[0]));
    if (const Choice* choice = find_choice(words[0])) {
      if (words.size() != 2 || (words[1] != choice->yes && words[1] != choice->no))
        return bad(fmt::format("{} must be {} or {}", choice->word, choice->yes, choice->no));
      choice->set(policy, words[1] == choice->yes);
      continue;
    }
    if (words[0] == "disk") {
      const auto bytes = disk_rule(words);
      if (!bytes)
        return bad(bytes.error().message);
      policy.rules.disk_bytes = *bytes;
      continue;
    }
    if (words[0] == "images") {
      if (const Status added = add_image_rules(words, policy.images); !added)
        return bad(added.error().message);
      continue;
    }
    const bool root = words[0] == "root";
    if (!root && words[0] != "allow" && words[0] != "deny")
      return bad(fmt::format("unknown word \"{}\"", words[0]));
    if (root && !says_root)
      policy.root_for.clear();
    says_root |= root;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (root) {
        if (words[i] != "none")
          policy.root_for.push_back(words[i]);
        continue;
      }
      const auto rule = account_rule(words[i]);
      if (!rule)
        return bad(rule.error().message);
      (words[0] == "allow" ? policy.allow : policy.deny).push_back(*rule);
    }
  }
  return policy;
}

Result<NodePolicy> load_node_policy(const std::string& path) {
  const std::string file = path.empty() ? node_policy_path : path;
  if (path.empty() && ::access(file.c_str(), F_OK) != 0 && errno == ENOENT)
    return NodePolicy{};
  auto policy = parse_node_policy(BILLOW_TRY(read_owned(file, "the node's policy")));
  if (!policy)
    return pass(Error(policy.error()).in(fmt::format("the node's policy {}", file)));
  ImageRules& images = policy->images;
  for (const std::string& key_file : images.signer_files) {
    const std::string key = BILLOW_TRY(read_owned(key_file, "the key of the node's policy"));
    if (const Status good = container::check_public_key(key); !good)
      return pass(Error(good.error()).in(key_file));
    images.signers += key + "\n";
  }
  if (images.signers.size() > policy_bytes_max)
    return fail(Code::invalid, fmt::format("the keys of the node's policy {} exceed {} bytes", file,
                                           policy_bytes_max));
  return policy;
}

Status check_policy(const NodePolicy& policy, const std::string& owner, const UserRecord& account) {
  const auto refused = [](std::string why, std::string hint) {
    return fail(Code::forbidden, "this node's policy: " + std::move(why), std::move(hint));
  };
  if (account.identity.uid == 0) {
    const auto& users = policy.root_for;
    const bool root_denied = std::ranges::any_of(policy.deny, [](const AccountRule& rule) {
      return rule.kind == AccountRule::Kind::account && rule.name == "root";
    });
    if (!root_denied && std::find(users.begin(), users.end(), owner) != users.end())
      return {};
    return refused(fmt::format("jobs of {} may not run as root here",
                               owner.empty() ? "an unknown user" : owner),
                   fmt::format("the node's owner can allow it in {}: root {}", node_policy_path,
                               owner.empty() ? "USER" : owner));
  }
  const bool allowed = policy.allow.empty() ? (account.identity.uid >= first_person &&
                                               account.identity.uid != nobody) ||
                                                  account.identity.uid == ::geteuid()
                                            : covers(policy.allow, account);
  if (allowed && !denied(policy.deny, account))
    return {};
  return refused(
      fmt::format("jobs may not run as {} (uid {}) here", account.name, account.identity.uid),
      fmt::format("the node's owner can allow it in {}: allow {}", node_policy_path, account.name));
}

// Numbers and groups say nothing of a name that has no account.
Status check_policy_without_account(const NodePolicy& policy,
                                    const std::string& name,
                                    const UserRecord* instead) {
  const auto names_it = [&](const AccountRule& rule) {
    return rule.kind == AccountRule::Kind::account && rule.name == name;
  };
  const bool allowed =
      instead || policy.allow.empty() || std::ranges::any_of(policy.allow, names_it);
  if (allowed && std::ranges::none_of(policy.deny, names_it))
    return {};
  return fail(
      Code::forbidden,
      fmt::format("this node's policy: jobs of {}, who has no account here, may not run", name),
      fmt::format("the node's owner can allow them in {}: allow {}", node_policy_path, name));
}

Status check_images(const ImageRules& rules, const Surroundings& asked) {
  const auto refused = [](std::string why, std::string hint) {
    return fail(Code::forbidden, "this node's policy: " + std::move(why), std::move(hint));
  };
  // An environment is named by its digest, and has neither a registry nor a signature.
  const bool limited = rules.none || !rules.names.empty() || !rules.signer_files.empty();
  if (!asked.environment_digest.empty() && limited)
    return refused("jobs may not use environments here", "the node's owner limits images");
  if (asked.image.empty())
    return {};
  if (rules.none)
    return refused("jobs may not use images here", "leave out --image");
  const ImageName name = BILLOW_TRY(parse_image_name(asked.image));
  if (rules.pinned && name.digest.empty())
    return refused(fmt::format("image {} is not named by its digest", asked.image),
                   "write NAME@sha256:…; `podman image inspect` shows it");
  ImageName full = BILLOW_TRY(parse_image_name(name.qualified()));
  full.tag.clear();
  full.digest.clear();
  const std::string repository = full.text();
  const bool named = std::ranges::any_of(rules.names, [&](const std::string& pattern) {
    return PathGlob(pattern).matches(repository);
  });
  if (!rules.names.empty() && !named)
    return refused(fmt::format("image {} may not be used here", repository),
                   "allowed are " + join(rules.names, ", "));
  return {};
}

}  // namespace billow::agent
