// The words by which jobs are searched. A word is a run of letters and digits in lower case; a
// search names the beginnings of words, all of which a job must have.
//
// The row of a job holds its words (" train llama h100"), and `job_words` has one row for each, so
// that a rare word finds its jobs without looking at others. A search is driven by its rarest word.
// If even that one is common, jobs are looked at from the newest on: then a page is full soon, or
// its work ends at limits::query_rows_scanned_max.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/sql.h"

namespace billow {

inline constexpr std::size_t job_words_max = 64;       // of one job: the first
inline constexpr std::size_t word_bytes_max = 40;      // of one word: the beginning
inline constexpr std::size_t rare_word_jobs = 20'000;  // a word of fewer jobs drives a search

// The words of a text, in order. "9.38" (an element of an array) stays one word.
std::vector<std::string> search_words(std::string_view text);
// Adds the words of a text to a row's, each once.
void add_words(std::string& words, std::string_view text);
// Whether a word in `words` begins with `prefix`.
bool has_word(std::string_view words, std::string_view prefix);

// The smallest text above all that begin with the prefix, in valid UTF-8.
std::string above_prefix(std::string_view prefix);
// Which of these prefixes is rarest; none if all are common.
Result<std::optional<std::string>> rarest_word(sql::Db& db,
                                               const std::vector<std::string>& prefixes);
// Fills the words of jobs that ended under an older format.
Status fill_words(sql::Db& db);

}  // namespace billow
