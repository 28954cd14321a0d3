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

bool gpus_are_simulated(Client& client) {
  const auto nodes = client.get("/v1/nodes");
  for (const Json& node : nodes ? (*nodes)["nodes"].items() : std::vector<Json>{})
    if (node["simulated"].bool_or(false))
      return true;
  return false;
}

}  // namespace billow::client
