#include "store/job_words.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace billow {
namespace {

bool in_word(char c) {
  const auto b = static_cast<unsigned char>(c);
  return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Cuts a long word, not inside of a character.
std::string shortened(std::string_view word) {
  std::size_t end = std::min(word.size(), word_bytes_max);
  while (end > 0 && end < word.size() && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80)
    --end;
  return lower(word.substr(0, end));
}

// "9.38" alone: the element of an array.
bool is_element(std::string_view text) {
  const std::size_t dot = text.find('.');
  return dot != std::string_view::npos && dot > 0 && dot + 1 < text.size() &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; }) &&
         text.find('.', dot + 1) == std::string_view::npos;
}

}  // namespace

std::vector<std::string> search_words(std::string_view text) {
  std::vector<std::string> words;
  if (is_element(text))
    return {std::string(text)};
  for (std::size_t at = 0; at < text.size();) {
    if (!in_word(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && in_word(text[end]))
      ++end;
    words.push_back(shortened(text.substr(at, end - at)));
    at = end;
  }
  return words;
}

void add_words(std::string& words, std::string_view text) {
  constexpr std::size_t bytes_max = job_words_max * word_bytes_max;
  std::size_t count = static_cast<std::size_t>(std::count(words.begin(), words.end(), ' '));
  // What follows in a long command is not looked at.
  for (const std::string& word : search_words(text.substr(0, bytes_max))) {
    if (count >= job_words_max)
      return;
    const std::size_t found = (words + " ").find(" " + word + " ");
    if (found != std::string::npos)
      continue;
    words += " " + word;
    ++count;
  }
}

bool has_word(std::string_view words, std::string_view prefix) {
  for (std::size_t at = words.find(prefix); at != std::string_view::npos;
       at = words.find(prefix, at + 1))
    if (at > 0 && words[at - 1] == ' ')
      return true;
  return false;
}

std::string above_prefix(std::string_view prefix) {
  return std::string(prefix) + "\xf4\x8f\xbf\xbf";
}

Result<std::optional<std::string>> rarest_word(sql::Db& db,
                                               const std::vector<std::string>& prefixes) {
  std::optional<std::string> rarest;
  auto fewest = static_cast<std::int64_t>(rare_word_jobs);
  for (const std::string& prefix : prefixes) {
    const std::string above = above_prefix(prefix);
    auto q =
        BILLOW_TRY(db.query("SELECT count(*) FROM (SELECT 1 FROM job_words WHERE word >= ? AND "
                            "word < ? LIMIT ?) AS w"));
    q.bind_all(std::string_view(prefix), std::string_view(above), fewest);
    if (!BILLOW_TRY(q.step()) || q.integer(0) >= fewest)
      continue;
    fewest = q.integer(0);
    rarest = prefix;
    if (fewest == 0)
      break;
  }
  return rarest;
}

Status fill_words(sql::Db& db) {
  constexpr std::size_t chunk = 500;
  struct Old {
    std::int64_t id;
    std::string words;
  };
  for (std::int64_t after = 0;;) {
    std::vector<Old> rows;
    {
      auto q = BILLOW_TRY(
          db.query("SELECT id, name, nodes, gpu_type, labels, coalesce(json_extract(doc, "
                   "'$.command'), ''), coalesce(json_extract(doc, '$.user'), ''), "
                   "coalesce(json_extract(doc, '$.project'), '') FROM jobs WHERE id > ? AND "
                   "words = '' ORDER BY id LIMIT ?"));
      q.bind_all(after, static_cast<std::int64_t>(chunk));
      while (BILLOW_TRY(q.step())) {
        Old old{q.integer(0), {}};
        for (int column = 1; column < 8; ++column)
          add_words(old.words, q.text(column));
        rows.push_back(std::move(old));
      }
    }
    for (const Old& old : rows) {
      after = old.id;
      BILLOW_TRY_VOID(db.run("UPDATE jobs SET words = ? WHERE id = ?", old.words, old.id));
      for (const std::string& word : split(old.words, ' '))
        if (!word.empty())
          BILLOW_TRY_VOID(
              db.run("INSERT INTO job_words VALUES (?,?) ON CONFLICT DO NOTHING", word, old.id));
    }
    if (rows.size() < chunk)
      return {};
  }
}

}  // namespace billow
