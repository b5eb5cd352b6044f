#include "parallel/bucketed_reducer.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainctl {

BucketedReducer::BucketedReducer(const ShardPlan& plan, const GradientMemory& memory, Device& device, Ops ops,
                                 Communicator& data, Stream& compute, Stream& communication)
    : plan_(plan),
      memory_(memory),
      device_(device),
      ops_(ops),
      data_(data),
      compute_(compute),
      communication_(communication),
      slot_turns_(memory.slots().slot_elements.size()),
      image_turns_(memory.images().slot_elements.size()),
      consumed_(device.make_event()),
      reduced_(device.make_event()) {
    parts_.resize(static_cast<std::size_t>(plan.model_parts()));
    for (std::size_t i = 0; i < plan.units().size(); ++i) ++part_of(i).units;
    for (const UnitLayout& layout : plan.units()) {
        Unit& unit = units_.emplace_back();
        unit.cast = device.make_event();
        unit.sent = device.make_event();
        unit.gaps = unit_gaps(layout);
        add_producer(unit, compute);  // the usual one, so that the steady state makes no event
        unit.producers.front().active = false;
    }
}

BucketedReducer::PartState& BucketedReducer::part_of(std::size_t index) {
    return parts_[static_cast<std::size_t>(plan_.model_part(index))];
}

bool BucketedReducer::reduces_now(const PartState& part) const {
    return memory_.in_slots() || part.kind == MicroKind::Last;
}

void BucketedReducer::require_complete(int part) const {
    for (std::size_t i = 0; i < units_.size(); ++i) {
        if (plan_.model_part(i) != part || units_[i].progress == Progress::Ready) continue;
        fail(Exit::Internal,
             fmt::format("gradients of unit {} were never announced as ready in micro-batch {} "
                         "of the step: every unit must be, exactly once per micro-batch",
                         plan_.unit(i).unit, parts_[static_cast<std::size_t>(part)].micro));
    }
}

void BucketedReducer::begin_micro(int part, int index, MicroKind kind) {
    require_complete(part);
    PartState& state = parts_[static_cast<std::size_t>(part)];
    state.micro = index;
    state.kind = kind;
    state.next_bucket = plan_.buckets_of(part).first;
    state.ready_units = 0;
    for (std::size_t i = 0; i < units_.size(); ++i) {
        if (plan_.model_part(i) != part) continue;
        units_[i].progress = Progress::Untouched;
        for (Producer& producer : units_[i].producers) producer.active = false;
    }
    if (index == 0) {
        // Gradients of the step before may be overwritten once they are reduced and the update has read them.
        compute_.wait(*reduced_);
        compute_.record(*consumed_);
    }
}

GradView BucketedReducer::grads(UnitId unit_id, Stream& stream) {
    const std::size_t index = plan_.index(unit_id);
    Unit& unit = units_[index];
    if (unit.progress == Progress::Ready) {
        fail(Exit::Internal,
             fmt::format("gradients of unit {} asked for after they were announced as ready in "
                         "micro-batch {}",
                         unit_id, part_of(index).micro));
    }
    if (&stream != &compute_) stream.wait(*consumed_);
    for (const Producer& producer : unit.producers) {
        if (producer.stream == &stream) continue;
        // Wrote the unit earlier in this micro-batch (a tied head), or in the one before.
        if (producer.active) producer.stream->record(*producer.written);
        stream.wait(*producer.written);
    }
    add_producer(unit, stream);
    if (memory_.in_slots()) take_slot(index, stream);
    unit.progress = Progress::Writing;
    const bool first_of_sum = memory_.in_slots() || part_of(index).micro == 0;
    return {{plan_.unit(index), plan_.params(), memory_.full(index)},
            first_of_sum ? Into::Overwrite : Into::Accumulate};
}

void BucketedReducer::add_producer(Unit& unit, Stream& stream) {
    for (Producer& producer : unit.producers) {
        if (producer.stream != &stream) continue;
        producer.active = true;
        return;
    }
    unit.producers.push_back({&stream, device_.make_event(), true});
}

void BucketedReducer::take_slot(std::size_t index, Stream& stream) {
    const SlotPlan::Place& place = memory_.slots().unit[index];
    Turn& turn = slot_turns_[static_cast<std::size_t>(place.slot)];
    if (turn.group == no_group) turn.group = place.group;
    if (turn.group != place.group) {
        fail(Exit::Internal,
             fmt::format("gradients of unit {} asked for while its gradient slot still waits for "
                         "other units to become ready: backward must finish units from the last "
                         "to the first, and only the first unit of a model whose head is tied "
                         "may be asked for early",
                         plan_.unit(index).unit));
    }
    for (const std::size_t before : turn.before)
        stream.wait(memory_.has_images() ? *units_[before].cast : *units_[before].sent);
    if (units_[index].progress != Progress::Untouched) return;
    // The slot still holds another unit's gradients where this one has padding, which no layer writes.
    for (const Range& gap : units_[index].gaps)
        ops_.elementwise.fill_zero(stream, memory_.full(index).flat(gap.begin, gap.size()));
}

void BucketedReducer::ready(UnitId unit_id, Stream& stream) {
    const std::size_t index = plan_.index(unit_id);
    Unit& unit = units_[index];
    PartState& part = part_of(index);
    if (unit.progress != Progress::Writing) {
        fail(Exit::Internal,
             fmt::format("unit {} announced as ready {} in micro-batch {}", unit_id,
                         unit.progress == Progress::Ready ? "twice" : "before its gradients were asked for",
                         part.micro));
    }
    unit.progress = Progress::Ready;
    unit.ready_stream = &stream;
    add_producer(unit, stream);
    for (const Producer& producer : unit.producers)
        if (producer.active) producer.stream->record(*producer.written);
    ++part.ready_units;
    if (!reduces_now(part)) return;
    const bool overlap = plan_.options().overlap;
    const bool complete = part.ready_units == part.units;
    if (!overlap && complete) {
        // The host may be far ahead of the streams: issuing late is not starting late.
        for (std::size_t i = 0; i < units_.size(); ++i)
            if (plan_.model_part(i) == plan_.model_part(index)) wait_for_producers(units_[i], communication_);
    }
    if (overlap || memory_.in_slots() || complete) send_ready_buckets(plan_.model_part(index));
    // Stage 2 has memory for a few units only, so "no overlap" means one after the other.
    if (!overlap && memory_.in_slots()) stream.wait(*reduced_);
}

void BucketedReducer::send_ready_buckets(int part) {
    // In the order of the list on every rank, whatever the order of ready().
    const auto& buckets = plan_.buckets();
    const std::size_t end = plan_.buckets_of(part).second;
    std::size_t& next = parts_[static_cast<std::size_t>(part)].next_bucket;
    const auto is_ready = [&](const BucketPiece& piece) {
        return units_[plan_.index(piece.unit)].progress == Progress::Ready;
    };
    while (next < end && std::all_of(buckets[next].pieces.begin(), buckets[next].pieces.end(), is_ready))
        send(buckets[next++]);
}

void BucketedReducer::wait_for_producers(const Unit& unit, Stream& stream) {
    for (const Producer& producer : unit.producers)
        if (producer.active && producer.stream != &stream) stream.wait(*producer.written);
}

void BucketedReducer::make_image(std::size_t index) {
    Unit& unit = units_[index];
    Stream& stream = *unit.ready_stream;
    wait_for_producers(unit, stream);
    const SlotPlan::Place& place = memory_.images().unit[index];
    for (const std::size_t before : image_turns_[static_cast<std::size_t>(place.slot)].before)
        stream.wait(*units_[before].sent);
    ops_.elementwise.cast(stream, memory_.source(index), memory_.full(index));
    stream.record(*unit.cast);
    communication_.wait(*unit.cast);
}

void BucketedReducer::send(const Bucket& bucket) {
    for (const BucketPiece& piece : bucket.pieces) {
        if (piece.part_begin > 0) continue;  // waited for with the first piece of the unit
        const std::size_t index = plan_.index(piece.unit);
        if (memory_.has_images())
            make_image(index);
        else
            wait_for_producers(units_[index], communication_);
    }
    if (plan_.options().stage == 0 && !memory_.has_images())
        all_reduce(bucket);
    else
        for (const BucketPiece& piece : bucket.pieces) reduce_scatter(piece);

    std::vector<std::size_t> finished;  // units of which this was the last piece
    for (const BucketPiece& piece : bucket.pieces) {
        const std::size_t index = plan_.index(piece.unit);
        if (piece.part_begin + piece.part_elements < plan_.part(index)) continue;
        communication_.record(*units_[index].sent);
        finished.push_back(index);
    }
    communication_.record(*reduced_);
    if (finished.empty()) return;
    const auto pass_turn = [&](std::vector<Turn>& turns, const SlotPlan& plan) {
        turns[static_cast<std::size_t>(plan.unit[finished.front()].slot)] = {no_group, finished};
    };
    if (memory_.in_slots()) pass_turn(slot_turns_, memory_.slots());
    if (memory_.has_images()) pass_turn(image_turns_, memory_.images());
}

void BucketedReducer::all_reduce(const Bucket& bucket) {
    // Units of a run are neighbours in the full buffer, and sub-ranges of the parts cover a unit as well as
    // sub-ranges of the unit do: always one contiguous range, never a copy.
    const BucketPiece& first = bucket.pieces.front();
    const BucketPiece& last = bucket.pieces.back();
    TensorView range = memory_.full(plan_.index(last.unit));
    range = range.flat(last.part_begin * plan_.ranks(), bucket.part_elements * plan_.ranks());
    invariant(bucket.pieces.size() == 1 || first.part_begin == 0, "a run is made of whole units");
    data_.all_reduce(range, Reduce::Sum, communication_);
}

void BucketedReducer::reduce_scatter(const BucketPiece& piece) {
    const std::size_t index = plan_.index(piece.unit);
    const std::int64_t part = plan_.part(index);
    const Into into = memory_.in_slots() && part_of(index).micro > 0 ? Into::Accumulate : Into::Overwrite;
    TensorView sent = memory_.source(index);
    if (piece.part_elements < part && plan_.ranks() > 1) {
        const TensorView packed = memory_.packed(piece.part_elements * plan_.ranks());
        for (int rank = 0; rank < plan_.ranks(); ++rank) {
            const TensorView from = sent.flat(rank * part + piece.part_begin, piece.part_elements);
            const TensorView to = packed.flat(rank * piece.part_elements, piece.part_elements);
            device_.copy(communication_, to.data, from.data, from.bytes());
        }
        sent = packed;
    } else {
        sent = sent.flat(piece.part_begin, piece.part_elements * plan_.ranks());
    }
    data_.reduce_scatter(memory_.owned(index).flat(piece.part_begin, piece.part_elements), sent, into,
                         communication_);
    const bool last_of_unit = piece.part_begin + piece.part_elements == part;
    if (plan_.options().stage == 0 && last_of_unit)
        data_.all_gather(memory_.full(index), memory_.owned(index), communication_);
}

void BucketedReducer::finish() {
    for (int part = 0; part < plan_.model_parts(); ++part) {
        require_complete(part);
        const PartState& state = parts_[static_cast<std::size_t>(part)];
        if (state.kind == MicroKind::Last) continue;
        fail(Exit::Internal,
             fmt::format("update after micro-batch {} of the step, which was not announced as the last one",
                         state.micro));
    }
    compute_.wait(*reduced_);
}

}  // namespace trainctl
