#include "client/frame/ask.h"

#include <unistd.h>

namespace billow::client {

int ask(const Parsed& parsed,
        const std::function<Result<Json>(Client&)>& call,
        const std::function<void(const Json&)>& show) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto answer = call(*client);
  if (!answer)
    return report(answer.error());
  if (parsed.has("json"))
    print_json(*answer);
  else
    show(*answer);
  return 0;
}

std::vector<Json> list_in(const Json& answer, std::string_view name) {
  return answer.is_array() ? answer.items() : answer[name].items();
}

void show_table(const Table& table, std::string_view nothing) {
  if (table.empty())
    say(nothing);
  else
    print(table.text(look_at(STDOUT_FILENO)));
}

std::vector<std::string> words_of(const Parsed& parsed, std::span<const OptionSpec> options) {
  std::vector<std::string> words = parsed.operands;
  for (const OptionSpec& o : options)
    for (const std::string& value : parsed.all(o.name)) {
      words.push_back(std::string("--") + o.name);
      if (o.value)
        words.push_back(value);
    }
  if (parsed.has("json"))
    words.emplace_back("--json");
  return words;
}

}  // namespace billow::client
