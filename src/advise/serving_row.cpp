#include "advise/serving_row.h"

#include <cmath>

#include "base/text.h"

namespace billow::advise {
namespace {

std::string cell_text(const CsvRow& row, const std::string& column) {
  auto it = row.find(column);
  return it == row.end() ? std::string{} : it->second;
}

Result<double> cell_number(const CsvRow& row,
                           const std::string& column,
                           double fallback,
                           double max) {
  auto text = cell_text(row, column);
  if (text.empty())
    return fallback;
  const auto v = parse_double(text);
  if (!v || *v < 0 || *v > max)
    return fail(Code::invalid, fmt::format("{} is \"{}\", not a number from 0 to {:.0f}", column,
                                           text.substr(0, 40), max));
  return *v;
}

// The number at the start of a text: "64_tp8" is 64; 0 if there is none.
double leading_number(std::string_view text) {
  return parse_double(text.substr(0, text.find_first_not_of("0123456789."))).value_or(0);
}

// "silicon_concurrency=64" in the source, or "_c64_" in the id: the load, if the batch columns are
// empty.
double concurrency_named(const CsvRow& row) {
  auto source = cell_text(row, "silicon_data_source");
  constexpr std::string_view tag = "concurrency=";
  if (auto at = source.find(tag); at != std::string::npos)
    return leading_number(std::string_view(source).substr(at + tag.size()));
  auto id = cell_text(row, "id");
  for (std::size_t at = id.find("_c"); at != std::string::npos; at = id.find("_c", at + 1))
    if (at + 2 < id.size() && id[at + 2] >= '0' && id[at + 2] <= '9')
      return leading_number(std::string_view(id).substr(at + 2));
  return 0;
}

// One name for each precision, as measurements name it: block-scaled FP8 is "fp8", and both 4-bit
// floats are "fp4".
std::string precision_word(Precision p) {
  return p == Precision::nvfp4 ? precision_name(Precision::fp4) : precision_name(p);
}

struct Ranks {
  int gpus = 1;
  bool data = false, expert = false;
};

// Some listings multiply the tensor ranks by the expert ranks ("tp 64" on eight GPUs, with moe_tp 8
// and moe_ep 8) or give tensor and data ranks for the same GPUs ("tp 4, attention dp 4" on four).
// Their columns reveal both cases.
Result<Ranks> ranks(const CsvRow& row, const std::string& prefix) {
  double tp = BILLOW_TRY(cell_number(row, prefix + "tp_size", 1, 4096)),
         dp = BILLOW_TRY(cell_number(row, prefix + "attention_dp_size", 1, 4096));
  double moe_tp = BILLOW_TRY(cell_number(row, prefix + "moe_tp_size", 1, 4096)),
         moe_ep = BILLOW_TRY(cell_number(row, prefix + "moe_ep_size", 1, 4096));
  bool given = !cell_text(row, prefix + "attention_dp_size").empty();
  double gpus = std::max(1.0, tp) * std::max(1.0, dp);
  if (given && moe_tp == moe_ep && moe_tp > 1)
    gpus = moe_tp;
  else if (given && tp > 1 && dp == tp)
    gpus = tp;
  return Ranks{static_cast<int>(gpus), dp > 1, moe_ep > 1};
}

}  // namespace

std::string combination_of(const ServingRow& row) {
  return fmt::format("{}/{}/{}/{}", row.family, row.gpu->name, row.engine, row.precision);
}

std::string engine_word(std::string_view name) {
  auto typed = lower(trim(name));
  // Orchestrators in front of an engine ("dynamo-trt") do not change its kernels.
  for (auto [part, engine] :
       {std::pair{"vllm", "vllm"}, {"sglang", "sglang"}, {"trt", "trtllm"}, {"tensorrt", "trtllm"}})
    if (typed.find(part) != std::string::npos)
      return engine;
  return typed;
}

Precision engine_kv(const std::string& engine,
                    const std::string& precision,
                    const ModelShape& shape) {
  // TensorRT-LLM's FP8 and FP4 recipes quantize the cache too; the others keep it as it is.
  const bool small = precision == "fp8" || precision == "fp4";
  return engine == "trtllm" && small ? Precision::fp8 : shape.kv_native;
}

std::string family_of(const ModelShape& shape) {
  int experts = 0;
  for (auto& layer : shape.layers)
    experts = std::max(experts, layer.experts);
  return fmt::format("{}x{}e{}v{}", shape.layers.size(), shape.hidden, experts,
                     shape.attention_layers());
}

Result<std::shared_ptr<const ModelShape>> ModelShelf::get(const std::string& model,
                                                          const std::string& precision) {
  auto key = model + " " + precision;
  if (auto it = shelf_.find(key); it != shelf_.end())
    return it->second;
  auto found = find_model(model, directory_);
  // A checkpoint that is missing under its own name may exist as its base: the same layers, stored
  // differently.
  static const std::pair<const char*, const char*> spellings[] = {
      {"meta-llama/Llama-", "meta-llama/Meta-Llama-"},
      {"nvidia/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"},
      {"nvidia/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"},
      {"zhipuai/", "zai-org/"},
      {"nvidia/", "deepseek-ai/"},
      {"nvidia/", "Qwen/"}};
  for (auto& [from, to] : spellings) {
    if (found || !model.starts_with(from))
      continue;
    auto base = std::string(to) + model.substr(std::string_view(from).size());
    for (std::string_view tail : {"", "-Instruct", "-Instruct-FP8", "-FP8", "-NVFP4", "-FP4"})
      if (!found && base.ends_with(tail))
        found = find_model(base.substr(0, base.size() - tail.size()), directory_);
  }
  if (!found)
    return pass(found.error());
  auto shape = std::move(*found);
  if (!precision.empty()) {
    auto p = BILLOW_TRY(parse_precision(precision));
    // "fp4" depends on the checkpoint: MXFP4 if it is stored so, NVFP4 otherwise.
    if (p == Precision::fp4 && shape.native != Precision::fp4)
      p = Precision::nvfp4;
    bool stays = shape.native == Precision::fp4 &&
                 p == Precision::fp8;  // FP8 activations over MXFP4 experts
    if (p == Precision::nvfp4 && shape.native != Precision::nvfp4 && !precision.empty()) {
      // Published NVFP4 checkpoints leave attention in BF16 for latent attention; use theirs if it
      // is available.
      auto name = shape.name.substr(shape.name.find('/') + 1);
      if (auto own = find_model("nvidia/" + name + "-NVFP4", directory_))
        shape = std::move(*own);
    }
    if (!stays)
      shape = at_precision(std::move(shape), p);
  } else if (!shape.quantized) {
    shape = at_precision(std::move(shape), Precision::bf16);
  }
  auto shared = std::make_shared<const ModelShape>(std::move(shape));
  shelf_[key] = shared;
  return shared;
}

Result<ServingRow> read_serving_row(const CsvRow& fields,
                                    ModelShelf& shelf,
                                    const Catalogue& catalogue) {
  ServingRow row;
  row.id = cell_text(fields, "id");
  auto model = cell_text(fields, "model_path");
  if (model.empty())
    return fail(Code::invalid, "model_path is missing");
  row.precision = lower(cell_text(fields, "precision"));
  row.shape = BILLOW_TRY(shelf.get(model, row.precision));
  row.precision = precision_word(
      row.precision.empty() ? row.shape->native : BILLOW_TRY(parse_precision(row.precision)));
  row.family = family_of(*row.shape);
  row.gpu = BILLOW_TRY(catalogue.gpu(cell_text(fields, "system")));
  row.engine = engine_word(cell_text(fields, "backend"));
  row.version = cell_text(fields, "backend_version");
  row.kv = engine_kv(row.engine, row.precision, *row.shape);
  row.input = BILLOW_TRY(cell_number(fields, "isl", 1024, 1e8));
  row.output = BILLOW_TRY(cell_number(fields, "osl", 1024, 1e8));
  if (row.input < 1 || row.output < 1)
    return fail(Code::invalid, "isl and osl must be at least 1");
  row.disaggregated = cell_text(fields, "mode") == "disagg";
  std::string prefix = row.disaggregated ? "decode_" : "";
  auto decode = BILLOW_TRY(ranks(fields, prefix));
  double pp = BILLOW_TRY(cell_number(fields, prefix + "pp_size", 1, 256));
  double listed_dp = BILLOW_TRY(cell_number(fields, prefix + "attention_dp_size", 1, 4096));
  row.parallelism = {.tensor = decode.gpus,
                     .pipeline = std::max(1, static_cast<int>(pp)),
                     .attention_data = decode.data ? decode.gpus : 1,
                     .expert = decode.expert ? decode.gpus : 1};
  double batch = BILLOW_TRY(cell_number(fields, prefix + "batch_size", 0, 1e7));
  row.decode_workers =
      std::max(1.0, BILLOW_TRY(cell_number(fields, "decode_num_workers", 1, 4096)));
  row.concurrency = concurrency_named(fields);
  if (!(row.concurrency >= 1 && row.concurrency <= 1e8))
    row.concurrency = batch * std::max(1.0, listed_dp) * row.decode_workers;
  if (row.concurrency < 1)
    return fail(Code::invalid, "neither batch_size nor concurrency is given");
  if (row.disaggregated) {
    auto prefill = BILLOW_TRY(ranks(fields, "prefill_"));
    row.prefill_rank_gpus = prefill.gpus;
    row.prefill_data = prefill.data;
    row.prefill_told = !cell_text(fields, "prefill_num_workers").empty();
    row.prefill_gpus =
        prefill.gpus *
        std::max(1.0, BILLOW_TRY(cell_number(fields, "prefill_num_workers", 1, 4096)));
  }
  double ttft = BILLOW_TRY(cell_number(fields, "silicon_ttft_ms", 0, 1e9)),
         tpot = BILLOW_TRY(cell_number(fields, "silicon_tpot_ms", 0, 1e9));
  if (ttft > 0)
    row.ttft_ms = ttft;
  if (tpot > 0)
    row.tpot_ms = tpot;
  return row;
}

Result<std::vector<CsvRow>> read_csv(std::string_view text) {
  const CsvTable table = BILLOW_TRY(parse_csv(text, table_format));
  std::vector<CsvRow> rows;
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    rows.push_back(table.by_name(i));
  return rows;
}

}  // namespace billow::advise
