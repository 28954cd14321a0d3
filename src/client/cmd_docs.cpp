// docs: the documentation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

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
      Code::not_found,
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
  if (!page)
    return report_usage(page.error());
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
                   .details = "Pages are inside the program, so they fit its version and need no "
                              "network. On a terminal they are shown with $PAGER (default: less).",
                   .options = {docs_options},
                   .operands = Operands::some,
                   .group = "other",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
