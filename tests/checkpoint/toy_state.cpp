#include "checkpoint/toy_state.h"

#include <cstring>
#include <memory>

#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/state_hash.h"

namespace trainctl::test {
namespace {

// Position of an element in the global tensor, computed the slow way: independent of the code under test.
std::int64_t global_position(const NamedSlice& slice, std::int64_t flat) {
    std::vector<std::int64_t> coordinates(static_cast<std::size_t>(slice.global.rank()));
    for (int dim = slice.global.rank() - 1; dim >= 0; --dim) {
        coordinates[static_cast<std::size_t>(dim)] = slice.box.offset[dim] + flat % slice.box.extent[dim];
        flat /= slice.box.extent[dim];
    }
    std::int64_t position = 0;
    for (int dim = 0; dim < slice.global.rank(); ++dim) {
        position = position * slice.global[dim] + coordinates[static_cast<std::size_t>(dim)];
    }
    return position;
}

std::uint64_t element_bits(const NamedSlice& slice, std::int64_t flat, std::uint64_t version) {
    const std::uint64_t parts[] = {name_hash(slice.name), version,
                                   static_cast<std::uint64_t>(global_position(slice, flat))};
    return hash64(std::as_bytes(std::span(parts)));
}

template <class Visit>
void for_each_element(const NamedSlice& slice, Visit visit) {
    const std::size_t size = dtype_size(slice.view.dtype);
    for (std::int64_t index = 0; index < slice.flat.size(); ++index) {
        visit(slice.view.data + static_cast<std::size_t>(index) * size, size, slice.flat.begin + index);
    }
}

std::int64_t pick(std::mt19937_64& random, std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

void cut_boxes(const Box& box, int cuts, std::mt19937_64& random, std::vector<Box>& out) {
    const int dim = box.extent.rank() == 0 ? 0 : static_cast<int>(pick(random, 0, box.extent.rank() - 1));
    if (cuts == 0 || box.extent.rank() == 0 || box.extent[dim] < 2) {
        out.push_back(box);
        return;
    }
    const std::int64_t at = pick(random, 1, box.extent[dim] - 1);
    Box low = box;
    Box high = box;
    low.extent[dim] = at;
    high.offset[dim] += at;
    high.extent[dim] -= at;
    cut_boxes(low, cuts - 1, random, out);
    cut_boxes(high, cuts - 1, random, out);
}

}  // namespace

void SliceSet::add(const ToyTensor& tensor, const Box& box, Range flat) {
    std::vector<std::byte>& bytes = memory_.emplace_back(storage_bytes(flat.size(), tensor.dtype) + 1);
    slices_.push_back(
        {tensor.name, tensor.global, box, flat, {bytes.data(), Shape{flat.size()}, tensor.dtype}});
}

void SliceSet::fill(std::uint64_t version) {
    for (const NamedSlice& slice : slices_) {
        for_each_element(slice, [&](std::byte* at, std::size_t size, std::int64_t flat) {
            const std::uint64_t bits = element_bits(slice, flat, version);
            std::memcpy(at, &bits, size);
        });
    }
}

void SliceSet::clear() {
    for (std::vector<std::byte>& bytes : memory_) std::fill(bytes.begin(), bytes.end(), std::byte{0xAB});
}

bool SliceSet::holds(std::uint64_t version) const {
    bool same = true;
    for (const NamedSlice& slice : slices_) {
        for_each_element(slice, [&](const std::byte* at, std::size_t size, std::int64_t flat) {
            const std::uint64_t bits = element_bits(slice, flat, version);
            same = same && std::memcmp(at, &bits, size) == 0;
        });
    }
    return same;
}

std::uint64_t SliceSet::hash() const {
    std::uint64_t sum = 0;
    for (const NamedSlice& slice : slices_) sum += slice_hash(slice);
    return sum;
}

std::vector<SliceSet> random_layout(const std::vector<ToyTensor>& tensors, int ranks,
                                    std::mt19937_64& random) {
    std::vector<SliceSet> sets(static_cast<std::size_t>(ranks));
    for (const ToyTensor& tensor : tensors) {
        std::vector<Box> boxes;
        cut_boxes(whole_box(tensor.global), static_cast<int>(pick(random, 0, 3)), random, boxes);
        for (const Box& box : boxes) {
            const std::int64_t elements = box.extent.elements();
            for (std::int64_t begin = 0; begin < elements;) {
                const std::int64_t end =
                    random() % 3 == 0 ? elements : std::min(elements, begin + pick(random, 1, elements));
                sets[random() % sets.size()].add(tensor, box, {begin, end});
                begin = end;
            }
        }
    }
    return sets;
}

SliceSet random_parts(const std::vector<ToyTensor>& tensors, int count, std::mt19937_64& random) {
    SliceSet set;
    for (int part = 0; part < count; ++part) {
        const ToyTensor& tensor = tensors[random() % tensors.size()];
        if (tensor.global.elements() == 0) continue;
        Box box = whole_box(tensor.global);
        for (int dim = 0; dim < tensor.global.rank(); ++dim) {
            box.offset[dim] = pick(random, 0, tensor.global[dim] - 1);
            box.extent[dim] = pick(random, 1, tensor.global[dim] - box.offset[dim]);
        }
        const std::int64_t begin = pick(random, 0, box.extent.elements() - 1);
        set.add(tensor, box, {begin, pick(random, begin + 1, box.extent.elements())});
    }
    return set;
}

std::vector<SliceSet> flat_layout(const std::vector<ToyTensor>& tensors, int ranks) {
    std::vector<SliceSet> sets(static_cast<std::size_t>(ranks));
    for (const ToyTensor& tensor : tensors) {
        const std::int64_t elements = tensor.global.elements();
        for (int rank = 0; rank < ranks; ++rank) {
            const Range flat{elements * rank / ranks, elements * (rank + 1) / ranks};
            if (flat.size() > 0)
                sets[static_cast<std::size_t>(rank)].add(tensor, whole_box(tensor.global), flat);
        }
    }
    return sets;
}

std::vector<ToyTensor> small_tensors() {
    return {{"block.weight", Shape{12, 7}, DType::F32},
            {"block.weight.m", Shape{12, 7}, DType::F32},
            {"norm.gain", Shape{7}, DType::F32},
            {"half", Shape{3, 5}, DType::BF16},
            {"count", Shape{}, DType::I64}};
}

StoreSettings toy_settings(const std::string& root, int attempt) {
    StoreSettings settings;
    settings.root = root;
    settings.run_id = "run-1";
    settings.attempt = attempt;
    settings.chunk_bytes = 512;
    settings.proof_wait_s = 0.0;
    settings.nonce = [counter = std::make_shared<std::uint32_t>(static_cast<std::uint32_t>(attempt) << 8U)] {
        return ++*counter;
    };
    return settings;
}

Snapshot toy_snapshot(std::int64_t step, const SliceSet& set) {
    Snapshot snapshot;
    snapshot.step = step;
    snapshot.slices = set.slices();
    snapshot.counters = {{"consumed_samples", step * 32}, {"applied_updates", step}};
    snapshot.scalars = {{"loss_scale", 65536.0}};
    snapshot.layout = {{"world", 2}};
    snapshot.spec = "[job]\nname = \"toy\"\n";
    snapshot.data_fingerprint = "0123";
    return snapshot;
}

std::optional<Error> error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace trainctl::test
