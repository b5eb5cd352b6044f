// Fuzz target: a Megatron index from anywhere must be refused with Exit::BadInput or describe a partition of
// its tokens into documents. Input: u32 size of the .bin, then the bytes of the .idx.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/memory_file_system.h"
#include "trainctl/base/error.h"
#include "trainctl/data/megatron_index.h"

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check(trainctl::OpenFiles& files, std::uint32_t bin_bytes) {
    const trainctl::MegatronIndex index(files, "a.idx", bin_bytes);
    // The places that a reader may look up before any full scan.
    if (index.tokens() > 0) {
        for (const std::int64_t token : {std::int64_t{0}, index.tokens() / 2, index.tokens() - 1}) {
            try {
                const trainctl::DocumentSpan span = index.document_at(token);
                require(span.first_token >= 0 && span.tokens >= 0);
                require(span.first_token + span.tokens <= index.tokens());
            } catch (const trainctl::Error& error) {
                require(error.code() == trainctl::Exit::BadInput);
            }
        }
    }
    std::int64_t document = 0, token = 0;
    index.scan([&](const trainctl::DocumentSpan& span) {
        require(span.document == document++ && span.first_token == token && span.tokens >= 0);
        token += span.tokens;
    });
    require(document == index.documents() && token == index.tokens());
    for (std::int64_t i = 0; i < std::min<std::int64_t>(token, 64); ++i) {
        const trainctl::DocumentSpan span = index.document_at(i);
        require(span.first_token <= i && i < span.first_token + span.tokens);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::uint32_t bin_bytes = 0;
    if (size < sizeof(bin_bytes)) return 0;
    std::memcpy(&bin_bytes, data, sizeof(bin_bytes));
    trainctl::test::MemoryFileSystem disk;
    disk.put("a.idx",
             std::string(reinterpret_cast<const char*>(data) + sizeof(bin_bytes), size - sizeof(bin_bytes)));
    trainctl::OpenFiles files(disk);
    try {
        check(files, bin_bytes);
    } catch (const trainctl::Error& error) {
        require(error.code() == trainctl::Exit::BadInput);
    }
    return 0;
}
