// Configs that leave fields out or name them in their own way, brought to the common names before
// config_reader.cpp reads them. Defaults are those of the Hugging Face library for that model type.
#pragma once

#include "base/json.h"

namespace billow::advise {

// The same config with the common names added. Fields that are present are never changed.
// `nested`: it is the text part of a multi-modal config, which may leave the library's sizes out.
Json with_common_names(Json config, bool nested);

// Whether a model type shares its input and output embeddings if the config does not say.
bool ties_embeddings_by_default(std::string_view model_type);

}  // namespace billow::advise
