#include "trainctl/config/registry.h"

#include <cmath>
#include <set>
#include <sstream>

#include "support/catch.h"

using namespace trainctl;

namespace {

// The keys of the design, section by section.
const char* const designed = R"(
job name run_dir seed steps tokens
model preset architecture layers hidden_size heads kv_heads head_dim ffn_size vocab_size max_sequence_length tie_embeddings norm_epsilon rope_theta dropout init_from
data train validation validation_split format dtype prefetch_batches
training micro_batch_size global_batch_size sequence_length gradient_clip eval_interval eval_batches
optimizer name lr beta1 beta2 epsilon weight_decay scale_lr scale_lr_reference_batch
schedule kind warmup_steps min_lr decay_steps power wsd_decay_steps wsd_shape
precision compute gradient tf32
precision.loss_scale initial growth_interval hysteresis minimum
parallel tensor_parallel_size pipeline_parallel_size data_parallel_size sequence_parallel tensor_across_hosts pipeline_schedule virtual_stages
memory zero_stage gradient_checkpointing checkpoint_every_blocks
communication gradient_bucket_mb overlap_comm reduce_dtype backend deterministic timeout_s
checkpoint directory interval_steps interval keep_latest keep_every async tiers durable_tier peer_copies max_age backup_to_object_storage
checkpoint.object_storage endpoint region credentials_file
fault_tolerance max_restarts hang_timeout_s nonfinite nonfinite_max_consecutive nonfinite_max_per_1000 spike replica_hash_steps
launch hosts hostfile ranks_per_node interfaces port_range mpirun_args env spare_nodes elastic bind
launch.slurm partition account qos time nodes signal_lead_s
monitoring log_interval plain_interval_s gpu_interval_s listen textfile tensorboard
device kind threads cpu_isa share_gpus tune_products cuda_graphs
)";

}  // namespace

TEST_CASE("Every designed key is in the registry", "[config][registry]") {
    const Registry registry;
    std::istringstream lines{designed};
    std::size_t found = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words{line};
        std::string section;
        words >> section;
        for (std::string leaf; words >> leaf; ++found) {
            INFO(section << "." << leaf);
            CHECK(registry.find(section + "." + leaf) != nullptr);
            CHECK(registry.is_section(section));
        }
    }
    // gradient_accumulation_steps is the one addition: "any given, the rest derived" needs a name for it.
    CHECK(registry.keys().size() == found + 1);
}

TEST_CASE("The registry is complete and consistent", "[config][registry]") {
    const Registry registry;
    std::set<std::string> names;
    for (const Key& key : registry.keys()) {
        INFO(key.name);
        CHECK(names.insert(key.name).second);
        CHECK(!key.help.empty());
        CHECK(key.help.back() == '.');
        CHECK(!kind_text(key).empty());
        CHECK(!default_text(key).empty());
        CHECK((key.binding.has_value() || key.availability == Availability::NotBuilt));
        // An alias that is a key's own name would turn a correct key into a suggestion for another one.
        for (const std::string& alias : key.aliases) CHECK(alias != key.leaf());
        CHECK(registry.find(key.name) == &key);
    }
    CHECK(registry.find("job.step") == nullptr);
    CHECK(registry.find("") == nullptr);
}

TEST_CASE("Every default is acceptable to its own key", "[config][registry]") {
    const Registry registry;
    for (const Key& key : registry.keys()) {
        INFO(key.name);
        CHECK(key.current(JobSpec{}) == key.fallback);
        if (key.absent == Absent::Never || !std::holds_alternative<std::monostate>(key.fallback)) {
            const auto refused = refusal(key, key.fallback);
            INFO((refused ? refused->what : ""));
            CHECK(!refused.has_value());
        }
    }
}

namespace {

// Some value that differs from the default and that the key accepts, whether built or not.
Value other_value(const Key& key) {
    switch (key.kind) {
        case Kind::Boolean:
            return !std::get<bool>(key.fallback);
        case Kind::Integer:
            for (std::int64_t value = 1; value < 5; ++value)
                if (key.bounds.contains(static_cast<double>(value)) && Value{value} != key.fallback)
                    return value;
            break;
        case Kind::Number:
            for (const double value : {0.5, 2.5, 0.25})
                if (key.bounds.contains(value) && Value{value} != key.fallback) return value;
            break;
        case Kind::Duration:
            return 60.0;
        case Kind::Text:
            return std::string{"x"};
        case Kind::Choice:
            for (const Choice& choice : key.choices)
                if (Value{choice.text} != key.fallback) return choice.text;
            break;
        case Kind::Sources:
            return std::vector<DataSource>{{"a", 0.5}};
        case Kind::TextList:
            return std::vector<std::string>{"a", "b"};
        default:
            break;
    }
    return {};
}

}  // namespace

TEST_CASE("Every bound key writes its own member and no other", "[config][registry]") {
    const Registry registry;
    std::size_t alone = 0;
    for (const Key& key : registry.keys()) {
        if (!key.binding) continue;
        INFO(key.name);
        const Value value = other_value(key);
        if (std::holds_alternative<std::monostate>(value)) {
            CHECK(key.choices.size() == 1);  // optimizer.name: there is nothing else to choose
            ++alone;
            continue;
        }
        JobSpec spec;
        key.binding->write(spec, value);
        CHECK(!(spec == JobSpec{}));
        for (const Key& other : registry.keys()) {
            if (&other == &key) CHECK(other.current(spec) == value);
            if (&other != &key) CHECK(other.current(spec) == other.fallback);
        }
    }
    CHECK(alone == 1);
}

TEST_CASE("Bounds know their ends and refuse NaN", "[config][registry]") {
    const Bounds closed{.low = 0, .high = 1};
    CHECK((closed.contains(0) && closed.contains(1) && !closed.contains(1.0001) && !closed.contains(-1e-9)));
    const Bounds open{.low = 0, .high = 1, .ends = Bounds::Ends::Open};
    CHECK((!open.contains(0) && !open.contains(1) && open.contains(0.5)));
    for (const auto ends :
         {Bounds::Ends::Closed, Bounds::Ends::Open, Bounds::Ends::OpenLow, Bounds::Ends::OpenHigh}) {
        const Bounds bounds{.ends = ends};
        CHECK(!bounds.contains(std::numeric_limits<double>::quiet_NaN()));
    }
    CHECK(open.text() == "greater than 0 and less than 1");
    CHECK(closed.text() == "between 0 and 1");
    CHECK(Bounds{.low = 1}.text() == "at least 1");
    CHECK(Bounds{.low = 0, .ends = Bounds::Ends::OpenLow}.text() == "greater than 0");
    CHECK(Bounds{.low = 0, .high = 9, .ends = Bounds::Ends::OpenHigh}.text() == "at least 0 and less than 9");
    CHECK(Bounds{.high = 3}.text() == "at most 3");
    CHECK(Bounds{}.text().empty());
}

TEST_CASE("Every number of a key in this build has a range, which its messages print", "[config][registry]") {
    const Registry registry;
    for (const Key& key : registry.keys()) {
        const bool number =
            key.kind == Kind::Integer || key.kind == Kind::Number || key.kind == Kind::Duration;
        if (!number || key.availability == Availability::NotBuilt) continue;
        INFO(key.name);
        CHECK(std::isfinite(key.bounds.low));  // nothing has a meaning below every bound
        const double below = key.bounds.low - 1.0;
        const auto refused =
            key.kind == Kind::Integer ? refusal(key, static_cast<std::int64_t>(below)) : refusal(key, below);
        REQUIRE(refused.has_value());
        CHECK_THAT(refused->what, Catch::Contains("must be " + key.bounds.text()));
        CHECK_THAT(refused->what, !Catch::Contains(">") && !Catch::Contains("e+308"));
    }
}

TEST_CASE("Suggestions: wrong section, another trainer's name, near spelling, nothing",
          "[config][registry]") {
    const Registry registry;
    CHECK(registry.suggestions("model.micro_batch_size") ==
          std::vector<std::string>{"training.micro_batch_size"});
    CHECK(registry.suggestions("optimizer.learning_rate") == std::vector<std::string>{"optimizer.lr"});
    CHECK(registry.suggestions("train_iters") == std::vector<std::string>{"job.steps"});
    CHECK(registry.suggestions("training.micro_batch_sise") ==
          std::vector<std::string>{"training.micro_batch_size"});
    CHECK(registry.suggestions("model.warmup_stps") == std::vector<std::string>{"schedule.warmup_steps"});
    CHECK(registry.suggestions("job.qqqqqqqqqqqqqqqqqqqq").empty());
    // Two sections have it: both are shown.
    CHECK(registry.suggestions("training.name") == std::vector<std::string>{"job.name", "optimizer.name"});
}
