// docs: the documentation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "client/docs_text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/pager.h"
#include "docs/pages.h"

namespace billow::client {
namespace {

constexpr OptionSpec docs_options[] = {
    {"search", 's', "WORDS", "list the lines of all pages that contain these words"},
    {"markdown", 0, nullptr, "print the page's source"},
};

constexpr std::size_t lines_shown_max = 60;

std::string list_of_pages() {
  std::string out, group;
  for (const docs::Page& page : docs::pages()) {
    if (page.group != group)
      out += fmt::format("{}{}:\n", out.empty() ? "" : "\n", page.group);
    group = page.group;
    out += fmt::format("  {:<22} {}\n", page.topic, page.about.empty() ? page.title : page.about);
  }
  return out +
         "\nbillow docs TOPIC shows a page, billow docs --search WORDS finds lines.\n"
         "A head serves the same pages at /docs.\n";
}

// A heading, or a part of a page below one, that is about a word.
struct Passage {
  std::string page, heading;
  std::size_t lines = 0;  // with the word
  bool named = false;     // the heading itself has it
};

// As a whole word, or its plural.
bool has_word(std::string_view line, std::string_view word) {
  const auto inside = [&](std::size_t i) {
    return i < line.size() && std::isalnum(static_cast<unsigned char>(line[i]));
  };
  for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
    std::size_t end = at + word.size();
    end += end < line.size() && line[end] == 's' ? 1 : 0;
    if ((at == 0 || !inside(at - 1)) && !inside(end))
      return true;
  }
  return false;
}

// The parts of all pages with this word, the best first: those whose heading has it, then those
// that have it in the most lines. A plural is found by its singular.
std::vector<Passage> passages_about(const std::string& topic) {
  std::string word = lower(trim(topic));
  if (word.size() > 3 && word.ends_with('s') && !word.ends_with("ss"))
    word.pop_back();
  std::vector<Passage> found;
  for (const docs::Page& page : docs::pages()) {
    if (page.topic == "changelog")
      continue;
    Passage here{.page = page.topic, .heading = page.title};
    bool code = false;
    const auto keep = [&] {
      if (here.lines > 0)
        found.push_back(here);
    };
    for (const std::string& line : split(page.text, '\n')) {
      if (line.starts_with("```"))
        code = !code;
      const bool hit = has_word(lower(line), word);
      if (!code && (line.starts_with("## ") || line.starts_with("### "))) {
        keep();
        here = {.page = page.topic, .heading = line.substr(line.find(' ') + 1), .named = hit};
      }
      here.lines += hit ? 1 : 0;
    }
    keep();
  }
  std::ranges::stable_sort(found, [](const Passage& a, const Passage& b) {
    return std::pair(a.named, a.lines) > std::pair(b.named, b.lines);
  });
  return found;
}

int show_passages(const std::string& topic, const std::vector<Passage>& found) {
  constexpr std::size_t shown_max = 10;
  say(fmt::format("no page is named \"{}\"; these parts of pages are about it:", topic));
  for (std::size_t i = 0; i < std::min(found.size(), shown_max); ++i)
    print(fmt::format("  billow docs {:<20} {}\n", found[i].page,
                      trim(docs_text(found[i].heading, {}))));
  if (found.size() > shown_max)
    say(fmt::format("{} more have it; `billow docs --search \"{}\"` lists the lines",
                    found.size() - shown_max, topic));
  return 0;
}

// By its name, the beginning of its name, or a word of its title.
Result<const docs::Page*> page_of(const std::string& topic) {
  const std::string wanted =
      lower(topic.ends_with(".md") ? topic.substr(0, topic.size() - 3) : topic);
  std::vector<const docs::Page*> found;
  std::vector<std::string> known;
  for (const docs::Page& page : docs::pages()) {
    if (page.topic == wanted)
      return &page;
    known.push_back(page.topic);
    if (page.topic.starts_with(wanted) || page.topic.find("-" + wanted) != std::string::npos ||
        lower(page.title).find(wanted) != std::string::npos)
      found.push_back(&page);
  }
  if (found.size() == 1)
    return found.front();
  std::vector<std::string> names;
  for (const docs::Page* page : found)
    names.push_back(page->topic);
  const std::string close = found.empty() ? nearest(wanted, known) : "";
  return fail(
      found.empty() ? Code::not_found : Code::conflict,
      fmt::format("{} \"{}\"", found.empty() ? "there is no page" : "several pages match", topic),
      !close.empty()  ? fmt::format("did you mean {}?", close)
      : found.empty() ? "see `billow docs` for the list, or search: billow docs --search WORDS"
                      : fmt::format("choose one: {}", join(names, ", ")));
}

int search_pages(const std::string& words) {
  const std::vector<std::string> wanted = split(lower(trim(words)), ' ');
  std::size_t shown = 0, more = 0;
  for (const docs::Page& page : docs::pages())
    for (const std::string& line : split(page.text, '\n')) {
      const std::string small = lower(line);
      const bool all = std::ranges::all_of(
          wanted, [&](const std::string& w) { return small.find(w) != std::string::npos; });
      if (!all || small.starts_with("<!--"))
        continue;
      if (shown == lines_shown_max) {
        ++more;
        continue;
      }
      ++shown;
      const std::string text(trim(docs_text(line, {})));
      const std::size_t columns = look_at(STDOUT_FILENO).columns;
      print(fmt::format("{}: {}\n", page.topic, columns > 0 ? clipped(text, columns) : text));
    }
  if (more > 0)
    say(fmt::format("{} more lines match; use more words", more));
  if (shown == 0)
    return report({Code::not_found, fmt::format("no page contains \"{}\"", words),
                   "use fewer words, or see `billow docs` for the pages"});
  return 0;
}

int cmd_docs(const Parsed& parsed) {
  if (docs::pages().empty())
    return report({Code::unsupported, "this program was built without its documentation",
                   "install python3 and build again, or read docs/ in the sources"});
  if (parsed.has("search"))
    return search_pages(parsed.get("search"));
  if (parsed.operands.empty()) {
    print(list_of_pages());
    return 0;
  }
  const auto page = page_of(join(parsed.operands, "-"));
  if (!page) {
    const std::string words = join(parsed.operands, " ");
    const auto found =
        page.error().code == Code::not_found ? passages_about(words) : std::vector<Passage>();
    return found.empty() || parsed.has("markdown") ? report_usage(page.error())
                                                   : show_passages(words, found);
  }
  if (parsed.has("markdown"))
    print((*page)->text);
  else
    show_paged(docs_text((*page)->text, look_at(STDOUT_FILENO)));
  return 0;
}

}  // namespace

void add_docs_commands(CommandTable& table) {
  table.push_back({.name = "docs",
                   .summary = "show a page of the documentation, or list the pages",
                   .example = "billow docs\nbillow docs start\nbillow docs --search preempt",
                   .run = cmd_docs,
                   .usage = "[TOPIC]",
                   .details = "The pages are part of the program: they match its version and need "
                              "no network. On a terminal they are shown with $PAGER (default: "
                              "less). Any other word lists the pages and headings that contain it.",
                   .options = {docs_options},
                   .operands = Operands::some,
                   .group = "other",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
