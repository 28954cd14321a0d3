#include "client/docs_text.h"

#include <algorithm>

#include "base/text.h"

namespace billow::client {
namespace {

constexpr std::size_t text_columns_max = 100;

// "[words](address)" → words, "**bold**" → bold; `code` keeps its signs, which show where it ends.
std::string plain_words(std::string_view text) {
  std::string out;
  bool code = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '`')
      code = !code;
    if (code || text[i] == '`') {
      out += text[i];
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size() && std::string_view("|*_[").contains(text[i + 1])) {
      out += text[++i];
      continue;
    }
    if (text.substr(i).starts_with("**")) {
      ++i;
      continue;
    }
    const std::size_t bracket = text[i] == '[' ? text.find("](", i) : std::string_view::npos;
    const std::size_t end =
        bracket == std::string_view::npos ? bracket : text.find(')', bracket + 2);
    if (end != std::string_view::npos && text.substr(i, bracket - i).find('\n') == text.npos) {
      if (!out.empty() && out.back() == '!')
        out.pop_back();  // a picture: its description
      out += text.substr(i + 1, bracket - i - 1);
      i = end;
      continue;
    }
    out += text[i];
  }
  return out;
}

std::string wrapped_words(std::string_view text, std::size_t columns, const std::string& indent) {
  std::string out, line;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty())
      continue;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > columns) {
      out += line + "\n";
      line = indent;
    } else if (!line.empty() && line != indent) {
      line += ' ';
    }
    line += word;
  }
  return out + line + "\n";
}

// "| a | b |" → {"a", "b"}; "\|" is no border, and neither is one in code.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> out;
  std::string cell;
  bool code = false;
  line = trim(line);
  if (line.starts_with('|'))
    line.remove_prefix(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      cell += line[i];
      cell += line[++i];
      continue;
    }
    if (line[i] == '`')
      code = !code;
    if (line[i] != '|' || code) {
      cell += line[i];
      continue;
    }
    out.emplace_back(trim(plain_words(cell)));
    cell.clear();
  }
  if (!trim(cell).empty())
    out.emplace_back(trim(plain_words(cell)));
  return out;
}

bool is_rule(const std::vector<std::string>& cells) {
  return std::ranges::all_of(cells, [](const std::string& c) {
    return c.find_first_not_of("-: ") == std::string::npos && !c.empty();
  });
}

class Reader {
 public:
  Reader(std::string_view markdown, const Look& look)
      : lines_(split(markdown, '\n')),
        look_(look),
        columns_(look.columns == 0 ? text_columns_max : std::min(look.columns, text_columns_max)) {}

  std::string read() {
    while (at_ < lines_.size())
      block();
    return std::move(out_);
  }

 private:
  void block() {
    const std::string_view line = lines_[at_];
    if (line.starts_with("```"))
      return code();
    if (trim(line).starts_with("<!--"))
      return comment();
    if (line.starts_with("|"))
      return table();
    if (line.starts_with("#"))
      return heading(line);
    if (trim(line).empty()) {
      gap();
      ++at_;
      return;
    }
    words();
  }

  void gap() {
    if (!out_.empty() && !out_.ends_with("\n\n"))
      out_ += '\n';
  }

  void code() {
    for (++at_; at_ < lines_.size() && !lines_[at_].starts_with("```"); ++at_)
      out_ += "    " + lines_[at_] + "\n";
    ++at_;
  }

  void comment() {
    while (at_ < lines_.size() && lines_[at_].find("-->") == std::string::npos)
      ++at_;
    ++at_;
  }

  void heading(std::string_view line) {
    gap();
    const std::size_t level = std::min(line.find_first_not_of('#'), line.size());
    const std::string text = plain_words(trim(line.substr(level)));
    out_ += painted(level == 1 ? upper(text) : text, Colour::bold, look_) + "\n";
    ++at_;
  }

  static std::string upper(std::string text) {
    for (char& c : text)
      if (c >= 'a' && c <= 'z')
        c = static_cast<char>(c - 32);
    return text;
  }

  // Narrow columns as wide as they are, the last one wrapped.
  void table() {
    std::vector<std::vector<std::string>> rows;
    for (; at_ < lines_.size() && lines_[at_].starts_with("|"); ++at_)
      if (auto cells = cells_of(lines_[at_]); !cells.empty() && !is_rule(cells))
        rows.push_back(std::move(cells));
    std::vector<std::size_t> width;
    for (const auto& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) {
        width.resize(std::max(width.size(), i + 1));
        width[i] = std::max(width[i], std::min(display_width(row[i]), columns_ / 2));
      }
    for (const auto& row : rows) {
      std::string line = "  ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i + 1 == row.size()) {
          const std::size_t from = display_width(line);
          line = wrapped_words(row[i], columns_, std::string(from, ' ')).insert(0, line);
          break;
        }
        line += row[i];
        const std::size_t used = display_width(row[i]);
        line += std::string(used < width[i] ? width[i] - used + 2 : 2, ' ');
      }
      out_ += line;
    }
  }

  // A paragraph or an item of a list: its lines until the next block.
  void words() {
    std::string text(trim(lines_[at_]));
    const std::size_t deep = lines_[at_].find_first_not_of(' ');
    const bool item = text.starts_with("- ") ||
                      (text.size() > 2 && text[0] >= '0' && text[0] <= '9' && text[1] == '.');
    for (++at_; at_ < lines_.size(); ++at_) {
      const std::string_view next = lines_[at_], word = trim(next);
      if (word.empty() || next.starts_with("```") || next.starts_with("|") ||
          next.starts_with("#") || word.starts_with("- ") || word.starts_with("<!--") ||
          (word.size() > 2 && word[0] >= '0' && word[0] <= '9' && word[1] == '.'))
        break;
      text += ' ';
      text += word;
    }
    const std::string before = std::string(item ? deep : 0, ' ');
    out_ += before + wrapped_words(plain_words(text), columns_, before + (item ? "  " : ""));
  }

  std::vector<std::string> lines_;
  const Look& look_;
  std::size_t columns_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string docs_text(std::string_view markdown, const Look& look) {
  return Reader(markdown, look).read();
}

}  // namespace billow::client
