// State whose every element tells tensor, position and version, cut in any way: what checkpoint tests save
// and load.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/manual_clock.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/checkpoint_store.h"

namespace trainctl::test {

struct ToyTensor {
    std::string name;
    Shape global;
    DType dtype = DType::F32;
};

// Slices with memory of their own.
class SliceSet {
  public:
    void add(const ToyTensor& tensor, const Box& box, Range flat);
    void fill(std::uint64_t version);  // elements of that version of the state
    void clear();                      // bytes that no version has
    [[nodiscard]] bool holds(std::uint64_t version) const;
    [[nodiscard]] const std::vector<NamedSlice>& slices() const { return slices_; }
    [[nodiscard]] std::uint64_t hash() const;  // sum of slice hashes

  private:
    std::vector<NamedSlice> slices_;
    std::deque<std::vector<std::byte>> memory_;
};

// Cuts every tensor at random into boxes and those into ranges, and deals them to `ranks`. Covers exactly
// once.
std::vector<SliceSet> random_layout(const std::vector<ToyTensor>& tensors, int ranks,
                                    std::mt19937_64& random);
// Random, possibly overlapping parts; covers nothing in particular.
SliceSet random_parts(const std::vector<ToyTensor>& tensors, int count, std::mt19937_64& random);
// Equal flat parts of every tensor: what ZeRO does.
std::vector<SliceSet> flat_layout(const std::vector<ToyTensor>& tensors, int ranks);

// Weights, a moment, a scalar and a bf16 tensor; a few hundred bytes.
std::vector<ToyTensor> small_tensors();

// A run directory "run" with settings for tests: small chunks, no waiting, predictable nonces.
StoreSettings toy_settings(const std::string& root, int attempt = 1);
Snapshot toy_snapshot(std::int64_t step, const SliceSet& set);

// What the action throws; nullopt: nothing.
std::optional<Error> error_of(const std::function<void()>& action);
bool mentions(const std::string& text, const std::string& part);

}  // namespace trainctl::test
