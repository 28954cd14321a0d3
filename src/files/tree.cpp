#include "files/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/text.h"

namespace billow::files {
namespace {

constexpr std::string_view tree_magic = "billow-tree-1\n";
constexpr std::size_t path_bytes_max = 4096;

void put_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i));
}

struct ListReader {
  std::string_view data;
  bool ok = true;
  std::uint64_t number(int bytes) {
    if (data.size() < static_cast<std::size_t>(bytes)) {
      ok = false;
      return 0;
    }
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |=
          static_cast<std::uint64_t>(static_cast<unsigned char>(data[static_cast<std::size_t>(i)]))
          << (8 * i);
    data.remove_prefix(static_cast<std::size_t>(bytes));
    return value;
  }
  std::string_view text(std::size_t size) {
    if (data.size() < size) {
      ok = false;
      return std::string_view();
    }
    const std::string_view value = data.substr(0, size);
    data.remove_prefix(size);
    return value;
  }
};

// For messages: an untrusted path may contain anything.
std::string shown_path(std::string_view path) {
  std::string out(path.substr(0, 200));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      c = '?';
  return out;
}

std::unexpected<Error> bad(std::string_view path, std::string_view why) {
  return fail(Code::invalid,
              fmt::format("this tree of files is rejected: \"{}\" {}", shown_path(path), why), "");
}

Status check_path(std::string_view path) {
  if (path.empty() || path.size() > path_bytes_max)
    return bad(path, "is not a path");
  if (path.find('\0') != std::string_view::npos)
    return bad(path, "contains a zero byte");
  if (path.front() == '/')
    return bad(path, "is absolute");
  for (std::string_view rest = path;;) {
    const auto slash = rest.find('/');
    const std::string_view name = rest.substr(0, slash);
    if (name == "..")
      return bad(path, "contains \"..\"");
    if (name.empty() || name == ".")
      return bad(path, "is not in normal form");
    if (name.size() > 255)
      return bad(path, "has a name longer than 255 bytes");
    if (slash == rest.npos)
      return {};
    rest.remove_prefix(slash + 1);
  }
}

// Whether each path comes after the one before, a directory right before its content, and is in a
// directory of the list. Lists of a scan are so; then no path can appear twice.
bool is_in_order(const std::vector<Entry>& entries) {
  const auto less = [](std::string_view a, std::string_view b) {
    const auto [x, y] = std::ranges::mismatch(a, b);
    if (x == a.end() || y == b.end())
      return x == a.end() && y != b.end();
    // "a/b" comes before "a.b": the content of a directory before what follows it.
    const auto rank = [](char c) {
      return c == '/' ? -1 : static_cast<int>(static_cast<unsigned char>(c));
    };
    return rank(*x) < rank(*y);
  };
  std::vector<std::string_view> open;  // directories that the current one is in
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string_view path = entries[i].path;
    if (i > 0 && !less(entries[i - 1].path, path))
      return false;
    const auto slash = path.rfind('/');
    const std::string_view parent = slash == path.npos ? "" : path.substr(0, slash);
    while (!open.empty() && open.back() != parent)
      open.pop_back();
    if (open.empty() && !parent.empty())
      return false;
    if (entries[i].kind == Kind::directory)
      open.push_back(path);
  }
  return true;
}

// Nothing is below anything but a directory, and no path appears twice, in any order.
Status check_places(const std::vector<Entry>& entries) {
  if (is_in_order(entries))
    return {};
  std::map<std::string_view, Kind> seen;
  for (const Entry& e : entries) {
    const std::string_view path = e.path;
    if (const auto slash = path.rfind('/'); slash != path.npos) {
      const auto parent = seen.find(path.substr(0, slash));
      if (parent == seen.end() || parent->second != Kind::directory)
        return bad(path, "is not in a directory of the tree");
    }
    if (!seen.emplace(path, e.kind).second)
      return bad(path, "appears twice");
  }
  return {};
}

Status check_link(std::string_view path, std::string_view target) {
  if (target.empty() || target.size() > path_bytes_max ||
      target.find('\0') != std::string_view::npos)
    return bad(path, "links to nothing");
  if (link_stays_inside(path, target) || is_interpreter_link(path, target))
    return {};
  return bad(path, target.front() == '/' ? "links to an absolute path" : "links out of the tree");
}

}  // namespace

std::uint64_t Tree::bytes() const {
  std::uint64_t sum = 0;
  for (const Entry& e : entries)
    sum += e.size;
  return sum;
}

bool link_stays_inside(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/')
    return false;
  std::int64_t depth = static_cast<std::int64_t>(std::count(path.begin(), path.end(), '/'));
  bool named = false;
  for (const std::string& name : split(target, '/')) {
    if (name == "..") {
      if (named || --depth < 0)
        return false;
    } else if (!name.empty() && name != ".") {
      named = true;
    }
  }
  return true;
}

bool is_interpreter_link(std::string_view path, std::string_view target) {
  const auto names = split(path, '/');
  const auto targets = split(target, '/');
  const auto is_python = [](std::string_view name) {
    return name.starts_with("python") || name.starts_with("pypy");
  };
  return names.size() >= 2 && names[names.size() - 2] == "bin" && is_python(names.back()) &&
         target.starts_with('/') && is_python(targets.back()) &&
         std::ranges::find(targets, "..") == targets.end();
}

std::size_t piece_size(const Entry& entry, std::size_t index) {
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(piece_bytes, entry.size - index * std::uint64_t{piece_bytes}));
}

std::string digest_hex(const Sha256& digest) {
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

Result<Sha256> parse_digest(std::string_view text) {
  Sha256 out{};
  const auto value = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() != 64)
    return fail(Code::invalid, "invalid digest");
  for (std::size_t i = 0; i < 32; ++i) {
    const int high = value(text[2 * i]), low = value(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return fail(Code::invalid, "invalid digest");
    out[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return out;
}

std::string encode(const Tree& tree) {
  std::string out(tree_magic);
  put_number(out, tree.entries.size(), 4);
  for (const Entry& e : tree.entries) {
    out += static_cast<char>(e.kind);
    put_number(out, e.mode, 2);
    put_number(out, e.size, 8);
    put_number(out, e.path.size(), 2);
    out += e.path;
    put_number(out, e.target.size(), 2);
    out += e.target;
    for (const Sha256& piece : e.pieces)
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return out;
}

Result<Tree> decode(std::string_view list) {
  const auto unreadable = [] {
    return fail(Code::invalid, "the list of files is damaged");
  };
  if (list.size() > tree_list_bytes_max)
    return fail(Code::too_large, "the list of files is too long",
                "exclude directories in .billowignore");
  if (!list.starts_with(tree_magic))
    return unreadable();
  ListReader in{list.substr(tree_magic.size())};
  const std::uint64_t count = in.number(4);
  if (!in.ok)
    return unreadable();
  if (count > tree_entries_max)
    return fail(Code::too_large,
                fmt::format("{} files exceed the limit of {}", count, tree_entries_max),
                "exclude directories in .billowignore");
  Tree tree;
  tree.entries.reserve(std::min<std::size_t>(count, in.data.size() / 15));
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Entry e;
    const std::uint64_t kind = in.number(1);
    e.mode = static_cast<std::uint32_t>(in.number(2)) & 0777;
    e.size = in.number(8);
    e.path = in.text(in.number(2));
    e.target = in.text(in.number(2));
    if (!in.ok)
      return unreadable();
    if (kind != 'd' && kind != 'f' && kind != 'l')
      return bad(e.path, "is not a file, directory or link");
    e.kind = static_cast<Kind>(kind);
    BILLOW_TRY_VOID(check_path(e.path));
    if (e.kind == Kind::link)
      BILLOW_TRY_VOID(check_link(e.path, e.target));
    else if (!e.target.empty())
      return bad(e.path, "has a target but is not a link");
    if (e.kind != Kind::file && e.size != 0)
      return bad(e.path, "has a size but is not a file");
    total += e.size;
    if (e.size > tree_bytes_max || total > tree_bytes_max)
      return fail(Code::too_large,
                  fmt::format("the files exceed the limit of {}", format_bytes(tree_bytes_max)),
                  "keep data on a volume");
    const std::uint64_t pieces = (e.size + piece_bytes - 1) / piece_bytes;
    if (pieces * 32 > in.data.size())
      return unreadable();
    e.pieces.resize(pieces);
    for (Sha256& piece : e.pieces)
      std::memcpy(piece.data(), in.text(32).data(), 32);
    tree.entries.push_back(std::move(e));
  }
  if (!in.data.empty())
    return unreadable();
  BILLOW_TRY_VOID(check_places(tree.entries));
  return tree;
}

}  // namespace billow::files
