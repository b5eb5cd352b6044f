// Private to the room: what ranks tell one another during a save, and rank 0's plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/payload_reader.h"
#include "checkpoint/payload_writer.h"
#include "trainctl/checkpoint/checkpoint_store.h"

namespace trainctl {

// The non-empty slices in the order in which a rank offers and writes them: larger elements first, so that
// every tensor is aligned to its element.
std::vector<const NamedSlice*> slices_to_offer(const Snapshot& snapshot);

// Rank -> rank 0: which slices I hold, and a digest of the counters that must agree.
std::string offer_text(const Snapshot& snapshot, const std::vector<const NamedSlice*>& slices);

struct SavePlan {
    std::vector<ManifestTensor> tensors;  // by name; slices without file and offset yet
    // For each rank, in the order in which it writes them: (tensor, slice of that tensor).
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> written;
    std::vector<std::vector<bool>> chosen;  // for each rank: which of its offered slices it writes
};
// Exit::Internal if the ranks do not agree or do not cover every tensor exactly once.
SavePlan plan_save(const std::vector<std::string>& offers);

// Rank 0 -> all.
struct SaveOrder {
    std::string directory;
    std::vector<std::vector<bool>> chosen;
};
std::string order_text(const SaveOrder& order);
SaveOrder parse_order(const std::string& text);

// Rank -> rank 0: what I wrote. `file.name` is empty if nothing was.
struct SaveReceipt {
    Payload payload;
    std::vector<std::uint64_t> hashes;  // of each written slice
};
std::string receipt_text(const SaveReceipt& receipt);
SaveReceipt parse_receipt(const std::string& text);

// Rank 0 -> all, after COMMIT.
std::string report_text(const SaveReport& report);
SaveReport parse_report(const std::string& text);

// Rank -> rank 0 after a load: the hash of each wanted slice.
struct LoadedSlice {
    std::string name;
    Shape global;
    Box box;
    Range flat;
    std::uint64_t hash = 0;
};
struct LoadAnswer {
    std::vector<LoadedSlice> slices;      // all that were wanted, unless something is lacking
    std::vector<BadReplica> passed_over;  // replicas that were no good
    std::map<std::size_t, std::string> lacking;
};
std::string answer_text(const LoadAnswer& answer);
LoadAnswer parse_answer(const std::string& text);

// Rank 0 -> all: which checkpoint to try, and in which places it is.
struct LoadOrder {
    std::vector<std::size_t> places;
    std::string manifest;
};
std::string load_order_text(const LoadOrder& order);
LoadOrder parse_load_order(const std::string& text);

// Rank 0 -> all: a payload file that goes from one node to another before the load is tried again.
struct Transfer {
    std::size_t file = 0;
    int from = 0;
    int to = 0;
};
std::string transfers_text(const std::vector<Transfer>& transfers);
std::vector<Transfer> parse_transfers(const std::string& text);

ManifestSlice manifest_slice(const Box& box, Range flat);
std::vector<std::int64_t> extents_of(const Shape& shape);
Shape shape_of(const std::vector<std::int64_t>& extents);

}  // namespace trainctl
