// libFuzzer over descriptions of models: config.json of any architecture, with its quantization
// ("CONFIG\0QUANTIZATION"). Every count of an accepted model is positive and bounded, so that no
// later sum overflows.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "advise/shape/model_shape.h"
#include "base/check.h"

namespace {

using namespace billow::advise;

bool sane(double value) {
  return std::isfinite(value) && value >= 0;
}

void check_model(const ModelShape& model) {
  BILLOW_CHECK(model.hidden > 0 && model.vocabulary > 0, "counts are positive");
  BILLOW_CHECK(!model.layers.empty() && model.layers.size() <= 1'000'000, "a number of layers");
  for (const Layer& layer : model.layers) {
    BILLOW_CHECK(layer.experts >= 0 && layer.experts_per_token >= 0, "experts");
    BILLOW_CHECK(layer.experts_per_token <= layer.experts, "no more than there are");
    BILLOW_CHECK(sane(layer.attention.state_element_bytes), "bytes of a state");
    BILLOW_CHECK(layer.attention.state_elements >= 0 && layer.attention.conv_elements >= 0,
                 "elements of a state");
    BILLOW_CHECK(layer.attention.q_heads >= 0 && layer.attention.kv_heads >= 0 &&
                     layer.attention.k_dim >= 0 && layer.attention.v_dim >= 0 &&
                     layer.attention.window >= 0 && layer.attention.latent >= 0,
                 "shapes of attention");
    for (const Tensor& tensor : layer.tensors)
      BILLOW_CHECK(sane(tensor.parameters), "parameters of a tensor");
  }
  BILLOW_CHECK(sane(model.parameters()) && sane(model.active_parameters()), "sums are numbers");
  BILLOW_CHECK(sane(model.vision_parameters) && sane(model.mtp_parameters), "parts are numbers");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto cut = std::min(bytes.find('\0'), bytes.size());
  const std::string_view quantization = bytes.substr(std::min(cut + 1, bytes.size()));
  const auto model = read_model_config(bytes.substr(0, cut), quantization, "fuzz");
  (void)parse_precision(bytes);
  if (!model)
    return 0;
  check_model(*model);
  for (const Precision precision : {Precision::fp8, Precision::int4})
    check_model(at_precision(*model, precision));
  (void)model->attention_summary();
  return 0;
}
