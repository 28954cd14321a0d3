#include "advise/question.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace billow::advise {
namespace {

// Companies that sell under another name than their own.
constexpr std::pair<std::string_view, const char*> companies[] = {
    {"amazon", "aws"},      {"google", "gcp"},        {"microsoft", "azure"}, {"oracle", "oci"},
    {"digitalocean", "do"}, {"lambdalabs", "lambda"}, {"datacrunch", "verda"}};

// As `engine_word` spells them.
constexpr const char* engines[] = {"vllm", "sglang", "trtllm", "tgi"};

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> out;
  for (auto& part : split(list, ','))
    if (!trim(part).empty())
      out.emplace_back(trim(part));
  return out;
}

// What can be rented, in the order of the catalogue.
std::string offered_gpus(const Catalogue& catalogue) {
  std::set<std::size_t> offered;
  for (auto& instance : catalogue.instances())
    offered.insert(instance.gpu);
  std::vector<std::string> names;
  for (const std::size_t at : offered)
    if (catalogue.gpus()[at].is_gpu)
      names.push_back(catalogue.gpus()[at].name);
  return join(names, ", ");
}

Status check_provider(const std::string& wanted, const Catalogue& catalogue) {
  std::set<std::string> sellers;
  for (auto& instance : catalogue.instances())
    sellers.insert(instance.provider);
  if (sellers.contains(wanted))
    return {};
  const std::vector<std::string> names(sellers.begin(), sellers.end());
  std::string near = nearest(wanted, names);
  for (auto& [company, provider] : companies)
    if (wanted == company && sellers.contains(provider))
      near = provider;
  return fail(Code::invalid, fmt::format("no provider \"{}\" in the catalogue", wanted),
              fmt::format("{}providers: {}", near.empty() ? "" : "did you mean " + near + "? ",
                          join(names, ", ")));
}

// With --mine, one of the named GPUs must be there.
Status check_fleet(const Request& request, const Catalogue& catalogue) {
  const auto only = BILLOW_TRY(named_gpus(request.offers.gpu, catalogue));
  if (request.fleet.empty() || only.empty())
    return {};
  std::set<std::string> here;
  for (auto& f : request.fleet) {
    const auto gpu = catalogue.gpu(f.gpu);
    if (gpu && std::find(only.begin(), only.end(), *gpu) != only.end())
      return {};
    here.insert(f.gpu);
  }
  return fail(
      Code::infeasible, fmt::format("no node of this installation has a {}", request.offers.gpu),
      fmt::format("GPUs here: {}", join(std::vector<std::string>(here.begin(), here.end()), ", ")));
}

}  // namespace

Result<std::vector<const GpuSpec*>> named_gpus(std::string_view list, const Catalogue& catalogue) {
  std::vector<const GpuSpec*> out;
  for (auto& name : words_of(list)) {
    const auto gpu = catalogue.gpu(name);
    if (!gpu) {
      const std::string& near = gpu.error().hint;
      return fail(Code::invalid, gpu.error().message,
                  fmt::format("{}GPUs: {}", near.starts_with("did you mean") ? near + " " : "",
                              offered_gpus(catalogue)));
    }
    if (std::find(out.begin(), out.end(), *gpu) == out.end())
      out.push_back(*gpu);
  }
  return out;
}

Status check_offer_names(const OfferFilter& filter, const Catalogue& catalogue) {
  if (const auto gpus = named_gpus(filter.gpu, catalogue); !gpus)
    return pass(gpus.error());
  for (auto& provider : filter.providers)
    BILLOW_TRY_VOID(check_provider(provider, catalogue));
  return {};
}

std::vector<std::string> name_notes(const OfferFilter& filter, const Catalogue& catalogue) {
  std::vector<std::string> out;
  for (auto& name : words_of(filter.gpu))
    if (const auto gpu = catalogue.gpu(name); gpu && lower(name) != lower((*gpu)->name))
      out.push_back(fmt::format("{} is taken as {}", name, (*gpu)->name));
  return out;
}

Result<Precision> parse_kv_cache(std::string_view text) {
  if (text != "bf16" && text != "fp16" && text != "fp8" && text != "fp4")
    return fail(Code::invalid,
                fmt::format("\"{}\" is not a precision of KV caches", text.substr(0, 40)),
                "use bf16, fp16, fp8 or fp4");
  return parse_precision(text);
}

Status check_request(const Request& request, const Catalogue& catalogue) {
  BILLOW_TRY_VOID(check_offer_names(request.offers, catalogue));
  BILLOW_TRY_VOID(check_fleet(request, catalogue));
  if (std::find(std::begin(engines), std::end(engines), request.engine) == std::end(engines))
    return fail(
        Code::invalid, fmt::format("unknown engine \"{}\"", request.engine.substr(0, 40)),
        fmt::format("use one of {}",
                    join(std::vector<std::string>(std::begin(engines), std::end(engines)), ", ")));
  auto range = [](const char* what, double v, double min, double max) -> Status {
    if (!(v >= min && v <= max))
      return fail(Code::invalid,
                  fmt::format("{} of {:g} is out of range: {:g} to {:g}", what, v, min, max));
    return {};
  };
  BILLOW_TRY_VOID(range("an input", request.input, 1, 1e7));
  BILLOW_TRY_VOID(range("an output", request.output, 1, 1e7));
  BILLOW_TRY_VOID(range("a rate", request.rps, 0, 1e6));
  BILLOW_TRY_VOID(range("a number of users", request.users, 0, 1e8));
  BILLOW_TRY_VOID(range("a context", request.context, 0, 1e8));
  if (request.ttft_ms_max)
    BILLOW_TRY_VOID(range("a time to first token (ms)", *request.ttft_ms_max, 0.1, 1e7));
  if (request.tokens_per_s_min)
    BILLOW_TRY_VOID(range("tokens per second", *request.tokens_per_s_min, 0.01, 1e5));
  double context = request.context > 0 ? request.context : request.input + request.output;
  if (context < request.input + request.output)
    return fail(
        Code::invalid,
        fmt::format("a context of {:.0f} tokens is shorter than a request of {:.0f} + {:.0f}",
                    context, request.input, request.output),
        "raise --context (the longest sequence), or lower --input or --output");
  if (request.model.context_max > 0 && context > request.model.context_max)
    return fail(Code::invalid,
                fmt::format("a context of {:.0f} exceeds the {} tokens this model supports",
                            context, request.model.context_max),
                "lower --context, --input or --output");
  return {};
}

// Only options that were used can be relaxed.
std::string what_would_help(const Request& request) {
  std::vector<std::string> ways;
  if (request.ttft_ms_max)
    ways.push_back("a longer --ttft");
  if (request.tokens_per_s_min)
    ways.push_back("a lower --tps");
  if (!request.precisions.empty())
    ways.push_back("other --precision");
  if (request.offers.gpus_max < OfferFilter{}.gpus_max)
    ways.push_back("a larger --max-gpus");
  if (!request.offers.gpu.empty())
    ways.push_back("another --gpu");
  if (!request.fleet.empty())
    ways.push_back("rented GPUs (omit --mine)");
  if (ways.empty())
    ways.push_back("a smaller load");
  return "use " + join(ways, ", or ");
}

}  // namespace billow::advise
