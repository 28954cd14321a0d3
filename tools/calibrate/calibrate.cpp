// Fits data/calibration.txt from a CSV of serving measurements and a directory of model configs:
//   build/src/advise/billow-calibrate MEASUREMENTS.csv MODELS_DIR > data/calibration.txt
#include <cstdio>

#include "advise/calibration.h"
#include "base/file.h"

using namespace billow;
using namespace billow::advise;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MEASUREMENTS.csv MODELS_DIR > data/calibration.txt\n", argv[0]);
    return 2;
  }
  auto text = read_file(argv[1]);
  if (!text) {
    std::fprintf(stderr, "%s\n", text.error().message.c_str());
    return 1;
  }
  auto csv = read_csv(*text);
  if (!csv) {
    std::fprintf(stderr, "%s\n", csv.error().message.c_str());
    return 1;
  }
  auto catalogue = Catalogue::embedded();
  ModelShelf shelf(argv[2]);
  std::vector<ServingRow> rows;
  int refused = 0;
  for (auto& fields : *csv) {
    auto row = read_serving_row(fields, shelf, catalogue);
    if (row)
      rows.push_back(std::move(*row));
    else if (refused++ < 10)
      std::fprintf(stderr, "left out: %s\n", row.error().message.c_str());
  }
  auto fitted = Calibration::fit(rows);
  if (!fitted) {
    std::fprintf(stderr, "%s\n", fitted.error().message.c_str());
    return 1;
  }
  std::fputs(fitted->dump().c_str(), stdout);
  std::fprintf(stderr, "%zu rows read, %d left out, %zu parameters, %zu series\n", rows.size(),
               refused, fitted->parameters(), fitted->measured_series());
}
