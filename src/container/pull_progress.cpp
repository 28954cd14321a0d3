#include "container/pull_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace billow::container {

namespace {

// "12.3MiB" → bytes; -1 if it is not a size.
std::int64_t size_of(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  if (digits == 0)
    return -1;
  const double number = std::atof(std::string(text.substr(0, digits)).c_str());
  const std::string_view unit = trim(text.substr(digits));
  double scale = 1;
  if (unit.starts_with("Ki"))
    scale = 1024;
  else if (unit.starts_with("Mi"))
    scale = 1024.0 * 1024;
  else if (unit.starts_with("Gi"))
    scale = 1024.0 * 1024 * 1024;
  else if (unit.starts_with("Ti"))
    scale = 1024.0 * 1024 * 1024 * 1024;
  else if (unit.starts_with("k") || unit.starts_with("K"))
    scale = 1e3;
  else if (unit.starts_with("M"))
    scale = 1e6;
  else if (unit.starts_with("G"))
    scale = 1e9;
  else if (!unit.starts_with("b") && !unit.starts_with("B"))
    return -1;
  return static_cast<std::int64_t>(number * scale);
}

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n), out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0)
      out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace

// "Copying blob 3f4e…  [====>----] 12.3MiB / 45.6MiB" and "Copying blob 3f4e… done".
void PullProgress::line(std::string_view text) {
  const auto begin = text.find("Copying blob ");
  if (begin == std::string_view::npos)
    return;
  std::string_view rest = text.substr(begin + 13);
  std::string name(rest.substr(0, rest.find_first_of(" [")));
  if (name.starts_with("sha256:"))
    name.erase(0, 7);
  name.resize(std::min<std::size_t>(name.size(), 12));
  auto layer =
      std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.name == name; });
  if (layer == layers_.end())
    layer = layers_.insert(layers_.end(), Layer{name, 0, 0});
  if (const auto slash = rest.find(" / "); slash != std::string_view::npos) {
    auto from = slash;
    while (from > 0 && rest[from - 1] != ' ')
      --from;
    const std::int64_t done = size_of(rest.substr(from, slash - from)),
                       total = size_of(rest.substr(slash + 3));
    if (done >= 0 && total > 0 && (layer->done != done || layer->total != total)) {
      layer->done = done;
      layer->total = total;
      changed_ = true;
    }
  } else if (rest.find("done") != std::string_view::npos && layer->done != layer->total) {
    layer->done = layer->total;
    changed_ = true;
  }
}

bool PullProgress::take(std::string_view text) {
  changed_ = false;
  partial_ += text;
  std::size_t from = 0;
  for (std::size_t at = partial_.find_first_of("\r\n"); at != std::string::npos;
       at = partial_.find_first_of("\r\n", from)) {
    line(std::string_view(partial_).substr(from, at - from));
    from = at + 1;
  }
  partial_.erase(0, from);
  if (partial_.size() > 65536)
    partial_.clear();
  return changed_;
}

std::int64_t PullProgress::done_bytes() const {
  std::int64_t sum = 0;
  for (const Layer& l : layers_)
    sum += l.done;
  return sum;
}
std::int64_t PullProgress::total_bytes() const {
  std::int64_t sum = 0;
  for (const Layer& l : layers_)
    sum += l.total;
  return sum;
}
std::string PullProgress::text(const std::string& image) const {
  if (total_bytes() == 0)
    return fmt::format("pulling {}", image);
  return fmt::format("pulling {}: {} of {} MB", image, grouped(done_bytes() / 1'000'000),
                     grouped(total_bytes() / 1'000'000));
}

}  // namespace billow::container
