// How elementwise kernels walk over [rows, width]: a block has 32 runs of n columns, one to each lane, and a
// range of rows, of which its 8 warps take every eighth, four at a time, so that four reads are under way.
// Neighbouring blocks have neighbouring columns: together they read whole rows.
#pragma once

#include <cstdint>

#include "cuda/lanes.h"
#include "cuda/launch.h"

namespace trainctl::cuda {

constexpr int tile_warps = 8;
constexpr int tile_threads = tile_warps * warp_size;
constexpr int rows_at_once = 4;  // of one warp
constexpr std::int64_t tile_rows = tile_warps * rows_at_once;

struct TileGrid {
    std::int64_t rows;
    std::int64_t width;
    std::int64_t rows_per_block;
    unsigned columns;  // blocks side by side

    [[nodiscard]] LaunchShape shape(cudaStream_t stream, std::size_t shared_bytes = 0) const {
        const unsigned down = blocks_for(rows, rows_per_block);
        return {dim3(columns * down), dim3(tile_threads), shared_bytes, stream};
    }
};
template <int n>
TileGrid tile_grid(std::int64_t rows, std::int64_t width, std::int64_t rows_per_block = tile_rows) {
    return {rows, width, rows_per_block, blocks_for(width, warp_size * n)};
}

// A thread's place in it.
template <int n>
struct TilePlace {
    std::int64_t column;  // the first of n
    bool inside;          // whether there are such columns
    std::int64_t part;    // which range of rows
    std::int64_t row;     // the first of this warp
    std::int64_t end;     // of the block's rows

    __device__ explicit TilePlace(const TileGrid& grid)
        : column(
              (static_cast<std::int64_t>(blockIdx.x % grid.columns) * warp_size + threadIdx.x % warp_size) *
              n),
          inside(column < grid.width),
          part(blockIdx.x / grid.columns),
          row(part * grid.rows_per_block + threadIdx.x / warp_size),
          end((part + 1) * grid.rows_per_block < grid.rows ? (part + 1) * grid.rows_per_block : grid.rows) {}
};

}  // namespace trainctl::cuda
