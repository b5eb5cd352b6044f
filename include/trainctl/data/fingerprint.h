// What data a run was fed, for its record and for refusing to resume on other data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/data/corpus.h"

namespace trainctl {

struct FileFingerprint {
    std::string path;
    std::uint64_t bytes = 0;
    std::int64_t tokens = 0;
    std::uint64_t index_hash = 0;  // XXH3 of the whole .idx; 0 without one
    std::uint64_t content_hash =
        0;  // XXH3 of up to 64 evenly spaced 64 KiB pieces, the first and the last included
};

struct DataFingerprint {
    std::vector<FileFingerprint> train;
    std::vector<FileFingerprint> validation;
    // 16 hex digits over everything but the paths: the same data in another place has the same id.
    std::string id;
};

// Reads at most 4 MiB of each token file and each whole index. One rank is enough.
DataFingerprint fingerprint(FileSystem& files, const Corpus& corpus);

std::string to_json(const DataFingerprint& print);

}  // namespace trainctl
