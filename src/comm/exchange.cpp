#include "comm/exchange.h"

#include <array>
#include <cstring>

#include "comm/operation.h"

namespace trainctl {
namespace {

constexpr std::uint64_t longest_string = std::uint64_t{1} << 30U;

using Strings = std::vector<std::string>;

// Each string travels as a message with its length and, unless empty, one with its bytes.
class Exchange final : public CommOperation {
  public:
    Exchange(std::shared_ptr<CommCore> core, const char* what, unsigned sequence, ExchangeRoute route,
             std::string mine, std::shared_ptr<Strings> result)
        : CommOperation(std::move(core), what, mine.size(), sequence),
          tag_(collective_tag(sequence)),
          route_(route),
          mine_(std::move(mine)),
          my_length_(mine_.size()),
          lengths_(static_cast<std::size_t>(size()), 0),
          result_(std::move(result)) {
        result_->resize(static_cast<std::size_t>(size()));
    }

  private:
    enum Cookie : std::int64_t { length_message, string_message };

    [[nodiscard]] bool travels(int from, int to) const {
        switch (route_.pattern) {
            case ExchangePattern::All:
                return true;
            case ExchangePattern::ToRoot:
                return to == 0;
            case ExchangePattern::FromRoot:
                return from == 0;
            case ExchangePattern::Pairs:
                return (from == rank() && to == route_.to) || (to == rank() && from == route_.from);
        }
        return false;
    }

    bool step() override {
        if (!started_) {
            started_ = true;
            if (travels(rank(), rank())) (*result_)[static_cast<std::size_t>(rank())] = mine_;
            for (int k = 1; k < size(); ++k) {
                const int other = peer(k);
                if (travels(other, rank())) {
                    receive(other, tag_, bytes_of(lengths_[static_cast<std::size_t>(other)]),
                            sizeof(std::uint64_t), length_message);
                }
                if (travels(rank(), other)) {
                    send(other, tag_, bytes_of(my_length_), sizeof my_length_);
                    if (my_length_ > 0) send(other, tag_, bytes_of(mine_[0]), mine_.size());
                }
            }
        }
        return settled();
    }

    void received(int from, std::int64_t cookie) override {
        if (cookie == string_message) return;
        const std::uint64_t length = lengths_[static_cast<std::size_t>(from)];
        invariant(length <= longest_string, "a host message has an impossible length: ranks are out of step");
        std::string& string = (*result_)[static_cast<std::size_t>(from)];
        string.resize(length);
        if (length > 0) receive(from, tag_, bytes_of(string[0]), length, string_message);
    }

    template <class T>
    static std::byte* bytes_of(T& value) {
        return reinterpret_cast<std::byte*>(&value);
    }

    int tag_;
    ExchangeRoute route_;
    std::string mine_;
    std::uint64_t my_length_;
    std::vector<std::uint64_t> lengths_;
    std::shared_ptr<Strings> result_;  // shared: a host that gave up does not wait for this operation to go
    bool started_ = false;
};

}  // namespace

void ControlLine::run(std::unique_ptr<Operation> operation) {
    host_stream(*stream).submit(std::move(operation));
    stream->synchronize();
}

std::vector<std::string> ControlLine::exchange(const std::shared_ptr<CommCore>& core, const char* what,
                                               unsigned sequence, ExchangeRoute route,
                                               const std::string& mine) {
    auto result = std::make_shared<Strings>();
    run(std::make_unique<Exchange>(core, what, sequence, route, mine, result));
    return *result;
}

}  // namespace trainctl
