#include "trainctl/train/product_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/agree.h"

namespace trainctl {
namespace {

using DeviceProduct = std::pair<std::string, std::string>;
using Table = std::map<DeviceProduct, std::string>;  // algorithm

Table table_of(const std::vector<ProductChoice>& choices) {
    Table table;
    for (const ProductChoice& choice : choices) table[{choice.device, choice.product}] = choice.algorithm;
    return table;
}

std::vector<ProductChoice> choices_of(const Table& table) {
    std::vector<ProductChoice> choices;
    for (const auto& [key, algorithm] : table) choices.push_back({key.first, key.second, algorithm});
    return choices;
}

std::vector<ProductChoice> received(std::string_view text) {
    ProductChoices parsed = parse_product_choices(text);
    if (!parsed.damage.empty()) fail(Exit::Internal, "product choices of another rank: " + parsed.damage);
    return std::move(parsed.choices);
}

Product product_of(const std::string& text) {
    const std::optional<Product> product = parse_product(text);
    if (!product) fail(Exit::Internal, "another rank spoke of the product '" + text + "'");
    return *product;
}

// As messages carry it: a line of numbers, a line for each algorithm discarded, an empty one, the choices.
std::string to_text(const TunedProducts& tuned) {
    const TuningReport& r = tuned.report;
    std::string text = fmt::format("{} {} {} {} {} {} {}\n", tuned.known, r.compared, r.changed,
                                   r.not_reached, r.without_memory, r.best_gain, r.seconds);
    for (const std::string& line : r.discarded) text += line + '\n';
    return text + '\n' + to_text(tuned.choices);
}

TunedProducts parse_tuned(const std::string& text) {
    TunedProducts tuned;
    TuningReport& r = tuned.report;
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    std::istringstream numbers(line);
    numbers >> tuned.known >> r.compared >> r.changed >> r.not_reached >> r.without_memory >> r.best_gain >>
        r.seconds;
    if (numbers.fail()) fail(Exit::Internal, "another rank reports on its products with '" + line + "'");
    while (std::getline(lines, line) && !line.empty()) r.discarded.push_back(line);
    tuned.choices = received(std::string_view(text).substr(static_cast<std::size_t>(lines.tellg())));
    return tuned;
}

std::string merged(const std::vector<std::string>& answers) {
    TunedProducts all;
    for (const std::string& answer : answers) {
        if (answer.empty()) continue;
        TunedProducts one = parse_tuned(answer);
        all.known += one.known;
        all.report.compared += one.report.compared;
        all.report.changed += one.report.changed;
        all.report.not_reached += one.report.not_reached;
        all.report.without_memory += one.report.without_memory;
        all.report.best_gain = std::max(all.report.best_gain, one.report.best_gain);
        all.report.seconds = std::max(all.report.seconds, one.report.seconds);
        all.report.discarded.insert(all.report.discarded.end(), one.report.discarded.begin(),
                                    one.report.discarded.end());
        all.choices.insert(all.choices.end(), one.choices.begin(), one.choices.end());
    }
    return to_text(all);
}

// Who tunes for a kind of device: the lowest rank that has one.
int speaker_for(RankLink& link, const std::string& device) {
    std::istringstream devices(agree(
        link, [&] { return device; },
        [](const std::vector<std::string>& all) { return fmt::format("{}", fmt::join(all, "\n")); }));
    int speaker = 0;
    for (std::string other; std::getline(devices, other) && other != device;) ++speaker;
    return speaker;
}

// What all ranks need, with what is known of it (at rank 0).
std::vector<ProductChoice> needed_by_all(RankLink& link, const std::string& device,
                                         const std::vector<Product>& mine,
                                         const std::vector<ProductChoice>& known) {
    const auto mine_as_text = [&] {
        std::vector<ProductChoice> needs;
        needs.reserve(mine.size());
        for (const Product& product : mine) needs.push_back({device, to_string(product), {}});
        return to_text(needs);
    };
    const auto together = [&](const std::vector<std::string>& answers) {
        const Table before = table_of(known);
        Table needs;
        for (const std::string& answer : answers) {
            for (const ProductChoice& need : received(answer)) {
                const auto found = before.find({need.device, need.product});
                needs[{need.device, need.product}] = found == before.end() ? "" : found->second;
            }
        }
        return to_text(choices_of(needs));
    };
    return received(agree(link, mine_as_text, together));
}

// What is needed of this rank's kind of device, taken over where it is known and tuned where not.
TunedProducts take_over_or_tune(ProductPlans& plans, const std::vector<ProductChoice>& needed, Stream& stream,
                                Clock& clock, TuningLimits limits) {
    TunedProducts own;
    std::vector<Product> unknown;
    for (const ProductChoice& need : needed) {
        if (need.device != plans.identity()) continue;
        own.choices.push_back(need);
        const Product product = product_of(need.product);
        if (need.algorithm.empty() || !plans.adopt(product, need.algorithm)) unknown.push_back(product);
    }
    own.known = static_cast<int>(own.choices.size() - unknown.size());
    if (!unknown.empty()) own.report = plans.tune(unknown, stream, clock, limits);
    for (ProductChoice& choice : own.choices) choice.algorithm = plans.algorithm(product_of(choice.product));
    return own;
}

void adopt_all(ProductPlans& plans, const std::vector<Product>& mine, const TunedProducts& tuned,
               int speaker) {
    const std::string device = plans.identity();
    const Table table = table_of(tuned.choices);
    for (const Product& product : mine) {
        if (plans.adopt(product, table.at({device, to_string(product)}))) continue;
        fail(Exit::Resource,
             fmt::format("rank {} chose an algorithm for the matrix product '{}' that cuBLASLt refuses "
                         "here, though device and library are the same ({}); set device.tune_products "
                         "= false",
                         speaker, to_string(product), device));
    }
}

}  // namespace

TuningLimits tuning_limits(double timeout_s) {
    TuningLimits limits;
    limits.seconds = std::min(limits.seconds, timeout_s / 2.0);
    return limits;
}

TunedProducts tune_products(RankLink& link, ProductPlans& plans, const std::vector<Product>& mine,
                            const std::vector<ProductChoice>& known, Stream& stream, Clock& clock,
                            TuningLimits limits) {
    const int speaker = speaker_for(link, plans.identity());
    const std::vector<ProductChoice> needed = needed_by_all(link, plans.identity(), mine, known);
    const auto speak = [&] {
        return link.rank() == speaker ? to_text(take_over_or_tune(plans, needed, stream, clock, limits))
                                      : std::string();
    };
    TunedProducts tuned = parse_tuned(agree(link, speak, merged));
    agree(link, [&] { adopt_all(plans, mine, tuned, speaker); });
    return tuned;
}

TunedProducts tune_products_of_run(RankLink& link, ProductPlans& plans, const std::vector<Product>& mine,
                                   FileSystem& files, const RunLayout& layout, Stream& stream, Clock& clock,
                                   Log& log, TuningLimits limits) {
    const std::string path = layout.product_choices();
    ProductChoices stored;
    at_rank_0(link, [&] {
        stored = read_product_choices(files, layout);
        if (stored.damage.empty()) return;
        log.warn(fmt::format("{}: {}; what is missing is tuned again, and may round differently from here on",
                             path, stored.damage));
    });
    TunedProducts tuned = tune_products(link, plans, mine, stored.choices, stream, clock, limits);
    at_rank_0(link, [&] {
        Table all = table_of(stored.choices);
        for (const auto& [key, algorithm] : table_of(tuned.choices)) all[key] = algorithm;
        const std::vector<ProductChoice> now = choices_of(all);
        if (now != stored.choices || !stored.damage.empty()) write_product_choices(files, layout, now);
        log_tuning(log, tuned, path);
    });
    return tuned;
}

std::string describe(const TunedProducts& tuned) {
    const TuningReport& r = tuned.report;
    const int fresh = static_cast<int>(tuned.choices.size()) - tuned.known;
    if (fresh == 0) return fmt::format("{} as chosen before", counted(tuned.known, "matrix product"));
    std::string text = fmt::format("{} tuned in {:.1f} s ({} other than the library's first",
                                   counted(fresh, "matrix product"), r.seconds, r.changed);
    if (r.best_gain > 0.0) text += fmt::format(", best gain {:.0f} %", 100.0 * r.best_gain);
    if (r.not_reached > 0) text += fmt::format(", {} not reached in time", r.not_reached);
    if (r.without_memory > 0) text += fmt::format(", {} too large for the free memory", r.without_memory);
    text += ')';
    if (tuned.known > 0) text += fmt::format(", {} as chosen before", tuned.known);
    return text;
}

void log_tuning(Log& log, const TunedProducts& tuned, const std::string& place) {
    log.info(describe(tuned) + (place.empty() ? "" : "; kept in " + place));
    constexpr std::size_t most_lines = 4;
    const std::vector<std::string>& discarded = tuned.report.discarded;
    for (std::size_t i = 0; i < std::min(discarded.size(), most_lines); ++i)
        log.warn("matrix product " + discarded[i]);
    if (discarded.size() > most_lines)
        log.warn(fmt::format("{} like these", counted(discarded.size() - most_lines, "more algorithm")));
}

}  // namespace trainctl
