#include "store/store_url.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <fmt/format.h>
#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

constexpr std::string_view schemes[] = {"postgres://", "postgresql://"};

struct Range {
  std::size_t begin = 0, end = 0;
};

// The positions of passwords in a URL that begins at `scheme_end`: between user and host, and as a
// parameter.
std::vector<Range> passwords_of(std::string_view url, std::size_t scheme_end) {
  std::vector<Range> out;
  const std::size_t authority_end = std::min(url.find_first_of("/?", scheme_end), url.size());
  // A password with a bare @ or / is refused later; it is covered as far as it can be recognised.
  const std::size_t at = url.rfind('@'), colon = url.find(':', scheme_end);
  if (at != std::string_view::npos && colon < at && (colon < authority_end || at < authority_end))
    out.push_back({colon + 1, at});
  for (std::size_t from = url.find("password=", scheme_end); from != std::string_view::npos;
       from = url.find("password=", from + 9))
    out.push_back({from + 9, std::min(url.find('&', from), url.size())});
  return out;
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
        (byte >= 'A' && byte <= 'Z'))
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

Result<std::string> from_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return fail_errno("--store-file " + path, errno);
  if ((info.st_mode & 077) != 0)
    return fail(Code::forbidden, fmt::format("{} can be read by other users", path),
                fmt::format("chmod 600 {}", path));
  const std::string text = BILLOW_TRY(read_file(path, 4096));
  std::string url(trim(text));
  if (url.empty() || url.find('\n') != std::string::npos)
    return fail(Code::invalid, fmt::format("{} does not hold one line", path),
                "it is the URL of the database: postgres://user:password@host/billow");
  return url;
}

}  // namespace

bool has_password(std::string_view url) {
  for (const std::string_view scheme : schemes)
    if (url.starts_with(scheme))
      for (const Range& range : passwords_of(url, scheme.size()))
        if (range.end > range.begin)
          return true;
  return false;
}

Result<std::string> store_url(const StoreUrlSources& sources) {
  if (!sources.url.empty() && !sources.file.empty())
    return fail(Code::invalid, "--store and --store-file are two ways to say the same");
  const char* variable = ::getenv("BILLOW_STORE");
  const char* password = ::getenv("PGPASSWORD");
  std::string url = sources.url;
  if (!sources.file.empty())
    url = BILLOW_TRY(from_file(sources.file));
  else if (url.empty() && sources.variables && variable)
    url = variable;
  if (!url.empty() && password && *password && !has_password(url))
    url += fmt::format("{}password={}", url.find('?') == std::string::npos ? '?' : '&',
                       percent_encoded(password));
  if (!url.empty()) {
    ::unsetenv("BILLOW_STORE");
    ::unsetenv("PGPASSWORD");
  }
  return url;
}

bool cover_passwords(char* begin, char* end) {
  bool covered = false;
  for (char* word = begin; word < end;) {
    char* const over = std::find(word, end, '\0');
    const std::string_view text(word, static_cast<std::size_t>(over - word));
    for (const std::string_view scheme : schemes) {
      const std::size_t at = text.find(scheme);
      if (at == std::string_view::npos)
        continue;
      for (const Range& range : passwords_of(text, at + scheme.size())) {
        covered = covered || range.end > range.begin;
        std::fill(word + range.begin, word + range.end, '*');
      }
    }
    word = over + 1;
  }
  return covered;
}

bool cover_passwords_in_arguments() {
  const auto stat = read_file("/proc/self/stat", 8192);
  if (!stat)
    return false;
  const auto words = split(stat->substr(std::min(stat->rfind(')') + 2, stat->size())), ' ');
  // Counted after the name; proc(5) numbers these fields 48 and 49.
  constexpr std::size_t arg_start = 45, arg_end = 46;
  if (words.size() <= arg_end)
    return false;
  const auto begin = parse_int(words[arg_start], 1, INT64_MAX),
             end = parse_int(words[arg_end], 1, INT64_MAX);
  if (!begin || !end || *end <= *begin)
    return false;
  return cover_passwords(reinterpret_cast<char*>(*begin), reinterpret_cast<char*>(*end));
}

}  // namespace billow
