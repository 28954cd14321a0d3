// libFuzzer over tables that people import: CSV in every form, bills (FOCUS), prices. The first
// byte chooses. A written table reads back as the same, and no price is negative.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/formats/csv.h"
#include "core/ledger/catalogue.h"
#include "core/ledger/focus.h"

namespace {

using namespace billow;

void csv(std::string_view text, CsvFormat format) {
  const auto table = parse_csv(text, format);
  if (!table)
    return;
  std::string written;
  append_csv_row(written, table->header);
  for (const auto& row : table->rows) {
    BILLOW_CHECK(row.size() == table->header.size(), "each row is as long as the header");
    append_csv_row(written, row);
  }
  BILLOW_CHECK(table->lines.size() == table->rows.size(), "each row has its line");
  const auto again = parse_csv(written);
  BILLOW_CHECK(again && again->header == table->header && again->rows == table->rows,
               "reads back as the same");
}

void bill(std::string_view text) {
  const auto read = ledger::parse_focus(text);
  if (!read)
    return;
  for (const auto& line : read->lines) {
    BILLOW_CHECK(line.from <= line.to, "a period does not end before it begins");
    BILLOW_CHECK(line.line > 1, "after the header");
  }
  BILLOW_CHECK(read->refused.size() <= 100, "no more than a hundred refusals");
  (void)ledger::compare(*read, {{"n1", "i-1", WallTime{1}, WallTime{2}, NanoUsd{3}}});
}

// A small catalogue: reading the whole one takes longer than all else.
constexpr std::string_view gpus =
    "T4|gpu|15360|320||65|||130|0|70|0|7.5|tesla-t4|vendor datasheet\n";
constexpr std::string_view offers =
    "i aws g4dn.xlarge T4 1 4 16 single eth\np 2026-08-22 0.526 0.2 - - us-east-1,us-west-2\n";

void prices(std::string_view text) {
  auto catalogue = Catalogue::parse({gpus, offers});
  BILLOW_CHECK(catalogue.has_value(), "a catalogue");
  const auto report = catalogue->update(text);
  if (!report)
    return;
  BILLOW_CHECK(report->refused.size() <= Catalogue::report_lines_max, "a short report");
  for (const Offer& offer : catalogue->offers({.with_unknown_price = true}))
    BILLOW_CHECK(!offer.price || !offer.price->on_demand_h || offer.price->on_demand_h->value > 0,
                 "no price is negative");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
    case 1:
      csv(text, {});
      break;
    case 2:
      csv(text, {.short_rows = true, .trimmed = true, .comments = true});
      break;
    case 3:
    case 4:
    case 5:
      bill(text);
      break;
    default:
      prices(text);
  }
  return 0;
}
