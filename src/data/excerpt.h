// Token ids as something a person can read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/data/token_file.h"
#include "trainctl/data/tokenizer.h"

namespace trainctl::data_detail {

// The named tokenizer, else the one of the data set's PREFIX.json, else nullptr.
std::unique_ptr<Tokenizer> tokenizer_for(FileSystem& files, const std::string& path, const std::string& name);

// Decoded text with "<eod>" between documents as a JSON string literal, or, without a tokenizer, the ids "[1,
// 2, 3]".
std::string excerpt(const Tokenizer* tokenizer, std::span<const std::int32_t> ids);

}  // namespace trainctl::data_detail
