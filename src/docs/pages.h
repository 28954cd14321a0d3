// The documentation inside the program. May be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow::docs {

struct File {
  std::string name;  // "start.html", "images/concepts.svg"
  std::string type;  // of its content, for a browser
  std::string_view content;
};
// A file of the site; null: there is none of that name.
const File* find_file(std::string_view name);

struct Page {
  std::string topic;      // "start"
  std::string title;      // "Start"
  std::string about;      // one line
  std::string group;      // heading in the list of pages
  std::string_view text;  // Markdown
};
// In the order in which people read them.
const std::vector<Page>& pages();

}  // namespace billow::docs
