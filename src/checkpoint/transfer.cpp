#include "checkpoint/transfer.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "checkpoint/payload_reader.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/agree.h"

namespace trainctl {
namespace {

// Chunks of one file as they arrive; what is wrong ends the writing, not the messages.
class ArrivingFile {
  public:
    ArrivingFile(FileSystem& files, const std::string& directory, const ManifestFile& file) : file_(file) {
        attempt([&] {
            files.make_directories(directory);
            open_ = files.publish(join_path(directory, file.name), Existing::Replace);
        });
    }
    void add(std::size_t chunk, const std::string& bytes) {
        if (!open_) return;
        const auto data = std::as_bytes(std::span(bytes));
        if (crc32c(data) != file_.chunk_crcs.at(chunk)) return open_.reset();
        attempt([&] { open_->write(data); });
    }
    void finish() {
        if (open_) attempt([&] { open_->close(); });
    }

  private:
    template <class Work>
    void attempt(const Work& work) {
        try {
            work();
        } catch (const Error&) {
            open_.reset();  // nothing appears
        }
    }

    const ManifestFile& file_;
    std::unique_ptr<File> open_;
};

std::string read_chunk(ChunkReader& reader, std::size_t chunk) {
    try {
        const std::span<const std::byte> bytes = reader.chunk(chunk);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    } catch (const Error&) {
        return {};  // which has another checksum
    }
}

}  // namespace

std::vector<Transfer> TransferPlan::next(const Manifest& manifest, const std::vector<LoadAnswer>& answers) {
    std::vector<Transfer> transfers;
    std::set<std::pair<std::size_t, int>> planned;  // file, node
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
        const int node = nodes_.of(static_cast<int>(rank));
        for (const auto& [file, problem] : answers[rank].lacking) {
            if (!planned.emplace(file, node).second) continue;
            const std::vector<int>& holders = holders_[manifest.files.at(file).name];
            const auto holder = std::find_if(holders.begin(), holders.end(), [&, &index = file](int other) {
                return nodes_.of(other) != node && asked_.count({index, {other, node}}) == 0;
            });
            if (holder == holders.end()) return {};
            asked_.insert({file, {*holder, node}});
            transfers.push_back({file, *holder, static_cast<int>(rank)});
        }
    }
    return transfers;
}

namespace {

// Every rank gives one file at most and takes one at most, so that all can work at once.
using Batch = std::vector<Transfer>;

std::vector<Batch> batches_of(const std::vector<Transfer>& transfers) {
    std::vector<Batch> batches;
    for (const Transfer& transfer : transfers) {
        const auto fits = [&](const Batch& batch) {
            return std::none_of(batch.begin(), batch.end(), [&](const Transfer& other) {
                return other.from == transfer.from || other.to == transfer.to;
            });
        };
        const auto batch = std::find_if(batches.begin(), batches.end(), fits);
        if (batch == batches.end()) {
            batches.push_back({transfer});
        } else {
            batch->push_back(transfer);
        }
    }
    return batches;
}

void make_batch(FileSystem& files, const std::string& directory, const Manifest& manifest, const Batch& batch,
                RankLink& link) {
    std::optional<ChunkReader> reader;
    std::unique_ptr<ArrivingFile> arriving;
    int to = RankLink::nobody;
    int from = RankLink::nobody;
    std::size_t given = 0;  // chunks
    std::size_t taken = 0;
    std::size_t most = 0;
    for (const Transfer& transfer : batch) {
        const ManifestFile& file = manifest.files.at(transfer.file);
        most = std::max(most, file.chunk_crcs.size());
        if (transfer.from == link.rank()) {
            to = transfer.to;
            given = file.chunk_crcs.size();
            reader.emplace(files, std::vector<std::string>{join_path(directory, file.name)}, file,
                           manifest.chunk_bytes);
        }
        if (transfer.to == link.rank()) {
            from = transfer.from;
            taken = file.chunk_crcs.size();
            arriving = std::make_unique<ArrivingFile>(files, directory, file);
        }
    }
    for (std::size_t chunk = 0; chunk < most; ++chunk) {
        const bool gives = chunk < given;
        const bool takes = chunk < taken;
        const std::string bytes =
            link.pass(gives ? to : RankLink::nobody, gives ? read_chunk(*reader, chunk) : std::string(),
                      takes ? from : RankLink::nobody);
        if (takes) arriving->add(chunk, bytes);
    }
    if (arriving) arriving->finish();
}

}  // namespace

void make_transfers(FileSystem& files, const std::string& directory, const Manifest& manifest,
                    const std::vector<Transfer>& transfers, RankLink& link) {
    for (const Batch& batch : batches_of(transfers)) make_batch(files, directory, manifest, batch, link);
    agree(link, [] {});  // other ranks of a node read what one of them took
}

}  // namespace trainctl
