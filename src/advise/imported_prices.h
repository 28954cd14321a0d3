// Prices that were imported on this machine (`billow prices update`), kept as prices.csv in the
// data directory and laid over the catalogue inside the program.
//
// Invariant: an import adds to the earlier ones. A price stays until a later file names the same
// instance in the same region.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {

// The embedded catalogue with the imported prices applied. An empty directory name means none.
Result<Catalogue> catalogue_with_imports(const std::string& data_dir);

// The same, with the prices that the import changed, as Catalogue::update reports them.
struct ImportedCatalogue {
  Catalogue catalogue;
  std::vector<std::string> changes;
};
Result<ImportedCatalogue> catalogue_and_changes(const std::string& data_dir);

// Applies the prices of a CSV file to the catalogue and keeps them in the data directory.
Result<Catalogue::UpdateReport> import_prices(Catalogue& catalogue,
                                              const std::string& data_dir,
                                              const std::string& csv);

}  // namespace billow::advise
