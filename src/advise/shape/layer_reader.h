// One layer of a config.json: which attention it has, and which dense or expert MLP.
#pragma once

#include <string>

#include "advise/shape/config_fields.h"
#include "advise/shape/model_shape.h"

namespace billow::advise {

struct Moe {
  std::int64_t experts = 0, per_token = 0, inner = 0, shared_inner = 0, latent = 0;
  int matrices = 3;
};

Moe read_moe(Fields& f, const Dims& d, const std::string& type);

void ordinary_layer(Layer& layer,
                    Fields& f,
                    const Dims& d,
                    const Moe& moe,
                    const std::string& type,
                    std::int64_t i);
// The decoder of an encoder-decoder model also attends to the encoder's output.
void cross_attention(Layer& layer, const Dims& d);
// Hybrid models name the kind of each layer by one letter; empty for other models.
std::string hybrid_pattern(const Json& json);
void hybrid_layer(Layer& layer, char symbol, Fields& f, const Dims& d, const Moe& moe);
// A layer whose shape was found by architecture search and is listed in block_configs.
void searched_layer(Layer& layer, const Json& block, Fields& f, const Dims& d);

}  // namespace billow::advise
