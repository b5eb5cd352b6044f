#include "checkpoint/payload_copy.h"

#include <memory>

#include "checkpoint/payload_reader.h"
#include "trainctl/base/error.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {

bool holds_payload(FileSystem& files, const std::string& directory, const ManifestFile& file,
                   std::uint64_t chunk_bytes) {
    const std::string path = join_path(directory, file.name);
    try {
        const auto status = files.status(path);
        if (!status || status->directory || status->size != file.bytes) return false;
        ChunkReader(files, {path}, file, chunk_bytes).verify_all();
        return true;
    } catch (const Error&) {
        return false;
    }
}

PayloadCopy copy_payload_file(FileSystem& files, const std::string& from_directory,
                              const std::string& to_directory, const ManifestFile& file,
                              std::uint64_t chunk_bytes) {
    if (holds_payload(files, to_directory, file, chunk_bytes)) return PayloadCopy::ThereAlready;
    const std::string from = join_path(from_directory, file.name);
    const std::string to = join_path(to_directory, file.name);
    for (int attempt = 1;; ++attempt) {
        try {
            ChunkReader reader(files, {from}, file, chunk_bytes);
            const std::unique_ptr<File> copy = files.publish(to, Existing::Replace);
            for (std::uint64_t chunk = 0; chunk < file.chunk_crcs.size(); ++chunk)
                copy->write(reader.chunk(chunk));
            copy->close();
            return PayloadCopy::Written;
        } catch (const Error& error) {
            // A damaged source has been read a second time by the reader; only writing is worth another try.
            if (error.code() == Exit::BadInput || attempt == durable_tries) throw;
        }
    }
}

}  // namespace trainctl
