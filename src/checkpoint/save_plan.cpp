// Who writes which slice, and whether the ranks together hold a whole state.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/save_messages.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/slice_runs.h"

namespace trainctl {

using nlohmann::json;

std::vector<const NamedSlice*> slices_to_offer(const Snapshot& snapshot) {
    std::vector<const NamedSlice*> slices;
    for (const NamedSlice& slice : snapshot.slices) {
        require_valid(slice);
        if (slice.flat.size() > 0) slices.push_back(&slice);
    }
    std::stable_sort(slices.begin(), slices.end(), [](const NamedSlice* a, const NamedSlice* b) {
        return dtype_size(a->view.dtype) > dtype_size(b->view.dtype);
    });
    return slices;
}

SavePlan plan_save(const std::vector<std::string>& offers) {
    SavePlan plan;
    std::map<std::string, ManifestTensor> tensors;
    struct Offered {
        std::string tensor;
        std::size_t slice;
    };
    std::vector<std::vector<Offered>> places(offers.size());
    const json first = json::parse(offers.front());
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
        const json offer = rank == 0 ? first : json::parse(offers[rank]);
        for (const char* key : {"step", "counters", "scalars"}) {
            if (offer.at(key) != first.at(key)) {
                fail(Exit::Internal, "cannot save: rank " + std::to_string(rank) + " has " + key + " " +
                                         offer.at(key).dump() + ", rank 0 has " + first.at(key).dump());
            }
        }
        std::vector<bool>& chosen = plan.chosen.emplace_back();
        for (const json& item : offer.at("slices")) {
            const auto name = item[0].get<std::string>();
            const auto dtype = item[1].get<std::string>();
            const auto global = item[2].get<std::vector<std::int64_t>>();
            const ManifestSlice slice{0,
                                      0,
                                      item[3].get<std::vector<std::int64_t>>(),
                                      item[4].get<std::vector<std::int64_t>>(),
                                      item[5].get<std::int64_t>(),
                                      item[6].get<std::int64_t>()};
            ManifestTensor& tensor =
                tensors.try_emplace(name, ManifestTensor{name, dtype, global, 0, {}}).first->second;
            if (tensor.dtype != dtype || tensor.shape != global) {
                fail(Exit::Internal, "cannot save: ranks disagree about dtype or shape of tensor " + name);
            }
            const bool known =
                std::any_of(tensor.slices.begin(), tensor.slices.end(), [&](const ManifestSlice& other) {
                    return other.begin == slice.begin && other.extent == slice.extent &&
                           other.flat_begin == slice.flat_begin && other.flat_end == slice.flat_end;
                });
            chosen.push_back(!known);
            if (known) continue;
            places[rank].push_back({name, tensor.slices.size()});
            tensor.slices.push_back(slice);
        }
    }
    std::map<std::string, std::size_t> index;
    for (auto& [name, tensor] : tensors) {
        try {
            require_coverage(tensor, "cannot save");
        } catch (const Error& error) {
            fail(Exit::Internal, error.what());
        }
        index[name] = plan.tensors.size();
        plan.tensors.push_back(std::move(tensor));
    }
    for (const std::vector<Offered>& rank : places) {
        auto& written = plan.written.emplace_back();
        for (const Offered& place : rank) written.emplace_back(index.at(place.tensor), place.slice);
    }
    return plan;
}

}  // namespace trainctl
