// The sequential meaning of a program. Written for plainness: one element at a time, no chunks, no messages.
#include <cmath>
#include <cstring>

#include "comm/collective_program.h"

namespace trainctl::test {
namespace {

using State = std::vector<std::vector<std::vector<std::byte>>>;

template <class T>
T get(const std::byte* data, std::int64_t index) {
    T value;
    std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof value);
    return value;
}

template <class T>
void put(std::byte* data, std::int64_t index, T value) {
    std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof value);
}

template <class A>
A reduced(const std::vector<A>& values, Reduce reduce) {
    A result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) {
        if (reduce == Reduce::Sum) result = static_cast<A>(result + values[i]);
        const bool is_nan = values[i] != values[i];
        if (reduce == Reduce::Max && (values[i] > result || is_nan)) result = values[i];
        if (reduce == Reduce::Min && (values[i] < result || is_nan)) result = values[i];
    }
    return result;
}

// out[out_index] (=, +=) reduction of element `index` of the sources.
void reduce_element(std::byte* out, DType out_dtype, std::int64_t out_index,
                    const std::vector<const std::byte*>& sources, DType dtype, std::int64_t index,
                    Reduce reduce, Into into) {
    const auto collect = [&](auto zero) {
        std::vector<decltype(zero)> values;
        for (const std::byte* source : sources) values.push_back(get<decltype(zero)>(source, index));
        return values;
    };
    switch (dtype) {
        case DType::F64: {
            const double sum = reduced(collect(double{}), reduce);
            put(out, out_index, into == Into::Overwrite ? sum : get<double>(out, out_index) + sum);
            return;
        }
        case DType::I64: {
            const auto sum = reduced(collect(std::uint64_t{}), Reduce::Sum);
            const auto extreme =
                reduced(collect(std::int64_t{}), reduce == Reduce::Sum ? Reduce::Max : reduce);
            const std::uint64_t value = reduce == Reduce::Sum ? sum : static_cast<std::uint64_t>(extreme);
            put(out, out_index, into == Into::Overwrite ? value : get<std::uint64_t>(out, out_index) + value);
            return;
        }
        case DType::I32: {
            const auto sum = reduced(collect(std::uint32_t{}), Reduce::Sum);
            const auto extreme =
                reduced(collect(std::int32_t{}), reduce == Reduce::Sum ? Reduce::Max : reduce);
            const std::uint32_t value = reduce == Reduce::Sum ? sum : static_cast<std::uint32_t>(extreme);
            put(out, out_index, into == Into::Overwrite ? value : get<std::uint32_t>(out, out_index) + value);
            return;
        }
        default: {  // F32, BF16, F16: added in F32, rounded once
            std::vector<float> values;
            for (const std::byte* source : sources) {
                values.push_back(static_cast<float>(load_element(source, dtype, index)));
            }
            float value = reduced(values, reduce);
            if (into == Into::Accumulate)
                value = static_cast<float>(load_element(out, out_dtype, out_index)) + value;
            store_element(out, out_dtype, out_index, static_cast<double>(value));
            return;
        }
    }
}

class Oracle {
  public:
    explicit Oracle(const Program& program)
        : program_(program), state_(static_cast<std::size_t>(program.ranks)) {
        for (auto& tensors : state_) {
            for (const DType dtype : tensor_dtypes) {
                tensors.emplace_back(storage_bytes(tensor_elements, dtype));
            }
        }
    }

    State run() {
        for (std::size_t i = 0; i < program_.steps.size(); ++i) step(program_.steps[i], static_cast<int>(i));
        return state_;
    }

  private:
    std::byte* tensor(int rank, int index) {
        return state_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(index)].data();
    }

    void step(const Step& step, int number) {
        const State before = state_;
        for (int rank = 0; rank < program_.ranks; ++rank) {
            const std::vector<int> group = group_of(program_, step.family, rank);
            if (!group.empty()) one_rank(step, number, rank, group, before);
        }
    }

    // What `rank` holds after the step, from what its group held before it.
    void one_rank(const Step& step, int number, int rank, const std::vector<int>& group,
                  const State& before) {
        const DType dtype = tensor_dtypes[step.a];
        const std::int64_t element = static_cast<std::int64_t>(dtype_size(dtype));
        const int size = static_cast<int>(group.size());
        const int me = static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
        const auto old = [&](int member, int index) {
            return before[static_cast<std::size_t>(group[static_cast<std::size_t>(member)])]
                         [static_cast<std::size_t>(index)]
                             .data();
        };
        std::byte* a = tensor(rank, step.a);
        std::byte* b = tensor(rank, step.b);
        std::vector<const std::byte*> sources;
        for (int member = 0; member < size; ++member) sources.push_back(old(member, step.a));
        const auto copy = [&](std::byte* to, std::int64_t to_begin, const std::byte* from,
                              std::int64_t from_begin, std::int64_t count) {
            std::memcpy(to + to_begin * element, from + from_begin * element,
                        static_cast<std::size_t>(count * element));
        };
        switch (step.verb) {
            case Verb::Fill:
                for (std::int64_t i = 0; i < tensor_elements; ++i) {
                    store_element(a, dtype, i, fill_value(program_, number, rank, i));
                }
                break;
            case Verb::Halve:
                for (std::int64_t i = 0; i < tensor_elements; ++i) {
                    store_element(a, dtype, i, load_element(a, dtype, i) * 0.5);
                }
                break;
            case Verb::AllReduce:
                for (std::int64_t i = step.begin; i < step.begin + step.count; ++i) {
                    reduce_element(a, dtype, i, sources, dtype, i, step.reduce, Into::Overwrite);
                }
                break;
            case Verb::ReduceScatter:
            case Verb::ReduceInPlace: {
                const bool in_place = step.verb == Verb::ReduceInPlace;
                for (std::int64_t i = 0; i < step.count; ++i) {
                    const std::int64_t index = me * step.count + i;
                    reduce_element(in_place ? a : b, in_place ? dtype : tensor_dtypes[step.b],
                                   in_place ? index : i, sources, dtype, index, Reduce::Sum, step.into);
                }
                break;
            }
            case Verb::AllGather:
                for (int member = 0; member < size; ++member) {
                    copy(a, member * step.count, old(member, step.b), 0, step.count);
                }
                break;
            case Verb::GatherInPlace:
                for (int member = 0; member < size; ++member) {
                    copy(a, member * step.count, old(member, step.a), member * step.count, step.count);
                }
                break;
            case Verb::Broadcast:
                copy(a, step.begin, old(step.root % size, step.a), step.begin, step.count);
                break;
            case Verb::Ring:
                copy(b, 0, old((me + size - 1) % size, step.a), step.begin, step.count);
                break;
            case Verb::OneWay:
                if (step.root % size != step.other % size && me == step.other % size) {
                    copy(b, 0, old(step.root % size, step.a), step.begin, step.count);
                }
                break;
            case Verb::Barrier:
            case Verb::HostSleep:
                break;
        }
    }

    const Program& program_;
    State state_;
};

}  // namespace

std::vector<std::vector<std::vector<std::byte>>> run_oracle(const Program& program) {
    return Oracle(program).run();
}

double load_element(const std::byte* data, DType dtype, std::int64_t index) {
    switch (dtype) {
        case DType::F64:
            return get<double>(data, index);
        case DType::F32:
            return static_cast<double>(get<float>(data, index));
        case DType::BF16:
            return static_cast<double>(to_float(get<BFloat16>(data, index)));
        case DType::F16:
            return static_cast<double>(to_float(get<Float16>(data, index)));
        case DType::I64:
            return static_cast<double>(get<std::int64_t>(data, index));
        case DType::I32:
            return static_cast<double>(get<std::int32_t>(data, index));
        default:
            fail(Exit::Internal, "no such tensor in collective programs");
    }
}

void store_element(std::byte* data, DType dtype, std::int64_t index, double value) {
    switch (dtype) {
        case DType::F64:
            return put(data, index, value);
        case DType::F32:
            return put(data, index, static_cast<float>(value));
        case DType::BF16:
            return put(data, index, to_bfloat16(static_cast<float>(value)));
        case DType::F16:
            return put(data, index, to_float16(static_cast<float>(value)));
        case DType::I64:
            return put(data, index, static_cast<std::int64_t>(value));
        case DType::I32:
            return put(data, index, static_cast<std::int32_t>(value));
        default:
            fail(Exit::Internal, "no such tensor in collective programs");
    }
}

}  // namespace trainctl::test
