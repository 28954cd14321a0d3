// Which known names a mistyped one may mean. A name is compared by its parts (family, generation,
// size), because letters alone take llama-70b for llama-7b.
#include <algorithm>
#include <set>

#include "advise/media/media.h"
#include "advise/shape/model_shape.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::size_t suggestions_max = 4;
// Distances: what another size, another generation or a word too many costs.
constexpr double other_size = 4, other_generation = 2, later_generation = 0.35, other_word = 1,
                 word_more = 0.5, plain_word_more = 0.05, misspelt = 0.4, equally_near = 0.36;

bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool letter(char c) {
  return c >= 'a' && c <= 'z';
}

// Words that tell little about a model.
bool plain(const std::string& word) {
  for (auto w : {"meta", "instruct", "chat", "hf", "it", "base"})
    if (word == w)
      return true;
  return false;
}

struct NameParts {
  std::vector<std::string> words;        // "llama", "instruct"
  std::vector<std::string> generations;  // "3.1"
  std::vector<std::string> sizes;        // "70b", "8x7b"
};

NameParts parts_of(std::string_view name) {
  const std::string text = lower(name);
  NameParts out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t from = at;
    if (letter(text[at])) {
      while (at < text.size() && letter(text[at]))
        ++at;
      if (at - from > 1 || at == text.size() || !digit(text[at]))  // "v" and "a" introduce numbers
        out.words.push_back(text.substr(from, at - from));
    } else if (digit(text[at])) {
      while (at < text.size() && (digit(text[at]) || ((text[at] == '.' || text[at] == 'x') &&
                                                      at + 1 < text.size() && digit(text[at + 1]))))
        ++at;
      const bool unit = at < text.size() && (text[at] == 'b' || text[at] == 'm') &&
                        (at + 1 == text.size() || !letter(text[at + 1]));
      if (unit)
        ++at;
      (unit ? out.sizes : out.generations).push_back(text.substr(from, at - from));
    } else {
      ++at;
    }
  }
  return out;
}

// How far a known name is from the typed one; nothing if it is of another family.
std::optional<double> distance(const NameParts& typed, const NameParts& known) {
  if (typed.words.empty() || nearest(typed.words.front(), known.words).empty())
    return std::nullopt;
  auto among = [](const std::string& word, const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  double far = 0;
  for (auto& word : typed.words)
    far += among(word, known.words)             ? 0
           : nearest(word, known.words).empty() ? other_word
                                                : misspelt;
  for (auto& word : known.words)
    if (!among(word, typed.words) && nearest(word, typed.words).empty())
      far += plain(word) ? plain_word_more : word_more;
  for (auto& size : typed.sizes)
    if (std::find(known.sizes.begin(), known.sizes.end(), size) == known.sizes.end())
      far += other_size;
  for (auto& generation : typed.generations) {
    double least = other_generation;
    for (auto& g : known.generations)
      least = std::min(least, g == generation                   ? 0
                              : g.starts_with(generation + ".") ? later_generation
                                                                : other_generation);
    far += least;
  }
  return far;
}

}  // namespace

std::vector<std::string> models_like(std::string_view typed) {
  const std::string wanted = lower(typed.substr(typed.rfind('/') + 1));
  std::vector<std::string> known;  // names without their organisations
  for (auto& model : shipped_models())
    known.push_back(lower(model.name.substr(model.name.rfind('/') + 1)));
  for (auto& model : media_models())
    known.push_back(model.name);
  const NameParts parts = parts_of(wanted);
  std::set<std::pair<double, std::string>> near;
  for (auto& name : known)
    if (const auto far = distance(parts, parts_of(name)); far && *far < other_size)
      near.emplace(*far, name);
  std::vector<std::string> out;
  std::set<std::string> said;  // one of each generation and size
  for (auto& [far, name] : near) {
    const NameParts p = parts_of(name);
    if (out.size() < suggestions_max && far <= near.begin()->first + equally_near &&
        said.insert(join(p.generations, " ") + "/" + join(p.sizes, " ")).second)
      out.push_back(name);
  }
  if (out.empty())
    if (auto one = nearest(wanted, known); !one.empty())
      out.push_back(std::move(one));
  return out;
}

}  // namespace billow::advise
