#include "data/excerpt.h"

#include <algorithm>

#include "trainctl/base/text.h"
#include "trainctl/data/sidecar.h"

namespace trainctl::data_detail {

std::unique_ptr<Tokenizer> tokenizer_for(FileSystem& files, const std::string& path,
                                         const std::string& name) {
    if (!name.empty()) return make_tokenizer(name);
    const auto sidecar = read_sidecar(files, megatron_prefix(path));
    return sidecar ? make_tokenizer(sidecar->tokenizer) : nullptr;
}

std::string excerpt(const Tokenizer* tokenizer, std::span<const std::int32_t> ids) {
    std::string text;
    if (tokenizer == nullptr) {
        for (const std::int32_t id : ids) text += (text.empty() ? "[" : ", ") + std::to_string(id);
        return text.empty() ? "[]" : text + "]";
    }
    while (!ids.empty()) {
        const auto end = std::find(ids.begin(), ids.end(), tokenizer->end_of_document());
        const auto count = static_cast<std::size_t>(end - ids.begin());
        text += tokenizer->decode(ids.first(count));
        if (end != ids.end()) text += "<eod>";
        ids = ids.subspan(std::min(ids.size(), count + 1));
    }
    return json_quote(text);
}

}  // namespace trainctl::data_detail
