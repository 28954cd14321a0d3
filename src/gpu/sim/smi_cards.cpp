#include "gpu/sim/smi_cards.h"

#include "base/json.h"

namespace billow {

std::string smi_cards_text(const SmiCards& cards) {
  Json list = Json::array();
  for (const SmiCard& c : cards.cards) {
    Json mig = Json::array();
    for (const SmiInstance& m : c.mig)
      mig.push(Json::object({{"profile", m.profile},
                             {"uuid", m.uuid},
                             {"instance", m.instance},
                             {"mem_mib", m.mem_mib}}));
    list.push(Json::object({{"index", c.index},
                            {"uuid", c.uuid},
                            {"name", c.name},
                            {"bus", c.bus},
                            {"capability", c.capability},
                            {"mem_mib", c.mem_mib},
                            {"limit_mib", c.limit_mib},
                            {"milli", c.milli},
                            {"power_w", c.power_w},
                            {"idle_w", c.idle_w},
                            {"mig_on", c.mig_on},
                            {"mig", std::move(mig)}}));
  }
  return Json::object({{"driver", cards.driver}, {"cuda", cards.cuda}, {"cards", std::move(list)}})
      .dump();
}

Result<SmiCards> parse_smi_cards(std::string_view text) {
  const Json json = BILLOW_TRY(parse_json(text));
  SmiCards out;
  out.driver = std::string(json["driver"].str_or(""));
  out.cuda = std::string(json["cuda"].str_or(""));
  for (const Json& c : json["cards"].items()) {
    SmiCard card;
    card.index = c["index"].int_or(0);
    card.uuid = std::string(c["uuid"].str_or(""));
    card.name = std::string(c["name"].str_or(""));
    card.bus = std::string(c["bus"].str_or(""));
    card.capability = std::string(c["capability"].str_or(""));
    card.mem_mib = c["mem_mib"].int_or(0);
    card.limit_mib = c["limit_mib"].int_or(0);
    card.milli = c["milli"].int_or(1000);
    card.power_w = c["power_w"].int_or(0);
    card.idle_w = c["idle_w"].int_or(0);
    card.mig_on = c["mig_on"].bool_or(false);
    for (const Json& m : c["mig"].items())
      card.mig.push_back({std::string(m["profile"].str_or("")), std::string(m["uuid"].str_or("")),
                          m["instance"].int_or(0), m["mem_mib"].int_or(0)});
    out.cards.push_back(std::move(card));
  }
  return out;
}

}  // namespace billow
