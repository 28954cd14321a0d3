// Reads the tables of GPUs and offers, and finds GPUs and instances by the many names people use.
#include "core/ledger/catalogue.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/formats/csv.h"
#include "base/formats/utc.h"
#include "base/text.h"

std::string_view billow_embedded_gpus();
std::string_view billow_embedded_offers();

namespace billow {
namespace {

template <class F>
Status each_line(std::string_view text, F f) {
  int number = 0;
  while (!text.empty()) {
    auto end = text.find('\n');
    auto line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    ++number;
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    if (line.empty() || line[0] == '#')
      continue;
    if (auto ok = f(line); !ok)
      return pass(ok.error(), fmt::format("line {}", number));
  }
  return {};
}

std::optional<double> number(std::string_view text) {
  const auto value = parse_double(text);
  return value ? std::optional(*value) : std::nullopt;
}

Result<std::optional<double>> optional_number(std::string_view text, std::string_view what) {
  if (text.empty())
    return std::optional<double>{};
  auto value = number(text);
  if (!value || *value < 0)
    return fail(Code::invalid, fmt::format("{} \"{}\" is not a number", what, text));
  return value;
}

// "-" is unknown; anything else must be a price above zero and below ten thousand dollars an hour
// (more would be a typo).
Result<std::optional<NanoUsd>> price_field(std::string_view text) {
  if (text == "-" || text.empty())
    return std::optional<NanoUsd>{};
  auto value = number(text);
  if (!value || !(*value > 0) || *value > 1e4)
    return fail(Code::invalid,
                fmt::format("\"{}\" is not a price per hour (above 0, at most 10000 USD)", text));
  return std::optional<NanoUsd>(NanoUsd{std::llround(*value * 1e9)});
}

// Lower-case letters and digits only, without the maker's name: one spelling for "NVIDIA
// A100-SXM4-80GB" and "a100_sxm4_80gb".
std::string squeeze(std::string_view name) {
  std::string text = lower(name), out;
  for (std::string_view maker : {"nvidia", "amd", "instinct", "tesla", "geforce"})
    if (auto at = text.find(maker); at != std::string::npos)
      text.erase(at, maker.size());
  for (char c : text)
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += c;
  return out;
}

std::vector<std::string> name_words(std::string_view name) {
  std::vector<std::string> out(1);
  for (char c : lower(name)) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty() && out.size() > 1)
    out.pop_back();
  return out;
}

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for (auto& part : split(line, ' '))
    if (!part.empty())
      out.push_back(std::move(part));
  return out;
}

Result<Fabric> parse_fabric(std::string_view text) {
  for (Fabric f : {Fabric::single, Fabric::pcie, Fabric::bridge, Fabric::nvlink, Fabric::nvswitch,
                   Fabric::nvl72, Fabric::infinity, Fabric::neuronlink})
    if (text == fabric_name(f))
      return f;
  return fail(Code::invalid, fmt::format("unknown fabric \"{}\"", text));
}

std::pair<std::string, double> name_and_number(std::string_view text) {
  auto colon = text.find(':');
  if (colon == std::string_view::npos)
    return {std::string(text), 0};
  return {std::string(text.substr(0, colon)), number(text.substr(colon + 1)).value_or(0)};
}

Status check_price(const Price& p) {
  if (p.spot_h && p.on_demand_h && *p.spot_h >= *p.on_demand_h)
    return fail(Code::invalid, fmt::format("spot {} is not below on-demand {}",
                                           format_usd(*p.spot_h), format_usd(*p.on_demand_h)));
  for (auto& committed : {p.committed_1y_h, p.committed_3y_h})
    if (committed && p.on_demand_h && *committed >= *p.on_demand_h)
      return fail(Code::invalid, fmt::format("a commitment at {} is not below on-demand {}",
                                             format_usd(*committed), format_usd(*p.on_demand_h)));
  if (!price_age_days(p.date, {}))
    return fail(Code::invalid, fmt::format("date \"{}\" is not a day as YYYY-MM-DD", p.date));
  return {};
}

}  // namespace

const char* fabric_name(Fabric fabric) {
  switch (fabric) {
    case Fabric::single:
      return "single";
    case Fabric::pcie:
      return "pcie";
    case Fabric::bridge:
      return "bridge";
    case Fabric::nvlink:
      return "nvlink";
    case Fabric::nvswitch:
      return "nvswitch";
    case Fabric::nvl72:
      return "nvl72";
    case Fabric::infinity:
      return "infinity";
    case Fabric::neuronlink:
      return "neuronlink";
  }
  return "?";
}

std::optional<NanoUsd> price_of(const Price& price, Purchase purchase) {
  switch (purchase) {
    case Purchase::on_demand:
      return price.on_demand_h;
    case Purchase::spot:
      return price.spot_h;
    case Purchase::committed_1y:
      return price.committed_1y_h;
    case Purchase::committed_3y:
      return price.committed_3y_h;
  }
  return std::nullopt;
}

double usd(NanoUsd amount) {
  return static_cast<double>(amount.value) / 1e9;
}

std::optional<std::int64_t> price_age_days(std::string_view date, WallTime now) {
  const auto priced = parse_utc(date);
  if (!priced)
    return std::nullopt;
  constexpr std::int64_t day_ns = 86'400'000'000'000;
  return now.ns / day_ns - priced->ns / day_ns;
}

Status Catalogue::parse_gpus(std::string_view text) {
  return each_line(text, [&](std::string_view line) -> Status {
    auto f = split(line, '|');
    if (f.size() != 15)
      return fail(Code::invalid, fmt::format("{} fields instead of 15", f.size()));
    GpuSpec g;
    g.name = f[0];
    g.is_gpu = f[1] == "gpu";
    if (auto mib = BILLOW_TRY(optional_number(f[2], "memory")))
      g.memory_mib = std::llround(*mib);
    g.bandwidth_gb_s = BILLOW_TRY(optional_number(f[3], "bandwidth"));
    g.bf16_tflops = BILLOW_TRY(optional_number(f[4], "bf16 rate"));
    g.fp16_tflops = BILLOW_TRY(optional_number(f[5], "fp16 rate"));
    g.fp8_tflops = BILLOW_TRY(optional_number(f[6], "fp8 rate"));
    g.fp4_tflops = BILLOW_TRY(optional_number(f[7], "fp4 rate"));
    g.int8_tops = BILLOW_TRY(optional_number(f[8], "int8 rate"));
    g.nvlink_gb_s = BILLOW_TRY(optional_number(f[9], "nvlink"));
    g.tdp_w = BILLOW_TRY(optional_number(f[10], "tdp"));
    g.mig_max = static_cast<int>(BILLOW_TRY(optional_number(f[11], "mig")).value_or(0));
    g.compute_capability = f[12];
    for (auto& alias : split(f[13], ','))
      if (!alias.empty())
        g.aliases.push_back(alias);
    g.source = f[14];
    gpus_.push_back(std::move(g));
    return {};
  });
}

Status Catalogue::parse_offers(std::string_view text) {
  return each_line(text, [&](std::string_view line) -> Status {
    auto f = words(line);
    if (f[0] == "i" && f.size() >= 9) {
      Instance i;
      i.provider = f[1];
      i.name = f[2];
      auto gpu = gpu_by_alias_.find(squeeze(f[3]));
      if (gpu == gpu_by_alias_.end())
        return fail(Code::invalid, fmt::format("unknown GPU \"{}\"", f[3]));
      i.gpu = gpu->second;
      i.gpus = static_cast<int>(BILLOW_TRY(parse_int(f[4], 1, 1024)));
      i.vcpus = static_cast<int>(BILLOW_TRY(parse_int(f[5], 0, 100000)));
      i.memory_gib = BILLOW_TRY(parse_int(f[6], 0, 1'000'000));
      auto [fabric, fabric_gb_s] = name_and_number(f[7]);
      i.fabric = BILLOW_TRY(parse_fabric(fabric));
      i.fabric_gb_s = fabric_gb_s;
      std::tie(i.network, i.network_gbps) = name_and_number(f[8]);
      if (f.size() > 9)
        i.aliases = split(f[9], ',');
      instances_.push_back(std::move(i));
      return {};
    }
    if (f[0] == "p" && f.size() == 7 && !instances_.empty()) {
      Price p;
      p.date = f[1];
      p.on_demand_h = BILLOW_TRY(price_field(f[2]));
      p.spot_h = BILLOW_TRY(price_field(f[3]));
      p.committed_1y_h = BILLOW_TRY(price_field(f[4]));
      p.committed_3y_h = BILLOW_TRY(price_field(f[5]));
      p.regions = split(f[6], ',');
      BILLOW_TRY_VOID(check_price(p));
      if (p.on_demand_h || p.spot_h)
        instances_.back().prices.push_back(std::move(p));
      return {};
    }
    return fail(Code::invalid, "neither an instance nor a price line");
  });
}

void Catalogue::index() {
  gpu_by_alias_.clear();
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    gpu_by_alias_[squeeze(gpus_[i].name)] = i;
    for (auto& alias : gpus_[i].aliases)
      gpu_by_alias_.try_emplace(squeeze(alias), i);
  }
  instance_by_key_.clear();
  for (std::size_t i = 0; i < instances_.size(); ++i)
    instance_by_key_[instances_[i].provider + " " + instances_[i].name] = i;
}

Result<Catalogue> Catalogue::parse(Texts texts) {
  Catalogue c;
  if (auto ok = c.parse_gpus(texts.gpus); !ok)
    return pass(ok.error(), "GPU table");
  c.index();
  if (auto ok = c.parse_offers(texts.offers); !ok)
    return pass(ok.error(), "offers");
  c.index();
  return c;
}

Catalogue Catalogue::embedded() {
  auto parsed = parse({billow_embedded_gpus(), billow_embedded_offers()});
  // A test parses the embedded tables, so a released build always has valid ones.
  if (!parsed)
    check_failed("embedded catalogue", __FILE__, __LINE__, parsed.error().message.c_str());
  return std::move(*parsed);
}

Result<const GpuSpec*> Catalogue::gpu(std::string_view name) const {
  if (name.find(',') != std::string_view::npos)
    return fail(Code::not_found, fmt::format("\"{}\" is a list, not one GPU", name));
  auto key = squeeze(name);
  if (auto it = gpu_by_alias_.find(key); it != gpu_by_alias_.end())
    return &gpus_[it->second];
  // NVML reports "A100-SXM4-80GB" or "H100 80GB HBM3": match word by word. Only the form factor may
  // be missing.
  auto typed = name_words(name);
  auto said = [&](const std::string& part) {
    return std::any_of(typed.begin(), typed.end(), [&](auto& w) {
      return w == part || (part == "sxm" && w.starts_with("sxm"));
    });
  };
  const GpuSpec* best = nullptr;
  std::size_t best_words = 0;
  for (auto& g : gpus_) {
    auto parts = name_words(g.name);
    std::size_t matched = 0;
    bool all = said(parts[0]);
    for (auto& part : parts) {
      if (said(part))
        ++matched;
      else if (part != "sxm")
        all = false;
    }
    if (all && matched > best_words) {
      best = &g;
      best_words = matched;
    }
  }
  if (best)
    return best;
  // "4090": a part of one name alone. A size of memory says too little.
  std::vector<std::string> partly;
  for (auto& g : gpus_) {
    const auto parts = name_words(g.name);
    if (!typed.back().ends_with("gb") && std::all_of(typed.begin(), typed.end(), [&](auto& w) {
          return std::find(parts.begin(), parts.end(), w) != parts.end();
        })) {
      partly.push_back(g.name);
      best = &g;
    }
  }
  if (partly.size() == 1)
    return best;
  if (!partly.empty())
    return fail(Code::not_found, fmt::format("\"{}\" may be one of several GPUs", name),
                fmt::format("did you mean {}?", join(partly, ", ")));
  std::vector<std::string> names;
  for (auto& g : gpus_) {
    names.push_back(g.name);
    for (auto& a : g.aliases)
      names.push_back(a);
  }
  auto near = nearest(name, names);
  return fail(Code::not_found, fmt::format("no GPU \"{}\" in the catalogue", name),
              near.empty() ? "see `billow prices --gpus`" : fmt::format("did you mean {}?", near));
}

Result<std::vector<const Instance*>> Catalogue::instances_named(std::string_view name) const {
  auto typed = lower(trim(name));
  std::vector<const Instance*> exact, family;
  for (auto& i : instances_) {
    auto own = lower(i.name);
    bool alias = std::any_of(i.aliases.begin(), i.aliases.end(),
                             [&](auto& a) { return squeeze(a) == squeeze(typed); });
    if (own == typed || alias)
      exact.push_back(&i);
    else if (own.starts_with(typed) && own.size() > typed.size() &&
             (own[typed.size()] == '.' || own[typed.size()] == '-'))
      family.push_back(&i);
  }
  auto& found = exact.empty() ? family : exact;
  if (found.empty()) {
    std::vector<std::string> names;
    for (auto& i : instances_)
      names.push_back(i.name);
    auto near = nearest(name, names);
    return fail(Code::not_found, fmt::format("no instance or family \"{}\" in the catalogue", name),
                near.empty() ? std::string{} : fmt::format("did you mean {}?", near));
  }
  std::stable_sort(found.begin(), found.end(), [](auto* a, auto* b) {
    return std::tie(a->gpus, a->vcpus) < std::tie(b->gpus, b->vcpus);
  });
  return std::move(found);
}

std::vector<Offer> Catalogue::offers(const OfferFilter& filter) const {
  std::vector<Offer> out;
  std::vector<const GpuSpec*> only;
  if (!filter.gpu.empty()) {
    for (auto& name : split(filter.gpu, ','))
      if (const auto found = gpu(trim(name)))
        only.push_back(*found);
    if (only.empty())
      return out;
  }
  for (auto& i : instances_) {
    auto& g = gpus_[i.gpu];
    if (!only.empty() && std::find(only.begin(), only.end(), &g) == only.end())
      continue;
    if (filter.gpus_only && !g.is_gpu)
      continue;
    if (i.gpus < filter.gpus_min || i.gpus > filter.gpus_max)
      continue;
    if (!filter.providers.empty() && std::find(filter.providers.begin(), filter.providers.end(),
                                               i.provider) == filter.providers.end())
      continue;
    if (i.prices.empty() && filter.with_unknown_price && filter.regions.empty())
      out.push_back({&i, &g, nullptr, {}});
    for (auto& p : i.prices)
      for (auto& region : p.regions)
        if (filter.regions.empty() ||
            std::any_of(filter.regions.begin(), filter.regions.end(),
                        [&](auto& prefix) { return starts_with_nocase(region, prefix); }))
          out.push_back({&i, &g, &p, region});
  }
  return out;
}

namespace {

// A line of a price list, by the names of its columns.
class PriceLine {
 public:
  using Columns = std::unordered_map<std::string, std::size_t>;
  PriceLine(const Columns& columns, const std::vector<std::string>& fields)
      : columns_(columns), fields_(fields) {}
  std::string_view field(const char* name) const {
    const auto at = columns_.find(name);
    return at == columns_.end() || at->second >= fields_.size() ? std::string_view{}
                                                                : fields_[at->second];
  }

 private:
  const Columns& columns_;
  const std::vector<std::string>& fields_;
};

Result<PriceLine::Columns> read_columns(const std::vector<std::string>& fields) {
  PriceLine::Columns columns;
  for (std::size_t i = 0; i < fields.size(); ++i)
    columns[lower(fields[i])] = i;
  for (const char* need : {"provider", "instance", "region", "on_demand_usd_h", "date"})
    if (!columns.contains(need))
      return fail(Code::invalid, fmt::format("the header has no column \"{}\"", need),
                  "the first line names the columns: "
                  "provider,instance,region,on_demand_usd_h,spot_usd_h,date");
  return columns;
}

Result<Price> read_price(const PriceLine& line) {
  Price p;
  p.on_demand_h = BILLOW_TRY(price_field(line.field("on_demand_usd_h")));
  p.spot_h = BILLOW_TRY(price_field(line.field("spot_usd_h")));
  p.committed_1y_h = BILLOW_TRY(price_field(line.field("committed_1y_usd_h")));
  p.committed_3y_h = BILLOW_TRY(price_field(line.field("committed_3y_usd_h")));
  p.date = std::string(line.field("date"));
  p.regions = {std::string(line.field("region").empty() ? "any" : line.field("region"))};
  BILLOW_TRY_VOID(check_price(p));
  if (!p.on_demand_h && !p.spot_h)
    return fail(Code::invalid, "the line has neither an on-demand nor a spot price");
  return p;
}

}  // namespace

Result<Instance> Catalogue::read_instance(std::string provider,
                                          std::string name,
                                          std::string_view gpu_name,
                                          std::string_view gpu_count) const {
  if (provider.empty() || name.empty())
    return fail(Code::invalid, "the line has no provider or no instance");
  Instance out;
  out.provider = std::move(provider);
  out.name = std::move(name);
  if (instance_by_key_.contains(out.provider + " " + out.name))
    return out;
  const auto type = gpu(gpu_name);
  const auto count = parse_int(gpu_count, 1, 1024);
  if (!type || !count)
    return fail(Code::invalid,
                fmt::format("{} {} is not in the catalogue; add the columns gpu and gpus",
                            out.provider, out.name));
  out.gpu = static_cast<std::size_t>(*type - gpus_.data());
  out.gpus = static_cast<int>(*count);
  out.fabric = out.gpus == 1 ? Fabric::single : Fabric::pcie;  // NVLink is not assumed
  out.network = "unknown";
  return out;
}

void Catalogue::put_price(Instance instance, Price price, UpdateReport& report) {
  const std::string key = instance.provider + " " + instance.name;
  if (!instance_by_key_.contains(key)) {
    instance_by_key_[key] = instances_.size();
    instances_.push_back(std::move(instance));
  }
  Instance& known = instances_[instance_by_key_[key]];
  for (Price& old : known.prices) {
    if (std::erase(old.regions, price.regions[0]) == 0 || !old.on_demand_h || !price.on_demand_h ||
        *old.on_demand_h == *price.on_demand_h || report.changed.size() >= report_lines_max)
      continue;
    report.changed.push_back(
        fmt::format("{} {}: {}/h → {}/h ({:+.0f} %)", key, price.regions[0],
                    format_usd(*old.on_demand_h), format_usd(*price.on_demand_h),
                    100 * (usd(*price.on_demand_h) / usd(*old.on_demand_h) - 1)));
  }
  std::erase_if(known.prices, [](const Price& old) { return old.regions.empty(); });
  known.prices.push_back(std::move(price));
  ++report.accepted;
}

Result<Catalogue::UpdateReport> Catalogue::update(std::string_view csv) {
  UpdateReport report;
  std::vector<std::pair<Instance, Price>> good;
  CsvReader reader(csv, {.trimmed = true, .comments = true});
  std::vector<std::string> fields;
  BILLOW_TRY(reader.next(fields));
  const PriceLine::Columns columns = BILLOW_TRY(read_columns(fields));
  while (BILLOW_TRY(reader.next(fields))) {
    const PriceLine line(columns, fields);
    auto instance =
        read_instance(lower(line.field("provider")), std::string(line.field("instance")),
                      line.field("gpu"), line.field("gpus"));
    const Result<Price> price = instance ? read_price(line) : Result<Price>(pass(instance.error()));
    if (price)
      good.emplace_back(std::move(*instance), *price);
    else if (report.refused.size() < report_lines_max)
      report.refused.push_back(fmt::format("line {}: {}", reader.line(), price.error().message));
  }
  if (good.empty())
    return fail(Code::invalid, report.refused.empty()
                                   ? "the list has no price lines"
                                   : "no line is valid: " + report.refused.front());
  for (auto& [instance, price] : good)
    put_price(std::move(instance), std::move(price), report);
  return report;
}

}  // namespace billow
