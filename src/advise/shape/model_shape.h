// A language model as the arithmetic needs it: for every layer, its tensors, what it keeps per
// token and per sequence, and how many of its experts a token activates. Read from a Hugging Face
// config.json (config_reader.cpp) or made from a parameter count. All other code (memory, latency,
// advice) sees only this.
//
// Invariants: every count is positive and bounded (the reader refuses a hostile config); `notes`
// records what the reader did not know and how it treated it; nothing is guessed silently.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::advise {

enum class Precision { fp32, bf16, fp16, fp8, int8, int4, fp4, nvfp4 };
const char* precision_name(Precision p);
Result<Precision> parse_precision(std::string_view text);
// Bytes a weight takes in storage, scales included (int4 in groups of 32; fp4 is MXFP4, a scale
// byte for 32; NVFP4 one for 16).
double weight_bytes(Precision p);

enum class AttentionKind { none, full, sliding, chunked, mla, compressed, linear, mamba };
const char* attention_name(AttentionKind kind);

struct Attention {
  AttentionKind kind = AttentionKind::none;
  int q_heads = 0, kv_heads = 0;
  int k_dim = 0, v_dim = 0;  // per head
  int window = 0;            // sliding or chunked: tokens kept
  int latent = 0;            // MLA: kv_lora_rank + rope dimension, kept once for all heads
  int compress = 0;  // compressed: one entry of k_dim for this many tokens (0: none but the window)
  int index_dim =
      0;  // sparse attention's indexer: elements of its own key per token (per `compress` tokens)
  int index_topk = 0;               // tokens the indexer selects; 0: attends to all
  std::int64_t state_elements = 0;  // linear, mamba: the recurrent state of one sequence
  double state_element_bytes = 4;
  std::int64_t conv_elements = 0;  // the short convolution's state, in the activation type
};

struct Tensor {
  std::string name;  // "self_attn.q_proj", "mlp.experts": the canonical suffix of its name in the
                     // checkpoint
  double parameters = 0;
  Precision precision = Precision::bf16;
  bool quantizable = true;  // routers, norms and convolutions stay as they are
};

struct Layer {
  Attention attention;
  std::vector<Tensor> tensors;
  int experts = 0, experts_per_token = 0;  // 0: dense
};

struct ModelShape {
  std::string name;
  std::string architecture;
  std::vector<std::string> notes;  // "unknown: …, treated as …"
  int hidden = 0;
  int vocabulary = 0;
  int context_max = 0;
  int query_width_max = 0;  // widest intermediate of a token, for activations
  bool tied_embeddings = false;
  bool encoder_decoder = false;
  std::vector<Layer> layers;
  double embedding_parameters = 0, head_parameters = 0;
  double vision_parameters = 0, mtp_parameters = 0;
  Precision native = Precision::bf16;     // what most of the checkpoint is stored in
  Precision kv_native = Precision::bf16;  // what the checkpoint asks the KV cache to be
  bool quantized = false;

  double parameters() const;  // the text model with embeddings, without vision and draft heads
  double active_parameters() const;  // that one token passes through, embeddings of one row
  // Of all tensors whose name begins with this.
  double layer_parameters(std::string_view prefix) const;
  bool is_moe() const;
  bool has(AttentionKind kind) const;
  int attention_layers() const;
  std::string attention_summary() const;  // "16 full + 48 linear"
};

// A whole config.json; `quant_config` is the text of hf_quant_config.json beside it, or empty.
Result<ModelShape> read_model_config(std::string_view config_json,
                                     std::string_view quant_config = {},
                                     std::string_view name = {});
// From a file, with hf_quant_config.json beside it (or `X_hf_quant_config.json` for
// `X_config.json`) where there is one.
Result<ModelShape> read_model_file(const std::string& path);
// "7B", "70b", "1.5T", "350M": a dense model of that size in the usual proportions, which the notes
// mention.
Result<ModelShape> model_of_size(std::string_view text);
// FILE, a size, a name found in `models_dir` (org/name → org--name_config.json, or any file of that
// model), or one of shipped_models(), with or without its organisation.
Result<ModelShape> find_model(std::string_view file_or_name, const std::string& models_dir);

// The models that Billow knows by name (data/models.txt), with their published size.
struct ShippedModel {
  std::string name;
  double billions = 0;
};
std::vector<ShippedModel> shipped_models();
// One of them, with or without its organisation, in any case; `-AWQ`, `-FP8` and the like give its
// quantized copy.
Result<ModelShape> shipped_model(const std::string& wanted);

// The names nearest to a mistyped one, at most four, without organisations: of the same family,
// then of the same size and generation.
std::vector<std::string> models_like(std::string_view typed);

// The same model with its quantizable tensors stored as `p` (the native form keeps its own mix
// where p is native).
ModelShape at_precision(ModelShape shape, Precision p);

// Applies "quantization_config" / hf_quant_config to the tensors. Used by the reader; separate
// because of its size.
Status apply_quantization(ModelShape& shape, const Json& quantization);

}  // namespace billow::advise
